// Workloads written straightforwardly with NVSHMEM, for comparison with Rushmem's. Each verifies its result.
//
//     workloads gups PES LOG2_WORDS                      beside examples/src/bin/gups.rs
//     workloads sort PES LOG2_KEYS                       beside examples/src/bin/sort.rs
//     workloads fft PES LOG2_N                           beside examples/src/bin/fft.rs
//     workloads ep PES TOKENS HIDDEN EXPERTS TOP_K       beside rushmem-ep-bench, in bf16
#include <cuda_bf16.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "job.cuh"

namespace {

constexpr unsigned LIMIT_SECONDS = 60;
constexpr int RUNS = 20;

int multiprocessors() {
    int found = 0;
    CUDA(cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, 0));
    return found;
}

template <typename T>
void copy(T *to, const T *from, uint64_t count) {
    CUDA(cudaMemcpy(to, from, count * sizeof(T), cudaMemcpyDefault));
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

// Seconds of `step` by the host's clock, until all PEs have finished it.
template <typename Step>
double seconds(Step step) {
    CUDA(cudaDeviceSynchronize());
    nvshmem_barrier_all();
    const auto start = std::chrono::steady_clock::now();
    step();
    CUDA(cudaGetLastError());
    CUDA(cudaDeviceSynchronize());
    nvshmem_barrier_all();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Hashes `a` and `b` to a pseudo-random number, as in examples/src/lib.rs.
uint32_t pattern(uint64_t a, uint64_t b) {
    uint64_t x = a * 0x9e3779b97f4a7c15ull + b + 0x632be59bd9b4e019ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return uint32_t(x ^ x >> 31);
}

__device__ int warp_of_grid() { return (blockIdx.x * blockDim.x + threadIdx.x) / 32; }
__device__ int warps_of_grid() { return gridDim.x * blockDim.x / 32; }

// ---- HPCC's RandomAccess

__host__ __device__ uint64_t next(uint64_t x) { return x << 1 ^ (x >> 63 ? 7 : 0); }

__device__ uint64_t product(uint64_t a, uint64_t b) {
    uint64_t sum = 0;
    for (; b != 0; b >>= 1, a = next(a)) sum ^= b & 1 ? a : 0;
    return sum;
}

// Element `n` of the sequence.
__device__ uint64_t number(uint64_t n) {
    uint64_t power = 1;
    for (int bit = 63; bit >= 0; bit--) {
        power = product(power, power);
        if (n >> bit & 1) power = next(power);
    }
    return power;
}

__global__ void update(uint64_t *part, uint64_t len, uint64_t words, uint64_t first, uint64_t updates) {
    const uint64_t threads = uint64_t(gridDim.x) * blockDim.x, me = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const auto begin = [&](uint64_t i) { return first + updates / threads * i + min(updates % threads, i); };
    uint64_t x = number(begin(me));
    for (uint64_t i = begin(me); i < begin(me + 1); i++, x = next(x)) {
        const uint64_t word = x & (words - 1);
        nvshmem_uint64_atomic_xor(part + word % len, x, int(word / len));
    }
    nvshmem_quiet();
}

void gups(int me, int pes, int log2_words) {
    const uint64_t words = 1ull << log2_words, len = (words + pes - 1) / pes, updates = 4 * words;
    uint64_t *part = symmetric<uint64_t>(len);
    const int blocks = std::max(1, multiprocessors() / pes);
    const auto cut = [&](int pe) { return updates * pe / pes; };
    std::vector<uint64_t> table(len), wanted(len), found(len);
    for (uint64_t i = 0; i < len; i++) wanted[i] = table[i] = len * me + i;
    uint64_t x = 1;
    for (uint64_t i = 0; i < updates; i++, x = next(x)) {
        const uint64_t word = (x & (words - 1)) - len * me;
        if (word < len) wanted[word] ^= x;
    }
    cudaEvent_t begin, end;
    CUDA(cudaEventCreate(&begin));
    CUDA(cudaEventCreate(&end));
    std::vector<double> times;
    for (int run = 0; run <= RUNS; run++) {
        copy(part, table.data(), len);
        nvshmemx_barrier_all_on_stream(0);
        CUDA(cudaEventRecord(begin));
        update<<<blocks, 256>>>(part, len, words, cut(me), cut(me + 1) - cut(me));
        nvshmemx_barrier_all_on_stream(0);
        CUDA(cudaEventRecord(end));
        CUDA(cudaDeviceSynchronize());
        float ms = 0;
        CUDA(cudaEventElapsedTime(&ms, begin, end));
        if (run > 0) times.push_back(ms);
        copy(found.data(), part, len);
        if (found != wanted) fail("words of PE " + std::to_string(me) + " are wrong");
        nvshmem_barrier_all();
    }
    if (me == 0) {
        const double ms = median(times);
        std::printf("PASS gups: %llu updates of %llu words by %d PEs in %.3f ms, %.6f GUPS, every word verified\n",
                    (unsigned long long)updates, (unsigned long long)words, pes, ms, double(updates) / ms / 1e6);
    }
}

// ---- ISx: a bucket sort with a bucket for each PE. Each split by a digit is as in examples/kernels/src/sort.rs.

constexpr int DIGITS = 256;
constexpr int SORT_THREADS = 512;
constexpr uint64_t ONE_PE = 1ull << 40;
constexpr uint64_t PIECE = 4096;

__host__ __device__ uint32_t owner(uint32_t key, int pes) { return uint32_t(uint64_t(key) * pes >> 32); }

// The owner of a key among `pes` PEs, or a byte of the key if `pes` is 0.
struct Digit {
    int pes, shift;
    __device__ uint32_t operator()(uint32_t key) const { return pes > 0 ? owner(key, pes) : key >> shift & 255; }
};

struct Sort {
    uint32_t *keys, *outbox, *inbox;
    uint64_t capacity, *reserved, *arrived;
    uint64_t *places;                     // [PE]
    uint32_t *counts, *totals, *starts;   // [digit][warp], [digit], [digit]
};

// Increments this warp's counter for each key in its share, and stores the keys at their positions in `to`, if any.
__device__ void walk(uint32_t *counters, const uint32_t *keys, uint64_t count, Digit digit, uint32_t *to) {
    const int lane = threadIdx.x % 32;
    const uint64_t first = count * warp_of_grid() / warps_of_grid(), end = count * (warp_of_grid() + 1) / warps_of_grid();
    for (uint64_t at = first + lane; at < end + lane; at += 4 * 32) {
        uint32_t loaded[4];
        for (int i = 0; i < 4; i++) loaded[i] = at + i * 32 < end ? keys[at + i * 32] : 0;
        for (int i = 0; i < 4; i++) {
            const bool has_key = at + i * 32 < end;
            const uint32_t value = has_key ? digit(loaded[i]) : DIGITS;
            const uint32_t same = __match_any_sync(0xffffffff, value), earlier = __popc(same & ((1u << lane) - 1));
            const uint32_t found = has_key ? counters[value] : 0;
            __syncwarp();
            if (has_key && earlier == 0) counters[value] = found + __popc(same);
            __syncwarp();
            if (has_key && to != nullptr) to[found + earlier] = loaded[i];
        }
    }
}

__device__ uint32_t *warp_counters() {
    extern __shared__ uint32_t counters[];
    return counters + threadIdx.x / 32 * DIGITS;
}

__global__ void count_keys(Sort s, const uint32_t *keys, uint64_t count, Digit digit) {
    uint32_t *counters = warp_counters();
    for (int i = threadIdx.x % 32; i < DIGITS; i += 32) counters[i] = 0;
    __syncwarp();
    walk(counters, keys, count, digit, nullptr);
    for (int i = threadIdx.x % 32; i < DIGITS; i += 32) s.counts[i * warps_of_grid() + warp_of_grid()] = counters[i];
}

// Exclusive prefix sum over the lanes, and the total.
__device__ uint2 add_lanes(uint32_t value) {
    uint32_t sum = value;
    for (int distance = 1; distance < 32; distance *= 2) {
        const uint32_t other = __shfl_up_sync(0xffffffff, sum, distance);
        if (threadIdx.x % 32 >= distance) sum += other;
    }
    return {sum - value, __shfl_sync(0xffffffff, sum, 31)};
}

__global__ void add_counts(Sort s, int warps) {
    const int lane = threadIdx.x % 32;
    for (int digit = warp_of_grid(); digit < DIGITS; digit += warps_of_grid()) {
        uint32_t sum = 0, *row = s.counts + digit * warps;
        for (int first = 0; first < warps; first += 32) {
            const uint2 sums = add_lanes(first + lane < warps ? row[first + lane] : 0);
            if (first + lane < warps) row[first + lane] = sum + sums.x;
            sum += sums.y;
        }
        if (lane == 0) s.totals[digit] = sum;
    }
}

__global__ void place_keys(Sort s, const uint32_t *keys, uint64_t count, Digit digit, uint32_t *to) {
    uint32_t *counters = warp_counters(), sum = 0;
    const int own = threadIdx.x % 32 * 8;
    for (int i = own; i < own + 8; i++) sum += s.totals[i];
    uint32_t start = add_lanes(sum).x;
    for (int i = own; i < own + 8; i++) {
        if (warp_of_grid() == 0) s.starts[i] = start;
        counters[i] = start + s.counts[i * warps_of_grid() + warp_of_grid()];
        start += s.totals[i];
    }
    __syncwarp();
    walk(counters, keys, count, digit, to);
}

__global__ void reserve_places(Sort s) {
    for (int pe = threadIdx.x; pe < nvshmem_n_pes(); pe += blockDim.x) {
        s.places[pe] = nvshmem_uint64_atomic_fetch_add(s.reserved, ONE_PE + s.totals[pe], pe) % ONE_PE;
    }
}

__global__ void send_keys(Sort s) {
    const int me = nvshmem_my_pe(), pes = nvshmem_n_pes();
    for (int k = 0; k < pes; k++) {
        const int pe = (me + k) % pes;
        const uint64_t start = s.starts[pe], count = s.totals[pe], place = s.places[pe];
        const uint64_t pieces = (count + PIECE - 1) / PIECE;
        const uint64_t first = pieces * blockIdx.x / gridDim.x * PIECE;
        const uint64_t end = min(pieces * (blockIdx.x + 1) / gridDim.x * PIECE, count);
        if (first >= end || place + count > s.capacity) continue;
        nvshmemx_putmem_signal_nbi_block(s.inbox + place + first, s.outbox + start + first, (end - first) * sizeof(uint32_t),
                                         s.arrived, end - first, NVSHMEM_SIGNAL_ADD, pe);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        nvshmem_uint64_wait_until(s.reserved, NVSHMEM_CMP_GE, pes * ONE_PE);
        const uint64_t wanted = *s.reserved % ONE_PE;
        if (wanted <= s.capacity) nvshmem_signal_wait_until(s.arrived, NVSHMEM_CMP_GE, wanted);
    }
    if (threadIdx.x == 0) nvshmem_quiet();
}

void sort(int me, int pes, int log2_keys) {
    const uint64_t count = 1ull << log2_keys, capacity = count + count / 4 + 64;
    const int blocks = std::max(1, multiprocessors() / pes), warps = blocks * SORT_THREADS / 32;
    const int shared = SORT_THREADS / 32 * DIGITS * sizeof(uint32_t);
    Sort s = {symmetric<uint32_t>(count), symmetric<uint32_t>(capacity), symmetric<uint32_t>(capacity), capacity,
              symmetric<uint64_t>(1), symmetric<uint64_t>(1), nullptr, nullptr, nullptr, nullptr};
    CUDA(cudaMalloc(&s.places, pes * sizeof(uint64_t)));
    CUDA(cudaMalloc(&s.counts, size_t(DIGITS) * warps * sizeof(uint32_t)));
    CUDA(cudaMalloc(&s.totals, DIGITS * sizeof(uint32_t)));
    CUDA(cudaMalloc(&s.starts, DIGITS * sizeof(uint32_t)));
    std::vector<double> exchanges, totals;
    for (int run = 0; run <= RUNS; run++) {
        std::vector<uint32_t> keys(count), wanted;
        for (int pe = 0; pe < pes; pe++) {
            for (uint64_t i = 0; i < count; i++) {
                const uint32_t key = pattern(uint64_t(run) * pes + pe, i);
                if (pe == me) keys[i] = key;
                if (owner(key, pes) == uint32_t(me)) wanted.push_back(key);
            }
        }
        std::sort(wanted.begin(), wanted.end());
        copy(s.keys, keys.data(), count);
        CUDA(cudaMemset(s.reserved, 0, sizeof(uint64_t)));
        CUDA(cudaMemset(s.arrived, 0, sizeof(uint64_t)));
        const double exchange = seconds([&] {
            const Digit digit = {pes, 0};
            count_keys<<<blocks, SORT_THREADS, shared>>>(s, s.keys, count, digit);
            add_counts<<<blocks, SORT_THREADS>>>(s, warps);
            reserve_places<<<1, 32>>>(s);
            place_keys<<<blocks, SORT_THREADS, shared>>>(s, s.keys, count, digit, s.outbox);
            send_keys<<<blocks, SORT_THREADS>>>(s);
        });
        uint64_t owned = 0;
        copy(&owned, s.reserved, 1);
        owned %= ONE_PE;
        if (owned > capacity) fail("PE " + std::to_string(me) + " has no room for its keys");
        const double sort = seconds([&] {
            uint32_t *from = s.inbox, *to = s.outbox;
            for (int shift = 0; shift < 32; shift += 8) {
                const Digit digit = {0, shift};
                count_keys<<<blocks, SORT_THREADS, shared>>>(s, from, owned, digit);
                add_counts<<<blocks, SORT_THREADS>>>(s, warps);
                place_keys<<<blocks, SORT_THREADS, shared>>>(s, from, owned, digit, to);
                std::swap(from, to);
            }
        });
        if (run > 0) exchanges.push_back(exchange), totals.push_back(exchange + sort);
        std::vector<uint32_t> found(owned);
        copy(found.data(), s.inbox, owned);
        if (found != wanted) fail("keys of PE " + std::to_string(me) + " are wrong");
    }
    if (me == 0) {
        const double keys = double(count) * pes, total = median(totals), exchange = median(exchanges);
        std::printf("PASS sort: %.0f keys on %d PEs in %.3f ms, %.2f M keys/s; exchange in %.3f ms, %.3f GB/s; every key verified\n",
                    keys, pes, total * 1e3, keys / total / 1e6, exchange * 1e3, 4 * keys / exchange / 1e9);
    }
}

// ---- A Fourier transform of a cube, with the steps of examples/kernels/src/fft.rs

constexpr int FFT_TILE = 2048;

// A transform of all lines of one axis.
struct Pass {
    int log2_n, planes, columns, inverse;
    __host__ __device__ int n() const { return 1 << log2_n; }
    __host__ __device__ int lines() const { return min(max(FFT_TILE >> log2_n, 1), n()); }
    __host__ __device__ int pitch() const { return n() + 1; }
    __device__ int2 place(int i) const { return columns ? make_int2(i % lines(), i / lines()) : make_int2(i >> log2_n, i % n()); }
    __device__ size_t index(size_t line, int k) const {
        if (!columns) return (line << log2_n) + k;
        return ((((line >> log2_n) << log2_n) + k) << log2_n) + line % n();
    }
};

__device__ float2 product(float2 a, float2 b) { return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }

__global__ void fft_lines(float2 *data, const float2 *twiddles, Pass pass) {
    extern __shared__ float2 tile[];
    const int n = pass.n(), lines = pass.lines();
    const float scale = pass.inverse ? 1.0f / n : 1;
    const size_t tiles = size_t(pass.planes) * n / lines;
    for (size_t first = blockIdx.x * size_t(lines); first < tiles * lines; first += gridDim.x * size_t(lines)) {
        for (int i = threadIdx.x; i < lines * n; i += blockDim.x) {
            const int2 place = pass.place(i);
            tile[place.x * pass.pitch() + (__brev(place.y) >> (32 - pass.log2_n))] = data[pass.index(first + place.x, place.y)];
        }
        __syncthreads();
        for (int stage = 0; stage < pass.log2_n; stage++) {
            for (int i = threadIdx.x; i < lines * n / 2; i += blockDim.x) {
                const int line = i >> (pass.log2_n - 1), j = i & (n / 2 - 1), half = 1 << stage, k = j & (half - 1);
                float2 *low = tile + line * pass.pitch() + 2 * j - k;
                float2 twiddle = twiddles[k << (pass.log2_n - 1 - stage)];
                if (pass.inverse) twiddle.y = -twiddle.y;
                const float2 a = low[0], b = product(low[half], twiddle);
                low[0] = {a.x + b.x, a.y + b.y};
                low[half] = {a.x - b.x, a.y - b.y};
            }
            __syncthreads();
        }
        for (int i = threadIdx.x; i < lines * n; i += blockDim.x) {
            const int2 place = pass.place(i);
            const float2 value = tile[place.x * pass.pitch() + place.y];
            data[pass.index(first + place.x, place.y)] = {value.x * scale, value.y * scale};
        }
        __syncthreads();
    }
}

// First plane of a PE.
__host__ __device__ int first_plane(int n, int pe, int pes) { return int(int64_t(n) * pe / pes); }

// Each warp puts a row of the cube to its position in the transpose. A barrier signals all PEs.
__global__ void transpose(float2 *to, const float2 *from, int log2_n) {
    const int n = 1 << log2_n, me = nvshmem_my_pe(), pes = nvshmem_n_pes();
    const int first = first_plane(n, me, pes), planes = first_plane(n, me + 1, pes) - first;
    for (int row = warp_of_grid(); row < planes * n; row += warps_of_grid()) {
        const int z = row / n, y = (row + first) % n, peer = int((int64_t(y + 1) * pes - 1) >> log2_n);
        const size_t place = size_t(y - first_plane(n, peer, pes)) * n + first + z;
        nvshmemx_putmem_nbi_warp(to + place * n, from + (size_t(z) * n + y) * n, n * sizeof(float2), peer);
    }
    nvshmem_quiet();
}

void fft(int me, int pes, int log2_n) {
    const int n = 1 << log2_n, first = first_plane(n, me, pes), planes = first_plane(n, me + 1, pes) - first;
    const size_t count = size_t(planes) * n * n, most = size_t(n) * n * ((n + pes - 1) / pes);
    const int blocks = std::max(1, multiprocessors() / pes);
    float2 *data = symmetric<float2>(most), *transposed = symmetric<float2>(most), *twiddles;
    std::vector<float2> table(n / 2), numbers(count), found(count);
    for (int k = 0; k < n / 2; k++) {
        const double angle = -2 * M_PI * k / n;
        table[k] = {float(std::cos(angle)), float(std::sin(angle))};
    }
    CUDA(cudaMalloc(&twiddles, table.size() * sizeof(float2)));
    copy(twiddles, table.data(), table.size());
    const Pass rows = {log2_n, planes, 0, 0}, columns = {log2_n, planes, 1, 0};
    const Pass rows_back = {log2_n, planes, 0, 1}, columns_back = {log2_n, planes, 1, 1};
    const auto lines = [&](float2 *of, Pass pass) {
        fft_lines<<<blocks, 512, pass.lines() * pass.pitch() * sizeof(float2)>>>(of, twiddles, pass);
    };
    const auto exchange = [&](float2 *to, const float2 *from) {
        return seconds([&] {
            transpose<<<blocks, 512>>>(to, from, log2_n);
            nvshmemx_barrier_all_on_stream(0);
        });
    };
    std::vector<double> ffts, transposes;
    for (int run = 0; run <= RUNS; run++) {
        for (size_t i = 0; i < count; i++) {
            const auto part = [&](int seed) { return int32_t(pattern(2 * run + seed, size_t(first) * n * n + i)) / 2147483648.0f; };
            numbers[i] = {part(0), part(1)};
        }
        copy(data, numbers.data(), count);
        double fft = seconds([&] { lines(data, rows), lines(data, columns); });
        double transpose = exchange(transposed, data);
        fft += seconds([&] { lines(transposed, columns); });
        CUDA(cudaMemset(data, 0, count * sizeof(float2)));
        fft += seconds([&] { lines(transposed, columns_back); });
        transpose += exchange(data, transposed);
        fft += seconds([&] { lines(data, columns_back), lines(data, rows_back); });
        if (run > 0) ffts.push_back(fft), transposes.push_back(transpose);
        copy(found.data(), data, count);
        for (size_t i = 0; i < count; i++) {
            const float error = std::hypot(found[i].x - numbers[i].x, found[i].y - numbers[i].y);
            if (!(error <= 1e-5f)) fail("number " + std::to_string(i) + " of PE " + std::to_string(me) + " is wrong");
        }
        nvshmem_barrier_all();
    }
    if (me == 0) {
        const double fft = median(ffts), transpose = median(transposes), bytes = 2.0 * n * n * n * sizeof(float2);
        std::printf("PASS fft: %d x %d x %d numbers on %d PEs, transform and inverse in %.3f ms: FFTs %.3f ms, "
                    "transposes %.3f ms, %.3f GB/s; every number verified after the inverse\n",
                    n, n, n, pes, (fft + transpose) * 1e3, fft * 1e3, transpose * 1e3, bytes / transpose / 1e9);
    }
}

// ---- Dispatch and combine of a mixture of experts: a warp, an atomic and a put for each (token, choice)

struct Exchange {
    int pes, tokens, hidden, experts, top_k, capacity;
    __nv_bfloat16 *x;        // [token][hidden]
    int *choices;            // [token][choice]
    float *weights;          // [token][choice]
    __nv_bfloat16 *inbox;    // [local expert][capacity][hidden]
    int *from;               // [local expert][capacity]: PE and pair
    int *counts;             // [local expert]
    __nv_bfloat16 *back;     // [token][choice][hidden]
    float *sums;             // [token][hidden]
};

__global__ void dispatch(Exchange e) {
    const int locals = e.experts / e.pes, me = nvshmem_my_pe(), lane = threadIdx.x % 32;
    for (int pair = warp_of_grid(); pair < e.tokens * e.top_k; pair += warps_of_grid()) {
        const int expert = e.choices[pair], pe = expert / locals, local = expert % locals;
        int slot = 0;
        if (lane == 0) slot = nvshmem_int_atomic_fetch_add(e.counts + local, 1, pe);
        slot = __shfl_sync(0xffffffff, slot, 0);
        const size_t row = size_t(local) * e.capacity + slot;
        if (lane == 0) nvshmem_int_p(e.from + row, me * e.tokens * e.top_k + pair, pe);
        nvshmemx_putmem_nbi_warp(e.inbox + row * e.hidden, e.x + size_t(pair / e.top_k) * e.hidden,
                                 size_t(e.hidden) * sizeof(__nv_bfloat16), pe);
    }
    nvshmem_quiet();
}

__global__ void give_back(Exchange e) {
    const int locals = e.experts / e.pes;
    for (int row = warp_of_grid(); row < locals * e.capacity; row += warps_of_grid()) {
        if (row % e.capacity >= e.counts[row / e.capacity]) continue;
        const int pe = e.from[row] / (e.tokens * e.top_k), pair = e.from[row] % (e.tokens * e.top_k);
        nvshmemx_putmem_nbi_warp(e.back + size_t(pair) * e.hidden, e.inbox + size_t(row) * e.hidden,
                                 size_t(e.hidden) * sizeof(__nv_bfloat16), pe);
    }
    nvshmem_quiet();
}

__global__ void reduce(Exchange e) {
    for (int token = blockIdx.x; token < e.tokens; token += gridDim.x) {
        for (int i = threadIdx.x; i < e.hidden; i += blockDim.x) {
            float sum = 0;
            for (int k = 0; k < e.top_k; k++) {
                const int pair = token * e.top_k + k;
                sum += e.weights[pair] * __bfloat162float(e.back[size_t(pair) * e.hidden + i]);
            }
            e.sums[size_t(token) * e.hidden + i] = sum;
        }
    }
}

void experts(int me, Exchange e) {
    const int pairs = e.tokens * e.top_k, locals = e.experts / e.pes;
    e.capacity = e.pes * e.tokens;
    e.x = symmetric<__nv_bfloat16>(size_t(e.tokens) * e.hidden);
    e.inbox = symmetric<__nv_bfloat16>(size_t(locals) * e.capacity * e.hidden);
    e.from = symmetric<int>(size_t(locals) * e.capacity);
    e.counts = symmetric<int>(locals);
    e.back = symmetric<__nv_bfloat16>(size_t(pairs) * e.hidden);
    CUDA(cudaMalloc(&e.choices, pairs * sizeof(int)));
    CUDA(cudaMalloc(&e.weights, pairs * sizeof(float)));
    CUDA(cudaMalloc(&e.sums, size_t(e.tokens) * e.hidden * sizeof(float)));
    srand(me + 1);
    std::vector<__nv_bfloat16> x(size_t(e.tokens) * e.hidden);
    for (auto &element : x) element = __float2bfloat16(float(rand() % 2001 - 1000) / 1000);
    std::vector<int> choices;
    std::vector<float> weights;
    for (int token = 0; token < e.tokens; token++) {
        std::vector<int> chosen;
        while (int(chosen.size()) < e.top_k) {
            const int expert = rand() % e.experts;
            if (std::find(chosen.begin(), chosen.end(), expert) == chosen.end()) chosen.push_back(expert);
        }
        choices.insert(choices.end(), chosen.begin(), chosen.end());
        for (int k = 0; k < e.top_k; k++) weights.push_back(float(rand() % 1000) / 1000);
    }
    copy(e.x, x.data(), x.size());
    copy(e.choices, choices.data(), choices.size());
    copy(e.weights, weights.data(), weights.size());

    const int blocks = std::max(1, multiprocessors() / e.pes);
    cudaEvent_t events[3];
    for (auto &event : events) CUDA(cudaEventCreate(&event));
    std::vector<double> there, back;
    for (int run = 0; run <= RUNS; run++) {
        CUDA(cudaMemsetAsync(e.counts, 0, locals * sizeof(int), 0));
        nvshmemx_barrier_all_on_stream(0);
        CUDA(cudaEventRecord(events[0]));
        dispatch<<<blocks, 512>>>(e);
        nvshmemx_barrier_all_on_stream(0);
        CUDA(cudaEventRecord(events[1]));
        give_back<<<blocks, 512>>>(e);
        nvshmemx_barrier_all_on_stream(0);
        reduce<<<blocks, 512>>>(e);
        CUDA(cudaEventRecord(events[2]));
        CUDA(cudaDeviceSynchronize());
        float ms[2];
        for (int i = 0; i < 2; i++) CUDA(cudaEventElapsedTime(ms + i, events[i], events[i + 1]));
        if (run > 0) there.push_back(ms[0] * 1e3), back.push_back(ms[1] * 1e3);
        nvshmem_barrier_all();
    }
    std::vector<float> sums(size_t(e.tokens) * e.hidden);
    copy(sums.data(), e.sums, sums.size());
    for (size_t i = 0; i < sums.size(); i++) {
        float wanted = 0;
        for (int k = 0; k < e.top_k; k++) wanted += weights[i / e.hidden * e.top_k + k] * __bfloat162float(x[i]);
        if (std::fabs(sums[i] - wanted) > 1e-3f) fail("sum " + std::to_string(i) + " is wrong");
    }
    nvshmem_barrier_all();
    if (me == 0) {
        std::printf("PASS ep: %d tokens x %d, %d experts, top %d, %d PEs, %d blocks of 512 threads: every sum verified\n",
                    e.tokens, e.hidden, e.experts, e.top_k, e.pes, blocks);
        std::printf("  dispatch %10.1f us\n  combine  %10.1f us\n", median(there), median(back));
    }
}

}  // namespace

int main(int count, char **arguments) {
    std::vector<int> numbers;
    for (int i = 2; i < count; i++) numbers.push_back(std::atoi(arguments[i]));
    const std::string name = count > 1 ? arguments[1] : "";
    setenv("NVSHMEM_SYMMETRIC_SIZE", "8G", 0);
    if (name == "gups" && numbers.size() == 2) {
        return run_job(numbers[0], LIMIT_SECONDS, [&](int me) { gups(me, numbers[0], numbers[1]); });
    }
    if (name == "sort" && numbers.size() == 2) {
        if (numbers[0] > DIGITS) fail("too many PEs");
        return run_job(numbers[0], LIMIT_SECONDS, [&](int me) { sort(me, numbers[0], numbers[1]); });
    }
    if (name == "fft" && numbers.size() == 2) {
        if (numbers[1] < 1 || numbers[1] > 11 || 1 << numbers[1] < numbers[0]) fail("no such cube for so many PEs");
        return run_job(numbers[0], LIMIT_SECONDS, [&](int me) { fft(me, numbers[0], numbers[1]); });
    }
    if (name == "ep" && numbers.size() == 5) {
        Exchange e = {};
        e.pes = numbers[0], e.tokens = numbers[1], e.hidden = numbers[2], e.experts = numbers[3], e.top_k = numbers[4];
        if (e.experts % e.pes != 0 || e.top_k > e.experts) fail("the experts do not divide");
        return run_job(e.pes, LIMIT_SECONDS, [&](int me) { experts(me, e); });
    }
    std::fprintf(stderr, "usage: workloads gups PES LOG2_WORDS | workloads sort PES LOG2_KEYS | "
                         "workloads fft PES LOG2_N | workloads ep PES TOKENS HIDDEN EXPERTS TOP_K\n");
    return 2;
}
