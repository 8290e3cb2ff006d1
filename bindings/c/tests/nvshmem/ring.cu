// Each PE puts its number to the next one from a kernel.
#include <stdio.h>

#include <nvshmem.h>
#include <nvshmemx.h>

__global__ void shift(int *inbox) {
  int me = nvshmem_my_pe(), n = nvshmem_n_pes();
  nvshmem_int_p(inbox, me, (me + 1) % n);
}

int main() {
  nvshmem_init();
  int me = nvshmem_my_pe(), n = nvshmem_n_pes(), received = -1;
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  int *inbox = (int *)nvshmem_malloc(sizeof(int));
  shift<<<1, 1, 0, stream>>>(inbox);
  nvshmemx_barrier_all_on_stream(stream);
  cudaMemcpyAsync(&received, inbox, sizeof(int), cudaMemcpyDeviceToHost, stream);
  cudaStreamSynchronize(stream);
  printf("%s ring: PE %d received %d\n", received == (me + n - 1) % n ? "PASS" : "FAIL", me, received);
  nvshmem_free(inbox);
  nvshmem_finalize();
  return received != (me + n - 1) % n;
}
