// Rows of `rushmem perf --list` on one-sided operations and barriers: the same work, clock and checks for each library,
// which provides the kernels.
#pragma once

#include "common.cuh"

// The arguments of a launch. Words are 8 bytes.
struct Work {
    uint64_t *spans;    // begin and end of each block, nanoseconds
    uint64_t *dst;      // symmetric, as all that follow
    uint64_t *src;
    uint64_t *words;    // one for each thread
    uint64_t *sums;     // one for each thread
    uint64_t *signal;
    uint64_t len;       // words of a message
    uint64_t places;    // that messages go to in turn
    uint64_t rounds;
    uint64_t value;     // the first that is put
    uint64_t each;      // not 0: completes each one before the next
    uint64_t complete;  // not 0: barrier, 0: sync
};

constexpr uint64_t WINDOW = 256ull << 20;  // bytes that data is spread over, more than the GPU's cache holds
constexpr uint64_t MAX_THREADS = 1 << 18;
constexpr uint64_t MAX_BLOCKS = 1 << 12;
// The latency of a word depends on its cache line in GPU memory, so each run visits several lines, as Rushmem does.
constexpr uint64_t LINES = 64, PLACE = 37 * 16;

// Allocates the arrays by `allocate`, which takes a number of words.
template <typename Allocate>
Work allocated(Allocate allocate) {
    Work work = {};
    work.spans = allocate(2 * MAX_BLOCKS);
    work.dst = allocate(WINDOW / 8);
    work.src = allocate(WINDOW / 8);
    work.words = allocate(MAX_THREADS + LINES * PLACE);
    work.sums = allocate(MAX_THREADS);
    work.signal = allocate(LINES * PLACE);
    return work;
}

inline void check_sizes(const std::vector<Row> &rows) {
    for (const Row &row : rows) {
        if (row.bytes > WINDOW || row.blocks > MAX_BLOCKS || row.blocks * row.threads > MAX_THREADS) {
            fail("a row of the plan is too large: " + row.bench);
        }
    }
}

__device__ inline uint64_t now_ns() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns)::"memory");
    return ns;
}

__device__ inline uint64_t index() { return blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; }

struct Span {
    uint64_t *spans;
    uint64_t begin;
    __device__ explicit Span(const Work &work) : spans(work.spans) {
        __syncthreads();
        begin = now_ns();
    }
    __device__ void end() const {
        __syncthreads();
        if (threadIdx.x == 0) {
            spans[2 * blockIdx.x] = begin;
            spans[2 * blockIdx.x + 1] = now_ns();
        }
    }
};

__device__ __host__ inline uint64_t pattern(uint64_t seed, uint64_t i) {
    const uint64_t x = ((seed << 40 ^ i) + 1) * 0x9e3779b97f4a7c15ull;
    return (x ^ x >> 29) * 0xbf58476d1ce4e5b9ull;
}

// A block's part of a message, in units of 16 bytes.
__device__ inline void part(uint64_t len, uint64_t *start, uint64_t *count) {
    const uint64_t pieces = (len + 1) / 2, id = blockIdx.x, blocks = gridDim.x;
    const uint64_t from = 2 * (pieces * id / blocks), to = 2 * (pieces * (id + 1) / blocks);
    *start = from < len ? from : len;
    *count = (to < len ? to : len) - *start;
}

// Calls `op(dst, src, words)` for this block's part of each message. `quiet` completes what the block has started.
template <typename Op, typename Quiet>
__device__ void transfer(const Work &work, Op op, Quiet quiet) {
    uint64_t start, count;
    part(work.len, &start, &count);
    const Span span(work);
    for (uint64_t round = 0, place = 0; round < work.rounds; round++) {
        const uint64_t at = place * work.len + start;
        op(work.dst + at, work.src + at, count);
        if (work.each) quiet();
        place = place + 1 == work.places ? 0 : place + 1;
    }
    quiet();
    span.end();
}

template <typename Op>
__device__ void fetches(const Work &work, Op op) {
    uint64_t *word = work.words + index(), sum = 0;
    const Span span(work);
    for (uint64_t round = 0; round < work.rounds; round++) sum += op(word);
    span.end();
    work.sums[index()] = sum;
}

// Measures calls of `op` after a warm-up call.
template <typename Op>
__device__ void collective(const Work &work, Op op) {
    Span span(work);
    for (uint64_t round = 0; round <= work.rounds; round++) {
        op();
        if (round == 0) span.begin = now_ns();
    }
    span.end();
}

