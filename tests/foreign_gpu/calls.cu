// One call of each kind of NVSHMEM between two PEs on one GPU, by one warp. Each verifies its result.
//
//     calls plain      puts, gets, signals, adds without a result: all that the transport ibrc has without GDRCopy
//     calls atomics    also atomics with a result
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "job.cuh"

namespace {

constexpr unsigned LIMIT_SECONDS = 40;
constexpr uint64_t WORDS = 1 << 17;  // of a large message: 1 MiB
constexpr uint64_t SMALL = 32;       // words of a small one
constexpr uint64_t EACH = 16;        // small messages of a thread
constexpr uint64_t PUTS = 20;        // large messages of a row

__host__ __device__ uint64_t pattern(uint64_t seed, uint64_t i) { return (seed << 32 ^ i) * 0x9e3779b97f4a7c15ull; }

__global__ void put_large(uint64_t *to, const uint64_t *from, int peer, uint64_t count) {
    if (threadIdx.x != 0) return;
    for (uint64_t i = 0; i < count; i++) nvshmem_uint64_put_nbi(to, from, WORDS, peer);
    nvshmem_quiet();
}

__global__ void put_small(uint64_t *to, const uint64_t *from, int peer) {
    for (uint64_t i = 0; i < EACH; i++) {
        const uint64_t at = (i * 32 + threadIdx.x) * SMALL;
        nvshmem_uint64_put_nbi(to + at, from + at, SMALL, peer);
    }
    __syncwarp();
    if (threadIdx.x == 0) nvshmem_quiet();
}

__global__ void get_large(uint64_t *to, const uint64_t *from, int peer) {
    if (threadIdx.x == 0) nvshmem_uint64_get(to, from, WORDS, peer);
}

// Waits for the signal of the peer's put, and checks the data immediately.
__global__ void put_signal(uint64_t *to, const uint64_t *from, uint64_t *signal, int op, int peer, uint64_t seed,
                           unsigned long long *wrong) {
    if (threadIdx.x == 0) {
        nvshmem_uint64_put_signal_nbi(to, from, WORDS, signal, 1, op, peer);
        nvshmem_signal_wait_until(signal, NVSHMEM_CMP_GE, 1);
    }
    __syncwarp();
    for (uint64_t i = threadIdx.x; i < WORDS; i += 32) {
        if (reinterpret_cast<volatile uint64_t *>(to)[i] != pattern(seed, i)) atomicAdd(wrong, 1ull);
    }
    if (threadIdx.x == 0) nvshmem_quiet();
}

__global__ void add(uint64_t *to, int peer) {
    nvshmem_uint64_atomic_add(to, threadIdx.x + 1, peer);
    __syncwarp();
    if (threadIdx.x == 0) nvshmem_quiet();
}

// Old values seen by lane 0: of a fetch-and-add, of a compare-and-swap that swaps, and of one that does not.
__global__ void fetch(uint64_t *to, int peer, uint64_t *old) {
    if (threadIdx.x != 0) return;
    old[0] = nvshmem_uint64_atomic_fetch_add(to, 5, peer);
    old[1] = nvshmem_uint64_atomic_compare_swap(to, 5, 7, peer);
    old[2] = nvshmem_uint64_atomic_compare_swap(to, 5, 9, peer);
    nvshmem_uint64_atomic_xor(to, 0x70, peer);
    nvshmem_quiet();
}

struct Pe {
    int me, peer;
    uint64_t *from = symmetric<uint64_t>(WORDS), *to = symmetric<uint64_t>(WORDS), *word = symmetric<uint64_t>(1);
    std::string times;

    // Fills this PE's words, clears the rest, and runs a kernel on both PEs.
    template <typename Launch>
    void step(const char *what, uint64_t seed, Launch launch) {
        std::vector<uint64_t> words(WORDS);
        for (uint64_t i = 0; i < WORDS; i++) words[i] = pattern(seed + me, i);
        CUDA(cudaMemcpy(from, words.data(), 8 * WORDS, cudaMemcpyDefault));
        CUDA(cudaMemset(to, 0, 8 * WORDS));
        CUDA(cudaMemset(word, 0, 8));
        CUDA(cudaDeviceSynchronize());
        nvshmem_barrier_all();
        const auto start = std::chrono::steady_clock::now();
        launch();
        CUDA(cudaGetLastError());
        CUDA(cudaDeviceSynchronize());
        nvshmem_barrier_all();
        const double ms = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() * 1e3;
        char text[100];
        std::snprintf(text, sizeof(text), "%s %.1f ms", what, ms);
        if (me == 0) std::printf("step %s\n", text), std::fflush(stdout);
        times += (times.empty() ? "" : ", ") + std::string(text);
    }

