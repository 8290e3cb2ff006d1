// Reductions on a stream, on the host and in a kernel, and the other collective calls.
#include <stdio.h>

#include <nvshmem.h>
#include <nvshmemx.h>

constexpr int N = 1024;

__global__ void fill(float *values, int me) {
  for (int i = threadIdx.x; i < N; i += blockDim.x) {
    values[i] = me * N + i;
  }
}

__global__ void reduce(nvshmem_team_t team, float *sums, unsigned *bits) {
  nvshmemx_float_sum_reduce_block(team, sums, sums, N);
  nvshmemx_uint_or_reduce_warp(NVSHMEM_TEAM_WORLD, bits + 1, bits, 1);
  nvshmemx_barrier_all_block();
}

template <class T> T read(const T *from) {
  T value;
  cudaMemcpy(&value, from, sizeof(T), cudaMemcpyDeviceToHost);
  return value;
}

int main() {
  nvshmem_init();
  const int me = nvshmem_my_pe(), n = nvshmem_n_pes();
  int wrong = 0;
  float *values = (float *)nvshmem_malloc(N * sizeof(float)), *sums = (float *)nvshmem_malloc(N * sizeof(float));
  float *all = (float *)nvshmem_calloc(n * N, sizeof(float));
  unsigned *bits = (unsigned *)nvshmem_align(64, 2 * sizeof(unsigned));

  // On the default stream, after the kernel that produces the values.
  fill<<<1, 256>>>(values, me);
  nvshmemx_float_sum_reduce_on_stream(NVSHMEM_TEAM_WORLD, sums, values, N, 0);
  cudaDeviceSynchronize();
  const float sum_of_first = N * (n * (n - 1) / 2);
  wrong += read(sums) != sum_of_first || read(sums + N - 1) != sum_of_first + n * (N - 1);

  nvshmem_float_max_reduce(NVSHMEM_TEAM_WORLD, sums, values, N);
  wrong += read(sums + 1) != (n - 1) * N + 1;

  nvshmem_team_t team;
  nvshmem_team_split_strided(NVSHMEM_TEAM_WORLD, 0, 1, n, nullptr, 0, &team);
  wrong += nvshmem_team_n_pes(team) != n || nvshmem_team_my_pe(team) != me;
  wrong += nvshmem_team_n_pes(NVSHMEMX_TEAM_NODE) != n;
  const unsigned bit = 1u << me;
  cudaMemcpy(bits, &bit, sizeof bit, cudaMemcpyHostToDevice);
  reduce<<<1, 32>>>(team, sums, bits);
  cudaDeviceSynchronize();
  wrong += read(sums + 1) != n * ((n - 1) * N + 1) || read(bits + 1) != (1u << n) - 1;

  nvshmem_float_fcollect(team, all, values, N);
  wrong += read(all + (n - 1) * N + 2) != (n - 1) * N + 2;
  nvshmemx_float_broadcast_on_stream(team, sums, values, N, n - 1, 0);
  cudaStreamSynchronize(0);
  wrong += read(sums + 3) != (n - 1) * N + 3;
  nvshmem_team_destroy(team);

  printf("%s reduce: PE %d, %d wrong results\n", wrong ? "FAIL" : "PASS", me, wrong);
  nvshmem_free(bits);
  nvshmem_free(all);
  nvshmem_free(sums);
  nvshmem_free(values);
  nvshmem_finalize();
  return wrong != 0;
}
