#include <stdio.h>

#include <nvshmem.h>
#include <nvshmemx.h>

#include "pipeline.h"

int main() {
  nvshmem_init();
  const int me = nvshmem_my_pe();
  float *data = (float *)nvshmem_calloc(CHUNKS * CHUNK, sizeof(float));
  uint64_t *arrived = (uint64_t *)nvshmem_calloc(1, sizeof(uint64_t));
  nvshmem_barrier_all();

  void *arguments[] = {&data, &arrived};
  nvshmemx_collective_launch((const void *)forward, 1, 256, arguments, 0, 0);
  nvshmemx_barrier_all_on_stream(0);
  cudaDeviceSynchronize();

  static float found[CHUNKS * CHUNK];
  cudaMemcpy(found, data, sizeof found, cudaMemcpyDeviceToHost);
  int wrong = 0;
  for (float value : found) {
    wrong += value != me + 1;
  }
  printf("%s pipeline: PE %d, %d wrong values\n", wrong ? "FAIL" : "PASS", me, wrong);
  nvshmem_free(arrived);
  nvshmem_free(data);
  nvshmem_finalize();
  return wrong != 0;
}
