// The kernels of benches/kernels on NVSHMEM's public device interface, with the same work and the same clock.
#pragma once

#include <cstdint>

#include <nvshmem.h>
#include <nvshmemx.h>

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

namespace {

__device__ uint64_t now_ns() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns)::"memory");
    return ns;
}

__device__ uint64_t index() { return blockIdx.x * uint64_t(blockDim.x) + threadIdx.x; }

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

// Completes what the threads of the block have started.
__device__ void quiet_block() {
    __syncthreads();
    if (threadIdx.x == 0) nvshmem_quiet();
    __syncthreads();
}

__device__ __host__ uint64_t pattern(uint64_t seed, uint64_t i) {
    const uint64_t x = ((seed << 40 ^ i) + 1) * 0x9e3779b97f4a7c15ull;
    return (x ^ x >> 29) * 0xbf58476d1ce4e5b9ull;
}

// A block's part of a message, in units of 16 bytes.
__device__ void part(uint64_t len, uint64_t *start, uint64_t *count) {
    const uint64_t pieces = (len + 1) / 2, id = blockIdx.x, blocks = gridDim.x;
    const uint64_t from = 2 * (pieces * id / blocks), to = 2 * (pieces * (id + 1) / blocks);
    *start = from < len ? from : len;
    *count = (to < len ? to : len) - *start;
}

template <typename Op>
__device__ void transfer(const Work &work, Op op) {
    uint64_t start, count;
    part(work.len, &start, &count);
    const Span span(work);
    for (uint64_t round = 0, place = 0; round < work.rounds; round++) {
        const uint64_t at = place * work.len + start;
        op(work.dst + at, work.src + at, 8 * count);
        if (work.each) quiet_block();
        place = place + 1 == work.places ? 0 : place + 1;
    }
    quiet_block();
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

// Stores the time between the calls of a stream.
__global__ void stamp(uint64_t *to) { *to = now_ns(); }

// Returns the term that a PE adds to element `i` of a sum. Terms are small whole numbers, so sums are exact.
__device__ float term(uint64_t pe, uint64_t run, uint64_t i) { return float(i % 97) + float(pe) * float(run + 1); }

__global__ void fill_terms(float *data, uint64_t len, uint64_t pe, uint64_t run) {
    for (uint64_t i = index(); i < len; i += gridDim.x * uint64_t(blockDim.x)) data[i] = term(pe, run, i);
}

// Counts the elements that differ from the sum of all PEs' terms, from element `first` on.
__global__ void check_sums(const float *data, uint64_t len, uint64_t first, uint64_t pes, uint64_t run,
                           unsigned long long *wrong) {
    unsigned long long n = 0;
    for (uint64_t i = index(); i < len; i += gridDim.x * uint64_t(blockDim.x)) {
        float sum = 0;
        for (uint64_t pe = 0; pe < pes; pe++) sum += term(pe, run, first + i);
        n += data[i] != sum;
    }
    if (n != 0) atomicAdd(wrong, n);
}

}  // namespace

__global__ void fill(uint64_t *data, uint64_t len, uint64_t seed) {
    for (uint64_t i = index(); i < len; i += gridDim.x * uint64_t(blockDim.x)) data[i] = pattern(seed, i);
}

__global__ void check(const uint64_t *data, uint64_t len, uint64_t seed, unsigned long long *wrong) {
    for (uint64_t i = index(); i < len; i += gridDim.x * uint64_t(blockDim.x)) {
        if (data[i] != pattern(seed, i)) atomicAdd(wrong, 1ull);
    }
}

__global__ void put(Work work) {
    transfer(work, [](uint64_t *dst, uint64_t *src, uint64_t bytes) {
        nvshmemx_putmem_nbi_block(dst, src, bytes, 1);
    });
}

__global__ void get(Work work) {
    transfer(work, [](uint64_t *dst, uint64_t *src, uint64_t bytes) {
        nvshmemx_getmem_nbi_block(dst, src, bytes, 1);
    });
}

__global__ void p(Work work) {
    uint64_t *word = work.words + index();
    const Span span(work);
    for (uint64_t round = 0; round < work.rounds; round++) {
        nvshmem_uint64_p(word, work.value + round, 1);
        if (work.each) nvshmem_quiet();
    }
    nvshmem_quiet();
    span.end();
}

__global__ void g(Work work) {
    fetches(work, [](uint64_t *word) { return nvshmem_uint64_g(word, 1); });
}

