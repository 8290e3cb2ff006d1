// A pipeline through all PEs, in chunks. Its kernel is in a separate translation unit.
#include <stdint.h>

constexpr int CHUNKS = 16, CHUNK = 4096;

__global__ void forward(float *data, uint64_t *arrived);
