// Heat that spreads on an insulated plate, in CUDA C++.
//
// Each PE owns a band of rows, with a halo row above and below it. One kernel computes all steps. In each, the blocks
// that compute the outermost rows put them into the halos of the neighbours, with a signal that counts steps. The
// neighbours wait for the signal before they read the halo. PE 0 compares the result with a serial computation.
//
//     make && rushmem run -n 2 ./stencil [HEIGHT WIDTH STEPS]
#include <algorithm>
#include <cmath>
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <rushmem_device.hpp>

// All blocks must run at the same time, also beside those of three more PEs that share the GPU.
constexpr int BLOCKS = 32, THREADS = 256;

// Largest difference to the serial result. Temperatures range from 0 to 1; the GPU rounds differently.
constexpr float TOLERANCE = 1e-4f;

// Signals that count the rows which have arrived in a halo.
enum { FROM_ABOVE, FROM_BELOW, SIGNALS };

// The plate, and the band of one PE. Row 0 of the band is the halo above, row `rows + 1` the halo below.
struct Plate {
  int height, width, me, pes;

  __host__ __device__ int first_of(int pe) const { return int(int64_t(height) * pe / pes); }
  __host__ __device__ int rows_of(int pe) const { return first_of(pe + 1) - first_of(pe); }
};

__host__ __device__ inline float relax(float here, float above, float below, float left, float right) {
  return here + 0.2f * ((above + below) + (left + right) - 4.0f * here);
}

// Computes a row from itself and the rows next to it, in columns `from`, `from + step`, and so on.
__host__ __device__ inline void relax_row(float *next, const float *above, const float *here, const float *below,
                                          int width, int from, int step) {
  for (int x = from; x < width; x += step) {
    next[x] = relax(here[x], above[x], below[x], here[x > 0 ? x - 1 : x], here[x + 1 < width ? x + 1 : x]);
  }
}

// Computes `steps` steps from the band in `even`. `arrived` has `SIGNALS` signals, which are 0 at first. `failed`
// is `steps` at first, and becomes the first step in which a call fails.
//
// Two buffers suffice: a neighbour overwrites a halo row of step `s` with that of step `s + 2`, for which it needs this
// PE's row of step `s + 1`, which is computed after step `s` has been read.
__global__ void spread(rushmem_ctx ctx, Plate plate, float *even, float *odd, uint64_t *arrived, int *failed,
                       int steps) {
  const int rows = plate.rows_of(plate.me), width = plate.width;
  const bool is_top = plate.me == 0, is_bottom = plate.me == plate.pes - 1;
  int32_t status = 0;
  for (int step = 0; step < steps; step++) {
    const float *old = step % 2 ? odd : even;
    float *next = step % 2 ? even : odd;
    for (int i = blockIdx.x; i < rows; i += gridDim.x) {
      // The outermost rows first, so that they travel while the others are computed.
      const int row = i == 0 ? 1 : i == 1 ? rows : i;
      const bool to_above = row == 1 && !is_top, to_below = row == rows && !is_bottom;
      if (to_above && !status) {
        status = rushmem::signal_wait_until(rushmem::block, ctx, arrived + FROM_ABOVE, RUSHMEM_CMP_GE, step);
      }
      if (to_below && !status) {
        status = rushmem::signal_wait_until(rushmem::block, ctx, arrived + FROM_BELOW, RUSHMEM_CMP_GE, step);
      }
      const float *here = old + size_t(row) * width;
      const float *above = row == 1 && is_top ? here : here - width;
      const float *below = row == rows && is_bottom ? here : here + width;
      float *result = next + size_t(row) * width;
      relax_row(result, above, here, below, width, threadIdx.x, blockDim.x);
      if (to_above && !status) {
        float *halo = next + size_t(plate.rows_of(plate.me - 1) + 1) * width;
        status = rushmem::put_signal_nbi(rushmem::block, ctx, halo, result, width, arrived + FROM_BELOW, 1,
                                         RUSHMEM_SIGNAL_ADD, plate.me - 1);
      }
      if (to_below && !status) {
        status = rushmem::put_signal_nbi(rushmem::block, ctx, next, result, width, arrived + FROM_ABOVE, 1,
                                         RUSHMEM_SIGNAL_ADD, plate.me + 1);
      }
    }
    if (status && threadIdx.x == 0) {
      atomicMin(failed, step);
    }
    // The next step reads rows of other blocks.
    cooperative_groups::this_grid().sync();
    // A block that is ahead may have failed in the next step already, which the others must not leave before.
    if (*reinterpret_cast<volatile int *>(failed) <= step) {
      return;
    }
  }
  rushmem::quiet(rushmem::block, ctx);
}

[[noreturn]] void fail(const char *what) {
  fprintf(stderr, "FAIL stencil: %s\n", what);
  exit(1);
}

void check(int32_t status) {
  if (status != RUSHMEM_STATUS_SUCCESS) {
    fail(rushmem_error_message());
  }
}

