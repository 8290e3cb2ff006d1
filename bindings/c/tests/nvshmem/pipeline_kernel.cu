#include "pipeline.h"

#include <nvshmem.h>
#include <nvshmemx.h>

// Waits for each chunk, adds 1 to its values and passes it on. PE 0 starts.
__global__ void forward(float *data, uint64_t *arrived) {
  const int me = nvshmem_my_pe(), next = me + 1;
  for (int chunk = 0; chunk < CHUNKS; chunk++) {
    if (me > 0) {
      if (threadIdx.x == 0) {
        nvshmem_signal_wait_until(arrived, NVSHMEM_CMP_GE, chunk + 1);
      }
      __syncthreads();
    }
    float *values = data + chunk * CHUNK;
    for (int i = threadIdx.x; i < CHUNK; i += blockDim.x) {
      values[i] += 1;
    }
    if (next < nvshmem_n_pes()) {
      nvshmemx_float_put_signal_nbi_block(values, values, CHUNK, arrived, 1, NVSHMEM_SIGNAL_ADD, next);
    }
  }
  if (threadIdx.x == 0) {
    nvshmem_quiet();
  }
}