__global__ static void fill(uint64_t *data, uint64_t len, uint64_t seed) {
    for (uint64_t i = index(); i < len; i += gridDim.x * uint64_t(blockDim.x)) data[i] = pattern(seed, i);
}

__global__ static void check(const uint64_t *data, uint64_t len, uint64_t seed, unsigned long long *wrong) {
    for (uint64_t i = index(); i < len; i += gridDim.x * uint64_t(blockDim.x)) {
        if (data[i] != pattern(seed, i)) atomicAdd(wrong, 1ull);
    }
}

// A library's kernels. Their first argument is the Work. PE 0 is the initiator and PE 1 the target.
struct Kernels {
    const void *put, *get, *p, *g, *add, *fetch_add, *compare_swap, *ping_pong, *put_signal_ping_pong, *meet, *meet_checked;
};

// Measures rows on one PE.
class Bed {
  public:
    Bed(int me, const Work &all, const Kernels &kernels) : me(me), all(all), kernels(kernels) {
        CUDA(cudaMalloc(&wrong, sizeof(*wrong)));
        CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    virtual ~Bed() = default;

    // Returns false if this program lacks the benchmark.
    bool measure(Row &row) {
        for (uint64_t run = 0; run <= row.runs; run++) {
            double ns = 0;
            const uint64_t launches = on_words(row) ? LINES : 1;
            for (uint64_t launch = run * launches; launch < (run + 1) * launches; launch++) {
                double time = 0;
                if (!once(row, launch, &time)) return false;
                ns += time / double(launches);
            }
            if (run == 0) continue;
            const double rounds = double(row.rounds);
            if (row.bench == "put_bw" || row.bench == "get_bw") {
                row.values.push_back(double(row.bytes) * rounds / ns);
            } else if (row.is_rate()) {
                row.values.push_back(double(row.blocks * row.threads) * rounds / ns * 1e3);
            } else {
                row.values.push_back(ns / rounds / 1e3);
            }
        }
        return true;
    }

  protected:
    const int me;
    const Work all;
    Kernels kernels;
    unsigned long long *wrong = nullptr;
    cudaStream_t stream = nullptr;

    // Runs a kernel on this PE; a collective one runs on all PEs at the same time.
    virtual void launch(const void *kernel, const Row &row, Work work, bool is_collective) = 0;
    // Waits on the host for all PEs.
    virtual void sync_pes() = 0;
    // Runs a benchmark that only some libraries have. Returns false for others.
    virtual bool special(const Row &, uint64_t, const Work &, double *) { return false; }

    void fill_with(uint64_t *data, uint64_t len, uint64_t seed) { fill<<<132, 256, 0, stream>>>(data, len, seed); }

    // Runs a kernel on PE 0 or, if it is collective, on all. Returns the nanoseconds from the start of the first block to
    // the end of the last.
    double timed(const Row &row, const void *kernel, const Work &work, bool is_collective) {
        CUDA(cudaStreamSynchronize(stream));
        sync_pes();
        if (is_collective || me == 0) launch(kernel, row, work, is_collective);
        CUDA(cudaStreamSynchronize(stream));
        sync_pes();
        std::vector<uint64_t> spans(2 * row.blocks);
        CUDA(cudaMemcpy(spans.data(), work.spans, 8 * spans.size(), cudaMemcpyDeviceToHost));
        uint64_t begin = UINT64_MAX, end = 0;
        for (uint64_t block = 0; block < row.blocks; block++) {
            begin = std::min(begin, spans[2 * block]);
            end = std::max(end, spans[2 * block + 1]);
        }
        return end > begin ? double(end - begin) : 1.0;
    }

    void verify(const Row &row, const uint64_t *data, uint64_t len, uint64_t seed) {
        CUDA(cudaMemsetAsync(wrong, 0, sizeof(*wrong), stream));
        check<<<132, 256, 0, stream>>>(data, len, seed, wrong);
        expect_none(row);
    }

    // Exits if a kernel has counted wrong elements.
    void expect_none(const Row &row) {
        unsigned long long found = 0;
        CUDA(cudaMemcpyAsync(&found, wrong, sizeof(found), cudaMemcpyDeviceToHost, stream));
        CUDA(cudaStreamSynchronize(stream));
        if (found != 0) fail(row.bench + ": " + std::to_string(found) + " words are wrong");
    }

  private:
    static constexpr uint64_t CHECKED = 10;

    // Whether the row measures single words. Each run then visits all lines.
    static bool on_words(const Row &row) {
        for (const char *name : {"p_quiet", "g", "fetch_add", "compare_swap", "signal"}) {
            if (row.bench == name) return true;
        }
        return row.is_rate();
    }

    bool once(const Row &row, uint64_t run, double *ns) {
        Work work = all;
        work.words += run % LINES * PLACE;
        work.signal += run % LINES * PLACE;
        work.len = row.bytes / 8;
        work.rounds = row.rounds;
        work.places = std::max<uint64_t>(1, std::min(WINDOW / row.bytes, row.rounds));
        const std::string &bench = row.bench;
        if (bench == "put_bw" || bench == "put_quiet" || bench == "get_bw") {
            *ns = transfers(row, run, work);
        } else if (bench == "signal" || bench == "put_signal") {
            *ns = signals(row, run, work);
        } else if (bench == "barrier_all" || bench == "sync_all") {
            *ns = barriers(row, work);
        } else {
            return on_word(row, run, work, ns) || special(row, run, work, ns);
        }
        return true;
    }

    // Seed of the data that `pe` sends.
    static uint64_t seed(uint64_t run, int pe) { return 2 * run + 1 + uint64_t(pe); }

    double transfers(const Row &row, uint64_t run, Work work) {
        const bool gets = row.bench == "get_bw";
        work.each = row.bench == "put_quiet";
        fill_with(work.src, work.places * work.len, seed(run, me));
        const double ns = timed(row, gets ? kernels.get : kernels.put, work, false);
        if (me == (gets ? 0 : 1)) verify(row, work.dst, work.places * work.len, seed(run, gets ? 1 : 0));
        return ns;
    }

    double signals(const Row &row, uint64_t run, const Work &work) {
        const bool puts = row.bench == "put_signal";
        zero(work.signal, 1);
        if (puts) fill_with(work.src, work.len, seed(run, me));
        const double ns = timed(row, puts ? kernels.put_signal_ping_pong : kernels.ping_pong, work, true);
        if (me < 2) {
            expect(row, work.signal, 1, [&](uint64_t) { return row.rounds; });
            if (puts) verify(row, work.dst, work.len, seed(run, 1 - me));
        }
        return ns;
    }

    double barriers(const Row &row, Work work) {
        work.complete = row.bench == "barrier_all";
        zero(work.words, 1);
        zero(work.sums, 1);
        Work checked = work;
        checked.rounds = CHECKED;
        timed(row, kernels.meet_checked, checked, true);
        expect(row, work.sums, 1, [](uint64_t) { return 0; });
        return timed(row, kernels.meet, work, true);
    }

    // Returns false if the row is none of these.
    bool on_word(const Row &row, uint64_t run, Work work, double *ns) {
        const std::string &bench = row.bench;
        const uint64_t n = row.blocks * row.threads, rounds = row.rounds;
        if (bench == "p_quiet" || bench == "p_rate") {
            work.each = bench == "p_quiet";
            work.value = (run + 1) << 32;
            *ns = timed(row, kernels.p, work, false);
            if (me == 1) expect(row, work.words, n, [&](uint64_t) { return work.value + rounds - 1; });
        } else if (bench == "g" || bench == "g_rate") {
            fill_with(work.words, n, run);
            *ns = timed(row, kernels.g, work, false);
            if (me == 0) expect(row, work.sums, n, [&](uint64_t i) { return pattern(run, i) * rounds; });
        } else if (bench == "add_rate") {
            zero(work.words, n);
            *ns = timed(row, kernels.add, work, false);
            if (me == 1) expect(row, work.words, n, [&](uint64_t) { return rounds; });
        } else if (bench == "fetch_add" || bench == "fetch_add_rate" || bench == "compare_swap") {
            zero(work.words, n);
            *ns = timed(row, bench == "compare_swap" ? kernels.compare_swap : kernels.fetch_add, work, false);
            if (me == 1) expect(row, work.words, n, [&](uint64_t) { return rounds; });
            if (me == 0) expect(row, work.sums, n, [&](uint64_t) { return rounds * (rounds - 1) / 2; });
        } else {
            return false;
        }
        return true;
    }

    void zero(uint64_t *words, uint64_t n) { CUDA(cudaMemsetAsync(words, 0, 8 * n, stream)); }

    template <typename Wanted>
    void expect(const Row &row, const uint64_t *words, uint64_t n, Wanted wanted) {
        std::vector<uint64_t> found(n);
        CUDA(cudaMemcpy(found.data(), words, 8 * n, cudaMemcpyDeviceToHost));
        for (uint64_t i = 0; i < n; i++) {
            if (found[i] != wanted(i)) fail(row.bench + ": word " + std::to_string(i) + " is wrong");
        }
    }
};