void check(cudaError_t error) {
  if (error != cudaSuccess) {
    fail(cudaGetErrorString(error));
  }
}

template <class T> T *symmetric(rushmem_pe *pe, size_t n) {
  void *memory;
  check(rushmem_malloc(pe, n * sizeof(T), 0, &memory));
  return static_cast<T *>(memory);
}

// The initial plate: a hot disc in the middle.
std::vector<float> initial(const Plate &plate) {
  std::vector<float> values(size_t(plate.height) * plate.width);
  for (int y = 0; y < plate.height; y++) {
    for (int x = 0; x < plate.width; x++) {
      const float dy = float(y) / plate.height - 0.5f, dx = float(x) / plate.width - 0.5f;
      values[size_t(y) * plate.width + x] = dy * dy + dx * dx < 0.1f ? 1.0f : 0.0f;
    }
  }
  return values;
}

std::vector<float> serial(const Plate &plate, int steps) {
  std::vector<float> old = initial(plate), next = old;
  for (int step = 0; step < steps; step++) {
    for (int y = 0; y < plate.height; y++) {
      auto row = [&](int of) { return old.data() + size_t(std::clamp(of, 0, plate.height - 1)) * plate.width; };
      relax_row(next.data() + size_t(y) * plate.width, row(y - 1), row(y), row(y + 1), plate.width, 0, 1);
    }
    std::swap(old, next);
  }
  return old;
}

// Launches the kernel, whose blocks wait for each other, and waits for it.
void launch(rushmem_pe *pe, Plate plate, float *even, float *odd, uint64_t *arrived, int steps) {
  int *failed;
  check(cudaMalloc(&failed, sizeof *failed));
  check(cudaMemcpy(failed, &steps, sizeof *failed, cudaMemcpyDefault));
  rushmem_ctx ctx;
  check(rushmem_context(pe, &ctx));

  void *arguments[] = {&ctx, &plate, &even, &odd, &arrived, &failed, &steps};
  check(cudaLaunchCooperativeKernel(spread, std::min(BLOCKS, plate.rows_of(plate.me)), THREADS, arguments, 0, nullptr));
  check(cudaDeviceSynchronize());
  check(rushmem_check(pe));
  check(cudaFree(failed));
}

int main(int count, char **arguments) {
  auto number = [&](int at, int otherwise) { return count > at ? atoi(arguments[at]) : otherwise; };
  const int steps = number(3, 1000);
  rushmem_pe *pe;
  check(rushmem_init(nullptr, &pe));
  const Plate plate = {number(1, 512), number(2, 512), rushmem_my_pe(pe), rushmem_n_pes(pe)};
  if (rushmem_gpu(pe) < 0) {
    fail("kernels in CUDA C++ need a GPU");
  }
  if (plate.height < plate.pes || plate.width < 1 || steps < 1) {
    fail("each PE needs at least one row");
  }
  check(cudaSetDevice(rushmem_gpu(pe)));

  // A symmetric object has the same size on all PEs, so it must fit the tallest band.
  const size_t row = plate.width, tallest = plate.height / plate.pes + 3;
  float *even = symmetric<float>(pe, tallest * row), *odd = symmetric<float>(pe, tallest * row);
  float *whole = symmetric<float>(pe, plate.height * row);
  uint64_t *arrived = symmetric<uint64_t>(pe, SIGNALS);

  const std::vector<float> values = initial(plate);
  const int first = plate.first_of(plate.me), rows = plate.rows_of(plate.me);
  const int from = std::max(first - 1, 0), to = std::min(first + rows + 1, plate.height);
  check(cudaMemcpy(even + (from - first + 1) * row, values.data() + from * row, (to - from) * row * sizeof(float),
                   cudaMemcpyDefault));
  check(rushmem_barrier_all(pe));
  launch(pe, plate, even, odd, arrived, steps);

  const float *newest = steps % 2 ? odd : even;
  check(rushmem_putmem(pe, whole + first * row, newest + row, rows * row * sizeof(float), 0));
  check(rushmem_barrier_all(pe));
  if (plate.me == 0) {
    std::vector<float> found(plate.height * row);
    check(cudaMemcpy(found.data(), whole, found.size() * sizeof(float), cudaMemcpyDefault));
    const std::vector<float> wanted = serial(plate, steps);
    float error = 0;
    for (size_t i = 0; i < found.size(); i++) {
      // A NaN is an error too.
      error = std::fabs(found[i] - wanted[i]) <= error ? error : std::fabs(found[i] - wanted[i]);
    }
    if (!(error <= TOLERANCE)) {
      fail("the result differs from the serial one");
    }
    printf("PASS stencil: %d x %d, %d steps on %d PEs; largest error %g\n", plate.height, plate.width, steps, plate.pes,
           error);
  }
  for (void *memory : {static_cast<void *>(even), static_cast<void *>(odd), static_cast<void *>(whole),
                       static_cast<void *>(arrived)}) {
    check(rushmem_free(pe, memory));
  }
  check(rushmem_finalize(pe));
}
