// Counts in how many writes a 64-byte entry reaches host memory, as on its way to a BlueFlame register.
//
// The GPU stores entries, and the CPU polls their line with 64-byte loads. A load that sees part of an entry proves
// that the entry arrived in several writes. The GPU stores the next entry after the CPU has seen the whole of this one.

#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include <immintrin.h>

#include <cuda_runtime.h>

namespace entries {

constexpr uint32_t COUNT = 100000;
constexpr unsigned long long PATIENCE_NS = 4000000000ull;

enum Way { ONE_THREAD, FOUR_LANES, EIGHT_DOORBELLS, BULK, WAYS };

// Stores a quarter of an entry.
__device__ inline void store(uint4 *at, uint32_t i) {
    asm volatile("st.volatile.global.v4.b32 [%0], {%1, %1, %1, %1};" ::"l"(at), "r"(i) : "memory");
}

__device__ inline void store_by_thread(uint4 *line, uint32_t i) {
    for (int k = 0; k < 4; k++) store(line + k, i);
}

__device__ inline void ring(unsigned long long *doorbell, unsigned long long value) {
    asm volatile("st.mmio.relaxed.sys.global.b64 [%0], %1;" ::"l"(doorbell), "l"(value) : "memory");
}

// The bulk copy engine can only copy from shared memory.
__device__ inline void copy_in_bulk(uint4 *line, uint4 *shared, uint32_t i) {
    for (int k = 0; k < 4; k++) shared[k] = make_uint4(i, i, i, i);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 64;" ::"l"(line),
                 "r"(uint32_t(__cvta_generic_to_shared(shared))) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

__global__ void send(Way way, uint4 *line, volatile uint32_t *seen) {
    __shared__ alignas(128) uint4 entry[4];
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin)::"memory");
    const uint32_t lane = threadIdx.x;
    for (uint32_t i = 1; i <= COUNT; i++) {
        if (way == ONE_THREAD && lane == 0) store_by_thread(line, i);
        if (way == FOUR_LANES && lane < 4) store(line + lane, i);
        if (way == EIGHT_DOORBELLS && lane < 8) {
            ring(reinterpret_cast<unsigned long long *>(line) + lane, (unsigned long long)i << 32 | i);
        }
        if (way == BULK && lane == 0) copy_in_bulk(line, entry, i);
        __threadfence_system();
        bool late = false;
        while (lane == 0 && *seen < i && !late) {
            asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
            late = now - begin > PATIENCE_NS;
        }
        if (__any_sync(~0u, late)) return;
    }
}

// Returns a bit mask of the words of the line that hold `i`. A single load reads the whole line.
__attribute__((target("avx512f"))) inline uint32_t words_with(const void *line, uint32_t i) {
    __m512i words;
    asm volatile("vmovdqa64 (%1), %0" : "=v"(words) : "r"(line) : "memory");
    return _mm512_cmpeq_epi32_mask(words, _mm512_set1_epi32(int(i)));
}

// Prints how many entries were seen in part, for each way to store them.
inline void count_parts() {
    if (!__builtin_cpu_supports("avx512f")) {
        printf("entries in parts: not measured, because this processor has no loads of 64 bytes\n");
        return;
    }
    constexpr uint32_t WHOLE = 0xffff;
    const char *ways[WAYS] = {"four stores of a thread", "one store of four lanes", "one doorbell store of eight lanes",
                              "the bulk copy engine"};
    char *line, *seen;
    cudaHostAlloc(&line, 4096, cudaHostAllocMapped);
    cudaHostAlloc(&seen, 4096, cudaHostAllocMapped);
    auto *answer = reinterpret_cast<volatile uint32_t *>(seen);
    for (int way = 0; way < WAYS; way++) {
        memset(line, 0, 64);
        *answer = 0;
        send<<<1, 32>>>(Way(way), reinterpret_cast<uint4 *>(line), answer);
        uint32_t in_parts = 0, looks = 0, i = 1;
        while (i <= COUNT) {
            bool came_whole = true;
            uint32_t found;
            while ((found = words_with(line, i)) != WHOLE) {
                came_whole &= found == 0;
                if (found == 0 && ++looks % 4096 == 0 && cudaStreamQuery(nullptr) != cudaErrorNotReady) break;
            }
            if (words_with(line, i) != WHOLE) break;
            in_parts += !came_whole;
            *answer = i++;
        }
        const cudaError_t error = cudaDeviceSynchronize();
        if (error != cudaSuccess || i <= COUNT) {
            printf("entries of 64 bytes to the host by %s: did not end (%s)\n", ways[way], cudaGetErrorString(error));
            continue;
        }
        printf("%-92s %8u of %u\n", ("entries of 64 bytes that the host sees in parts, by " + std::string(ways[way])).c_str(),
               in_parts, COUNT);
    }
}

}  // namespace entries
