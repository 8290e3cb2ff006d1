// Code shared by the measurements of bounds.cu: errors, memory accesses by PTX, and the lines of the report.

#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include <cuda_runtime.h>

#define CHECK(call)                                                                                      \
    do {                                                                                                 \
        cudaError_t error = (call);                                                                      \
        if (error != cudaSuccess) {                                                                      \
            fprintf(stderr, "bounds: %s: %s\n", #call, cudaGetErrorString(error));                       \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

using u64 = unsigned long long;

__device__ inline u64 now_ns() {
    u64 ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    return ns;
}

__device__ inline void fence_sys() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
__device__ inline void release_sys() { asm volatile("fence.release.sys;" ::: "memory"); }
__device__ inline void release_gpu() { asm volatile("fence.release.gpu;" ::: "memory"); }
__device__ inline void acquire_sys() { asm volatile("fence.acquire.sys;" ::: "memory"); }
__device__ inline void store(u64 *p, u64 v) { asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(p), "l"(v) : "memory"); }
__device__ inline u64 load(const u64 *p) {
    u64 v;
    asm volatile("ld.relaxed.sys.global.b64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}

inline void *device_memory(int device, size_t bytes) {
    void *p;
    CHECK(cudaSetDevice(device));
    CHECK(cudaMalloc(&p, bytes));
    CHECK(cudaMemset(p, 0, bytes));
    return p;
}

inline void say(const char *what, double value, const char *unit) {
    if (value < 0) {
        printf("%-92s  did not end\n", what);
    } else {
        printf("%-92s %8.3g %s\n", what, value, unit);
    }
}
