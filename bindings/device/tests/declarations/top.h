/* Rushmem for kernels in CUDA C++: puts, gets, atomics, signals and collective calls.
 *
 * Written by `UPDATE_DOCS=1 cargo test -p rushmem-device-c --test declarations`.
 *
 * The first argument of every function is the PE's context, which the host library returns and
 * passes to the kernel. Symmetric memory is passed by its address on the calling PE. Functions
 * without a suffix are called by one thread, those with _warp or _block by all threads of a warp
 * or block with the same arguments.
 *
 * A function that returns int32_t returns 0 or an error code unless its comment says otherwise.
 * The error code is the same in all threads of the call. A function that returns a value returns
 * 0 if it fails. The host reports each failure with the name of the function. */
#ifndef RUSHMEM_DEVICE_H
#define RUSHMEM_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define RUSHMEM_DEVICE extern __device__
#else
#define RUSHMEM_DEVICE extern
#endif

/* Address of a PE's context in GPU memory. */
typedef uint64_t rushmem_ctx;

/* Handle of a team. */
typedef uint64_t rushmem_team;

/* The team of all PEs. */
#define RUSHMEM_TEAM_WORLD ((rushmem_team)1 << 32)

/* Comparisons between a word and a value. Words that wrap around have REACHED a value that they
 * equal or are past by less than half of their range. */
enum {
  RUSHMEM_CMP_EQ = 0,
  RUSHMEM_CMP_NE = 1,
  RUSHMEM_CMP_GT = 2,
  RUSHMEM_CMP_GE = 3,
  RUSHMEM_CMP_LT = 4,
  RUSHMEM_CMP_LE = 5,
  RUSHMEM_CMP_REACHED = 6
};

/* How a signal changes its word. */
enum { RUSHMEM_SIGNAL_SET = 0, RUSHMEM_SIGNAL_ADD = 1 };

/* Types of the elements of a reduction. */
enum {
  RUSHMEM_UINT8 = 0,
  RUSHMEM_INT8 = 1,
  RUSHMEM_UINT16 = 2,
  RUSHMEM_INT16 = 3,
  RUSHMEM_UINT32 = 4,
  RUSHMEM_INT32 = 5,
  RUSHMEM_UINT64 = 6,
  RUSHMEM_INT64 = 7,
  RUSHMEM_FLOAT16 = 8,
  RUSHMEM_BFLOAT16 = 9,
  RUSHMEM_FLOAT = 10,
  RUSHMEM_DOUBLE = 11
};

/* Reductions. AND, OR and XOR are for integers. */
enum {
  RUSHMEM_SUM = 0,
  RUSHMEM_PROD = 1,
  RUSHMEM_MIN = 2,
  RUSHMEM_MAX = 3,
  RUSHMEM_AND = 4,
  RUSHMEM_OR = 5,
  RUSHMEM_XOR = 6
};

#ifdef __cplusplus
extern "C" {
#endif