__global__ void add(Work work) {
    uint64_t *word = work.words + index();
    const Span span(work);
    for (uint64_t round = 0; round < work.rounds; round++) nvshmem_uint64_atomic_add(word, 1, 1);
    nvshmem_quiet();
    span.end();
}

// Each atomic waits for the previous one. The words stay small, so the shift adds 0.
__global__ void fetch_add(Work work) {
    uint64_t one = 1;
    fetches(work, [&](uint64_t *word) {
        const uint64_t old = nvshmem_uint64_atomic_fetch_add(word, one, 1);
        one += old >> 63;
        return old;
    });
}

__global__ void compare_swap(Work work) {
    uint64_t next = 0;
    fetches(work, [&](uint64_t *word) {
        const uint64_t found = nvshmem_uint64_atomic_compare_swap(word, next, next + 1, 1);
        next = found + 1;
        return found;
    });
}

__global__ void ping_pong(Work work) {
    nvshmemx_sync_all_block();
    const int me = nvshmem_my_pe(), peer = 1 - me;
    if (me > 1) return;
    const Span span(work);
    if (threadIdx.x == 0) {
        for (uint64_t now = 1; now <= work.rounds; now++) {
            if (me == 0) nvshmemx_signal_op(work.signal, 1, NVSHMEM_SIGNAL_ADD, peer);
            nvshmem_signal_wait_until(work.signal, NVSHMEM_CMP_GE, now);
            if (me == 1) nvshmemx_signal_op(work.signal, 1, NVSHMEM_SIGNAL_ADD, peer);
        }
    }
    span.end();
}

__global__ void put_signal_ping_pong(Work work) {
    nvshmemx_sync_all_block();
    const int me = nvshmem_my_pe(), peer = 1 - me;
    if (me > 1) return;
    const Span span(work);
    for (uint64_t now = 0; now < 2 * work.rounds; now++) {
        if ((now & 1) == uint64_t(me)) {
            nvshmemx_putmem_signal_nbi_block(work.dst, work.src, 8 * work.len, work.signal, 1, NVSHMEM_SIGNAL_ADD,
                                             peer);
        } else {
            if (threadIdx.x == 0) nvshmem_signal_wait_until(work.signal, NVSHMEM_CMP_GE, now / 2 + 1);
            __syncthreads();
        }
    }
    span.end();
    quiet_block();
}

template <typename Op>
__device__ void collective(const Work &work, Op op) {
    Span span(work);
    for (uint64_t round = 0; round <= work.rounds; round++) {
        op();
        if (round == 0) span.begin = now_ns();
    }
    span.end();
}

__global__ void meet(Work work) {
    if (work.complete) {
        collective(work, [] { nvshmemx_barrier_all_block(); });
    } else {
        collective(work, [] { nvshmemx_sync_all_block(); });
    }
}

__global__ void meet_checked(Work work) {
    const int next = (nvshmem_my_pe() + 1) % nvshmem_n_pes();
    Span span(work);
    for (uint64_t round = 0; round <= work.rounds; round++) {
        const bool tells = (round & 1) == 1 && threadIdx.x == 0;
        if (tells) {
            nvshmem_uint64_p(work.words, round, next);
            if (!work.complete) nvshmem_quiet();
        }
        if (work.complete) {
            nvshmemx_barrier_all_block();
        } else {
            nvshmemx_sync_all_block();
        }
        if (tells && *const_cast<volatile uint64_t *>(work.words) != round) work.sums[0]++;
    }
    span.end();
}

__global__ void broadcast(Work work) {
    collective(work, [&] { nvshmemx_uint64_broadcast_block(NVSHMEM_TEAM_WORLD, work.dst, work.src, work.len, 0); });
}

__global__ void fcollect(Work work) {
    collective(work, [&] { nvshmemx_fcollectmem_block(NVSHMEM_TEAM_WORLD, work.dst, work.src, 8 * work.len); });
}

__global__ void alltoall(Work work) {
    collective(work, [&] { nvshmemx_alltoallmem_block(NVSHMEM_TEAM_WORLD, work.dst, work.src, 8 * work.len); });
}

__global__ void sum(Work work) {
    float *dst = reinterpret_cast<float *>(work.dst);
    const float *src = reinterpret_cast<const float *>(work.src);
    collective(work, [&] { nvshmemx_float_sum_reduce_block(NVSHMEM_TEAM_WORLD, dst, src, 2 * work.len); });
}
