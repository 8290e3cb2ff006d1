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
 * The error code, which docs/errors.md explains, is the same in all threads of the call. A function
 * that returns a value returns 0 if it fails. rushmem_check on the host reports failures
 * with the name of the function, and tells a failure from a value of 0. Teams, comparisons, types and reductions are those of rushmem.h. */
#ifndef RUSHMEM_DEVICE_H
#define RUSHMEM_DEVICE_H

#include "rushmem.h"

#ifdef __CUDACC__
#define RUSHMEM_DEVICE extern __device__
#else
#define RUSHMEM_DEVICE extern
#endif

/* Address of a PE's context in GPU memory. */
typedef uint64_t rushmem_ctx;

#ifdef __cplusplus
extern "C" {
#endif
