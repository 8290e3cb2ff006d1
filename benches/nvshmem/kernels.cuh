// The kernels of benches/kernels on NVSHMEM's public device interface, with the same work and the same clock.
#pragma once

#include <nvshmem.h>
#include <nvshmemx.h>

#include "../rma.cuh"

namespace {

// Completes what the threads of the block have started.
__device__ void quiet_block() {
    __syncthreads();
    if (threadIdx.x == 0) nvshmem_quiet();
    __syncthreads();
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

__global__ void put(Work work) {
    transfer(work, [](uint64_t *dst, uint64_t *src, uint64_t words) { nvshmemx_putmem_nbi_block(dst, src, 8 * words, 1); },
             quiet_block);
}

__global__ void get(Work work) {
    transfer(work, [](uint64_t *dst, uint64_t *src, uint64_t words) { nvshmemx_getmem_nbi_block(dst, src, 8 * words, 1); },
             quiet_block);
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
