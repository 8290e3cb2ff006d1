// Workloads as one writes them plainly with NVSHMEM, beside those of Rushmem. Each verifies its result.
//
//     workloads gups PES LOG2_WORDS                      beside examples/src/bin/gups.rs
//     workloads ep PES TOKENS HIDDEN EXPERTS TOP_K       beside rushmem-ep-bench, in bf16
#include <cuda_bf16.h>

#include <algorithm>
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

// ---- HPCC's RandomAccess

__host__ __device__ uint64_t next(uint64_t x) { return x << 1 ^ (x >> 63 ? 7 : 0); }

__device__ uint64_t product(uint64_t a, uint64_t b) {
    uint64_t sum = 0;
    for (; b != 0; b >>= 1, a = next(a)) sum ^= b & 1 ? a : 0;
    return sum;
}

// Number `n` of the sequence.
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

__device__ int warp_of_grid() { return (blockIdx.x * blockDim.x + threadIdx.x) / 32; }
__device__ int warps_of_grid() { return gridDim.x * blockDim.x / 32; }

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
    if (name == "ep" && numbers.size() == 5) {
        Exchange e = {};
        e.pes = numbers[0], e.tokens = numbers[1], e.hidden = numbers[2], e.experts = numbers[3], e.top_k = numbers[4];
        if (e.experts % e.pes != 0 || e.top_k > e.experts) fail("the experts do not divide");
        return run_job(e.pes, LIMIT_SECONDS, [&](int me) { experts(me, e); });
    }
    std::fprintf(stderr, "usage: workloads gups PES LOG2_WORDS | workloads ep PES TOKENS HIDDEN EXPERTS TOP_K\n");
    return 2;
}