    std::vector<uint64_t> found(const uint64_t *at, uint64_t count) {
        std::vector<uint64_t> words(count);
        CUDA(cudaMemcpy(words.data(), at, 8 * count, cudaMemcpyDefault));
        return words;
    }

    void verify(const char *what, uint64_t seed, uint64_t count) {
        const std::vector<uint64_t> words = found(to, count);
        for (uint64_t i = 0; i < count; i++) {
            if (words[i] != pattern(seed, i)) fail(std::string(what) + ": word " + std::to_string(i) + " is wrong");
        }
    }
};

void run(int me, bool atomics) {
    Pe pe{me, 1 - me};
    unsigned long long *wrong;
    uint64_t *old;
    CUDA(cudaMalloc(&wrong, sizeof(*wrong)));
    CUDA(cudaMemset(wrong, 0, sizeof(*wrong)));
    CUDA(cudaMalloc(&old, 3 * sizeof(*old)));

    pe.step("put 1 MiB", 10, [&] { put_large<<<1, 32>>>(pe.to, pe.from, pe.peer, 1); });
    pe.verify("put 1 MiB", 10 + pe.peer, WORDS);
    pe.step("20 puts of 1 MiB", 20, [&] { put_large<<<1, 32>>>(pe.to, pe.from, pe.peer, PUTS); });
    pe.verify("20 puts of 1 MiB", 20 + pe.peer, WORDS);
    pe.step("512 puts of 256 B", 30, [&] { put_small<<<1, 32>>>(pe.to, pe.from, pe.peer); });
    pe.verify("512 puts of 256 B", 30 + pe.peer, 32 * EACH * SMALL);
    pe.step("get 1 MiB", 40, [&] { get_large<<<1, 32>>>(pe.to, pe.from, pe.peer); });
    pe.verify("get 1 MiB", 40 + pe.peer, WORDS);
    for (const int op : {NVSHMEM_SIGNAL_SET, NVSHMEM_SIGNAL_ADD}) {
        const uint64_t seed = 50 + 10 * (op == NVSHMEM_SIGNAL_ADD);
        pe.step(op == NVSHMEM_SIGNAL_ADD ? "put with added signal" : "put with set signal", seed,
                [&] { put_signal<<<1, 32>>>(pe.to, pe.from, pe.word, op, pe.peer, seed + pe.peer, wrong); });
        unsigned long long count = 0;
        CUDA(cudaMemcpy(&count, wrong, sizeof(count), cudaMemcpyDefault));
        if (count != 0) fail("put with signal: " + std::to_string(count) + " words came after the signal");
    }
    pe.step("32 adds", 70, [&] { add<<<1, 32>>>(pe.word, pe.peer); });
    if (pe.found(pe.word, 1)[0] != 32 * 33 / 2) fail("the sum of the adds is wrong");
    if (atomics) {
        pe.step("atomics with results", 80, [&] {
            fetch<<<1, 32>>>(pe.word, pe.peer, old);
        });
        const std::vector<uint64_t> values = pe.found(old, 3);
        if (values != std::vector<uint64_t>{0, 5, 7}) fail("an old value is wrong");
        if (pe.found(pe.word, 1)[0] != (7 ^ 0x70)) fail("the word after the atomics is wrong");
    }
    nvshmem_barrier_all();
    if (me == 0) std::printf("PASS calls: %s\n", pe.times.c_str());
}

}  // namespace

int main(int count, char **words) {
    const bool atomics = count == 2 && std::strcmp(words[1], "atomics") == 0;
    if (!atomics && !(count == 2 && std::strcmp(words[1], "plain") == 0)) {
        std::fprintf(stderr, "usage: calls plain | calls atomics\n");
        return 2;
    }
    setenv("NVSHMEM_SYMMETRIC_SIZE", "512M", 0);
    return run_job(2, LIMIT_SECONDS, [&](int me) { run(me, atomics); });
}
