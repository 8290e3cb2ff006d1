// Atomics, waits, gets and pointers to peers.
#include <stdio.h>

#include <nvshmem.h>
#include <nvshmemx.h>

// PE 0 has the counters. Every PE adds to them from all threads of a block.
__global__ void count(int *counters, uint64_t *done, int *failures) {
  const int me = nvshmem_my_pe(), n = nvshmem_n_pes(), all = n * blockDim.x;
  const int before = nvshmem_int_atomic_fetch_add(counters, 2, 0);
  if (before < 0 || before >= 2 * all || before % 2) {
    atomicAdd(failures, 1);
  }
  nvshmem_int_atomic_inc(counters + 1, 0);
  nvshmem_uint_atomic_or((unsigned *)counters + 2, 1u << me, 0);
  if (threadIdx.x == 0) {
    nvshmem_int_atomic_compare_swap(counters + 3, 0, me + 1, 0);
  }
  nvshmem_quiet();
  __syncthreads();
  if (threadIdx.x == 0) {
    nvshmemx_signal_op(done, 1, NVSHMEM_SIGNAL_ADD, 0);
    if (me == 0) {
      nvshmem_uint64_wait_until(done, NVSHMEM_CMP_EQ, n);
      const int winner = nvshmem_int_atomic_fetch(counters + 3, 0);
      const unsigned bits = nvshmem_uint_g((unsigned *)counters + 2, 0);
      if (winner < 1 || winner > n || bits != (1u << n) - 1) {
        atomicAdd(failures, 1);
      }
    }
  }
  nvshmemx_barrier_all_block();
  // PE 0's counters, by a get of each PE.
  nvshmemx_int_get_block(counters + 4, counters, 2, 0);
  if (threadIdx.x == 0) {
    const int *mapped = (const int *)nvshmem_ptr(counters, 0);
    if (counters[4] != 2 * all || counters[5] != all || (mapped && mapped[1] != all)) {
      atomicAdd(failures, 1);
    }
  }
}

int main() {
  nvshmem_init();
  const int me = nvshmem_my_pe();
  int *counters = (int *)nvshmem_calloc(6, sizeof(int)), *failures, failed = -1;
  uint64_t *done = (uint64_t *)nvshmem_calloc(1, sizeof(uint64_t));
  cudaMalloc(&failures, sizeof(int));
  cudaMemset(failures, 0, sizeof(int));
  nvshmem_barrier_all();
  count<<<1, 64>>>(counters, done, failures);
  cudaMemcpy(&failed, failures, sizeof(int), cudaMemcpyDeviceToHost);
  nvshmem_barrier_all();
  printf("%s atomics: PE %d, %d failures\n", failed ? "FAIL" : "PASS", me, failed);
  cudaFree(failures);
  nvshmem_free(done);
  nvshmem_free(counters);
  nvshmem_finalize();
  return failed != 0;
}
