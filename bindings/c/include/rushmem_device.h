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

/* PEs, teams and the memory of peers. */

/* Returns this PE's number. */
RUSHMEM_DEVICE int32_t rushmem_device_my_pe(rushmem_ctx ctx);

/* Returns the number of PEs of the job. */
RUSHMEM_DEVICE int32_t rushmem_device_n_pes(rushmem_ctx ctx);

/* Returns 1 if `pe` was lost, and 0 if not. Only in jobs with live membership. */
RUSHMEM_DEVICE int32_t rushmem_device_is_lost(rushmem_ctx ctx, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_is_lost_warp(rushmem_ctx ctx, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_is_lost_block(rushmem_ctx ctx, int32_t pe);

/* Returns the address at which this PE can access `address` of `pe` by loads and stores, or null. */
RUSHMEM_DEVICE void *rushmem_device_ptr(rushmem_ctx ctx, const void *address, int32_t pe);

/* Returns this PE's number in `team`, or -1 if it is not a member. */
RUSHMEM_DEVICE int32_t rushmem_device_team_my_pe(rushmem_ctx ctx, rushmem_team team);

/* Returns the number of members of `team`, or -1 if this PE is not one of them. */
RUSHMEM_DEVICE int32_t rushmem_device_team_n_pes(rushmem_ctx ctx, rushmem_team team);

/* Returns the number in `to` of the PE that has the number `pe` in `from`, or -1 if there is none. */
RUSHMEM_DEVICE int32_t rushmem_device_team_translate_pe(rushmem_ctx ctx, rushmem_team from, int32_t pe, rushmem_team to);

/* Puts and gets. */

/* Copies `bytes` bytes from `src` to `dst` on `pe`. Returns once `src` may change; the data has not
   necessarily arrived. */
RUSHMEM_DEVICE int32_t rushmem_device_putmem(rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_putmem_warp(rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_putmem_block(rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe);

/* Starts copying `bytes` bytes from `src` to `dst` on `pe`. `src` must not change before
   `rushmem_device_quiet`. */
RUSHMEM_DEVICE int32_t rushmem_device_putmem_nbi(rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_putmem_nbi_warp(rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_putmem_nbi_block(rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe);

/* Copies `bytes` bytes from `src` on `pe` to `dst`, and waits for them. */
RUSHMEM_DEVICE int32_t rushmem_device_getmem(rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_getmem_warp(rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_getmem_block(rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe);

/* Starts copying `bytes` bytes from `src` on `pe` to `dst`. The data is in `dst` after
   `rushmem_device_quiet`. */
RUSHMEM_DEVICE int32_t rushmem_device_getmem_nbi(rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_getmem_nbi_warp(rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_getmem_nbi_block(rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe);

/* Stores `value` in `dst` on `pe`. The value has not necessarily arrived on return. */
RUSHMEM_DEVICE int32_t rushmem_device_uint8_p(rushmem_ctx ctx, uint8_t *dst, uint8_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint16_p(rushmem_ctx ctx, uint16_t *dst, uint16_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint32_p(rushmem_ctx ctx, uint32_t *dst, uint32_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_p(rushmem_ctx ctx, uint64_t *dst, uint64_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_float_p(rushmem_ctx ctx, float *dst, float value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_double_p(rushmem_ctx ctx, double *dst, double value, int32_t pe);

/* Returns the value of `src` on `pe`. */
RUSHMEM_DEVICE uint8_t rushmem_device_uint8_g(rushmem_ctx ctx, const uint8_t *src, int32_t pe);
RUSHMEM_DEVICE uint16_t rushmem_device_uint16_g(rushmem_ctx ctx, const uint16_t *src, int32_t pe);
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_g(rushmem_ctx ctx, const uint32_t *src, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_g(rushmem_ctx ctx, const uint64_t *src, int32_t pe);
RUSHMEM_DEVICE float rushmem_device_float_g(rushmem_ctx ctx, const float *src, int32_t pe);
RUSHMEM_DEVICE double rushmem_device_double_g(rushmem_ctx ctx, const double *src, int32_t pe);

/* Atomics on words of any PE. */

/* Returns the value of `word` on `pe`. */
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_fetch(rushmem_ctx ctx, const uint32_t *word, int32_t pe);
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_fetch_warp(rushmem_ctx ctx, const uint32_t *word, int32_t pe);
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_fetch_block(rushmem_ctx ctx, const uint32_t *word, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_fetch(rushmem_ctx ctx, const uint64_t *word, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_fetch_warp(rushmem_ctx ctx, const uint64_t *word, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_fetch_block(rushmem_ctx ctx, const uint64_t *word, int32_t pe);
RUSHMEM_DEVICE float rushmem_device_float_atomic_fetch(rushmem_ctx ctx, const float *word, int32_t pe);
RUSHMEM_DEVICE float rushmem_device_float_atomic_fetch_warp(rushmem_ctx ctx, const float *word, int32_t pe);
RUSHMEM_DEVICE float rushmem_device_float_atomic_fetch_block(rushmem_ctx ctx, const float *word, int32_t pe);
RUSHMEM_DEVICE double rushmem_device_double_atomic_fetch(rushmem_ctx ctx, const double *word, int32_t pe);
RUSHMEM_DEVICE double rushmem_device_double_atomic_fetch_warp(rushmem_ctx ctx, const double *word, int32_t pe);
RUSHMEM_DEVICE double rushmem_device_double_atomic_fetch_block(rushmem_ctx ctx, const double *word, int32_t pe);

/* Sets `word` on `pe` to `value`. */
RUSHMEM_DEVICE int32_t rushmem_device_uint32_atomic_set(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint32_atomic_set_warp(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint32_atomic_set_block(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_atomic_set(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_atomic_set_warp(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_atomic_set_block(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_float_atomic_set(rushmem_ctx ctx, float *word, float value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_float_atomic_set_warp(rushmem_ctx ctx, float *word, float value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_float_atomic_set_block(rushmem_ctx ctx, float *word, float value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_double_atomic_set(rushmem_ctx ctx, double *word, double value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_double_atomic_set_warp(rushmem_ctx ctx, double *word, double value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_double_atomic_set_block(rushmem_ctx ctx, double *word, double value, int32_t pe);

/* Sets `word` on `pe` to `value`, and returns its old value. */
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_swap(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_swap_warp(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_swap_block(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_swap(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_swap_warp(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_swap_block(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE float rushmem_device_float_atomic_swap(rushmem_ctx ctx, float *word, float value, int32_t pe);
RUSHMEM_DEVICE float rushmem_device_float_atomic_swap_warp(rushmem_ctx ctx, float *word, float value, int32_t pe);
RUSHMEM_DEVICE float rushmem_device_float_atomic_swap_block(rushmem_ctx ctx, float *word, float value, int32_t pe);
RUSHMEM_DEVICE double rushmem_device_double_atomic_swap(rushmem_ctx ctx, double *word, double value, int32_t pe);
RUSHMEM_DEVICE double rushmem_device_double_atomic_swap_warp(rushmem_ctx ctx, double *word, double value, int32_t pe);
RUSHMEM_DEVICE double rushmem_device_double_atomic_swap_block(rushmem_ctx ctx, double *word, double value, int32_t pe);

/* Sets `word` on `pe` to `value` if it is equal to `compare`. Returns its old value. */
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_compare_swap(rushmem_ctx ctx, uint32_t *word, uint32_t compare, uint32_t value, int32_t pe);
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_compare_swap_warp(rushmem_ctx ctx, uint32_t *word, uint32_t compare, uint32_t value, int32_t pe);
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_compare_swap_block(rushmem_ctx ctx, uint32_t *word, uint32_t compare, uint32_t value, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_compare_swap(rushmem_ctx ctx, uint64_t *word, uint64_t compare, uint64_t value, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_compare_swap_warp(rushmem_ctx ctx, uint64_t *word, uint64_t compare, uint64_t value, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_compare_swap_block(rushmem_ctx ctx, uint64_t *word, uint64_t compare, uint64_t value, int32_t pe);

/* Adds `value` to `word` on `pe`. */
RUSHMEM_DEVICE int32_t rushmem_device_uint32_atomic_add(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint32_atomic_add_warp(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint32_atomic_add_block(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_atomic_add(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_atomic_add_warp(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_atomic_add_block(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_float_atomic_add(rushmem_ctx ctx, float *word, float value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_float_atomic_add_warp(rushmem_ctx ctx, float *word, float value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_float_atomic_add_block(rushmem_ctx ctx, float *word, float value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_double_atomic_add(rushmem_ctx ctx, double *word, double value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_double_atomic_add_warp(rushmem_ctx ctx, double *word, double value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_double_atomic_add_block(rushmem_ctx ctx, double *word, double value, int32_t pe);

/* Adds `value` to `word` on `pe`, and returns its old value. */
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_fetch_add(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_fetch_add_warp(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_fetch_add_block(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_fetch_add(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_fetch_add_warp(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_fetch_add_block(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE float rushmem_device_float_atomic_fetch_add(rushmem_ctx ctx, float *word, float value, int32_t pe);
RUSHMEM_DEVICE float rushmem_device_float_atomic_fetch_add_warp(rushmem_ctx ctx, float *word, float value, int32_t pe);
RUSHMEM_DEVICE float rushmem_device_float_atomic_fetch_add_block(rushmem_ctx ctx, float *word, float value, int32_t pe);
RUSHMEM_DEVICE double rushmem_device_double_atomic_fetch_add(rushmem_ctx ctx, double *word, double value, int32_t pe);
RUSHMEM_DEVICE double rushmem_device_double_atomic_fetch_add_warp(rushmem_ctx ctx, double *word, double value, int32_t pe);
RUSHMEM_DEVICE double rushmem_device_double_atomic_fetch_add_block(rushmem_ctx ctx, double *word, double value, int32_t pe);

/* Adds 1 to `word` on `pe`. */
RUSHMEM_DEVICE int32_t rushmem_device_uint32_atomic_inc(rushmem_ctx ctx, uint32_t *word, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint32_atomic_inc_warp(rushmem_ctx ctx, uint32_t *word, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint32_atomic_inc_block(rushmem_ctx ctx, uint32_t *word, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_atomic_inc(rushmem_ctx ctx, uint64_t *word, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_atomic_inc_warp(rushmem_ctx ctx, uint64_t *word, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_atomic_inc_block(rushmem_ctx ctx, uint64_t *word, int32_t pe);

/* Adds 1 to `word` on `pe`, and returns its old value. */
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_fetch_inc(rushmem_ctx ctx, uint32_t *word, int32_t pe);
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_fetch_inc_warp(rushmem_ctx ctx, uint32_t *word, int32_t pe);
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_fetch_inc_block(rushmem_ctx ctx, uint32_t *word, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_fetch_inc(rushmem_ctx ctx, uint64_t *word, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_fetch_inc_warp(rushmem_ctx ctx, uint64_t *word, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_fetch_inc_block(rushmem_ctx ctx, uint64_t *word, int32_t pe);

/* Sets `word` on `pe` to its bitwise and with `value`. */
RUSHMEM_DEVICE int32_t rushmem_device_uint32_atomic_and(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint32_atomic_and_warp(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint32_atomic_and_block(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_atomic_and(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_atomic_and_warp(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_atomic_and_block(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);

/* Sets `word` on `pe` to its bitwise and with `value`, and returns its old value. */
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_fetch_and(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_fetch_and_warp(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_fetch_and_block(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_fetch_and(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_fetch_and_warp(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_fetch_and_block(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);

/* Sets `word` on `pe` to its bitwise or with `value`. */
RUSHMEM_DEVICE int32_t rushmem_device_uint32_atomic_or(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint32_atomic_or_warp(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint32_atomic_or_block(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_atomic_or(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_atomic_or_warp(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_atomic_or_block(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);

/* Sets `word` on `pe` to its bitwise or with `value`, and returns its old value. */
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_fetch_or(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_fetch_or_warp(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_fetch_or_block(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_fetch_or(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_fetch_or_warp(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_fetch_or_block(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);

/* Sets `word` on `pe` to its bitwise exclusive or with `value`. */
RUSHMEM_DEVICE int32_t rushmem_device_uint32_atomic_xor(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint32_atomic_xor_warp(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint32_atomic_xor_block(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_atomic_xor(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_atomic_xor_warp(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_atomic_xor_block(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);

/* Sets `word` on `pe` to its bitwise exclusive or with `value`, and returns its old value. */
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_fetch_xor(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_fetch_xor_warp(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE uint32_t rushmem_device_uint32_atomic_fetch_xor_block(rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_fetch_xor(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_fetch_xor_warp(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);
RUSHMEM_DEVICE uint64_t rushmem_device_uint64_atomic_fetch_xor_block(rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe);

/* Signals: words that announce data. */

/* Copies `bytes` bytes from `src` to `dst` on `pe`, and then applies `value` to `signal` there. A
   thread that sees the signal also sees the data. Returns once `src` may change. */
RUSHMEM_DEVICE int32_t rushmem_device_putmem_signal(rushmem_ctx ctx, void *dst, const void *src, size_t bytes, uint64_t *signal, uint64_t value, int32_t op, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_putmem_signal_warp(rushmem_ctx ctx, void *dst, const void *src, size_t bytes, uint64_t *signal, uint64_t value, int32_t op, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_putmem_signal_block(rushmem_ctx ctx, void *dst, const void *src, size_t bytes, uint64_t *signal, uint64_t value, int32_t op, int32_t pe);

/* Starts a put with signal like `rushmem_device_putmem_signal`. `src` must not change before
   `rushmem_device_quiet`. */
RUSHMEM_DEVICE int32_t rushmem_device_putmem_signal_nbi(rushmem_ctx ctx, void *dst, const void *src, size_t bytes, uint64_t *signal, uint64_t value, int32_t op, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_putmem_signal_nbi_warp(rushmem_ctx ctx, void *dst, const void *src, size_t bytes, uint64_t *signal, uint64_t value, int32_t op, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_putmem_signal_nbi_block(rushmem_ctx ctx, void *dst, const void *src, size_t bytes, uint64_t *signal, uint64_t value, int32_t op, int32_t pe);

/* Applies `value` to `signal` on `pe`. Not ordered after anything: call `rushmem_device_fence`
   first to announce data. */
RUSHMEM_DEVICE int32_t rushmem_device_signal_op(rushmem_ctx ctx, uint64_t *signal, uint64_t value, int32_t op, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_signal_op_warp(rushmem_ctx ctx, uint64_t *signal, uint64_t value, int32_t op, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_signal_op_block(rushmem_ctx ctx, uint64_t *signal, uint64_t value, int32_t op, int32_t pe);

/* Returns the value of a signal on this PE. The data that it announced is visible afterwards. */
RUSHMEM_DEVICE uint64_t rushmem_device_signal_fetch(rushmem_ctx ctx, const uint64_t *signal);
RUSHMEM_DEVICE uint64_t rushmem_device_signal_fetch_warp(rushmem_ctx ctx, const uint64_t *signal);
RUSHMEM_DEVICE uint64_t rushmem_device_signal_fetch_block(rushmem_ctx ctx, const uint64_t *signal);

/* Waits until `signal` on this PE compares with `value` as `cmp` says. The data that it announced
   is visible afterwards. */
RUSHMEM_DEVICE int32_t rushmem_device_signal_wait_until(rushmem_ctx ctx, const uint64_t *signal, int32_t cmp, uint64_t value);
RUSHMEM_DEVICE int32_t rushmem_device_signal_wait_until_warp(rushmem_ctx ctx, const uint64_t *signal, int32_t cmp, uint64_t value);
RUSHMEM_DEVICE int32_t rushmem_device_signal_wait_until_block(rushmem_ctx ctx, const uint64_t *signal, int32_t cmp, uint64_t value);

/* Waits like `rushmem_device_signal_wait_until` for a signal that `pe` updates. Fails if `pe` is
   lost. */
RUSHMEM_DEVICE int32_t rushmem_device_signal_wait_until_from(rushmem_ctx ctx, const uint64_t *signal, int32_t cmp, uint64_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_signal_wait_until_from_warp(rushmem_ctx ctx, const uint64_t *signal, int32_t cmp, uint64_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_signal_wait_until_from_block(rushmem_ctx ctx, const uint64_t *signal, int32_t cmp, uint64_t value, int32_t pe);

/* Waits for words of this PE, and tests of them. */

/* Waits until `word` on this PE compares with `value` as `cmp` says. */
RUSHMEM_DEVICE int32_t rushmem_device_uint32_wait_until(rushmem_ctx ctx, const uint32_t *word, int32_t cmp, uint32_t value);
RUSHMEM_DEVICE int32_t rushmem_device_uint32_wait_until_warp(rushmem_ctx ctx, const uint32_t *word, int32_t cmp, uint32_t value);
RUSHMEM_DEVICE int32_t rushmem_device_uint32_wait_until_block(rushmem_ctx ctx, const uint32_t *word, int32_t cmp, uint32_t value);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_wait_until(rushmem_ctx ctx, const uint64_t *word, int32_t cmp, uint64_t value);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_wait_until_warp(rushmem_ctx ctx, const uint64_t *word, int32_t cmp, uint64_t value);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_wait_until_block(rushmem_ctx ctx, const uint64_t *word, int32_t cmp, uint64_t value);
RUSHMEM_DEVICE int32_t rushmem_device_int32_wait_until(rushmem_ctx ctx, const int32_t *word, int32_t cmp, int32_t value);
RUSHMEM_DEVICE int32_t rushmem_device_int32_wait_until_warp(rushmem_ctx ctx, const int32_t *word, int32_t cmp, int32_t value);
RUSHMEM_DEVICE int32_t rushmem_device_int32_wait_until_block(rushmem_ctx ctx, const int32_t *word, int32_t cmp, int32_t value);
RUSHMEM_DEVICE int32_t rushmem_device_int64_wait_until(rushmem_ctx ctx, const int64_t *word, int32_t cmp, int64_t value);
RUSHMEM_DEVICE int32_t rushmem_device_int64_wait_until_warp(rushmem_ctx ctx, const int64_t *word, int32_t cmp, int64_t value);
RUSHMEM_DEVICE int32_t rushmem_device_int64_wait_until_block(rushmem_ctx ctx, const int64_t *word, int32_t cmp, int64_t value);

/* Waits like `rushmem_device_*_wait_until` for a word that `pe` updates. Fails if `pe` is lost. */
RUSHMEM_DEVICE int32_t rushmem_device_uint32_wait_until_from(rushmem_ctx ctx, const uint32_t *word, int32_t cmp, uint32_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint32_wait_until_from_warp(rushmem_ctx ctx, const uint32_t *word, int32_t cmp, uint32_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint32_wait_until_from_block(rushmem_ctx ctx, const uint32_t *word, int32_t cmp, uint32_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_wait_until_from(rushmem_ctx ctx, const uint64_t *word, int32_t cmp, uint64_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_wait_until_from_warp(rushmem_ctx ctx, const uint64_t *word, int32_t cmp, uint64_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_wait_until_from_block(rushmem_ctx ctx, const uint64_t *word, int32_t cmp, uint64_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_int32_wait_until_from(rushmem_ctx ctx, const int32_t *word, int32_t cmp, int32_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_int32_wait_until_from_warp(rushmem_ctx ctx, const int32_t *word, int32_t cmp, int32_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_int32_wait_until_from_block(rushmem_ctx ctx, const int32_t *word, int32_t cmp, int32_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_int64_wait_until_from(rushmem_ctx ctx, const int64_t *word, int32_t cmp, int64_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_int64_wait_until_from_warp(rushmem_ctx ctx, const int64_t *word, int32_t cmp, int64_t value, int32_t pe);
RUSHMEM_DEVICE int32_t rushmem_device_int64_wait_until_from_block(rushmem_ctx ctx, const int64_t *word, int32_t cmp, int64_t value, int32_t pe);

/* Returns 1 if `word` on this PE compares with `value` as `cmp` says, and 0 if not. */
RUSHMEM_DEVICE int32_t rushmem_device_uint32_test(rushmem_ctx ctx, const uint32_t *word, int32_t cmp, uint32_t value);
RUSHMEM_DEVICE int32_t rushmem_device_uint32_test_warp(rushmem_ctx ctx, const uint32_t *word, int32_t cmp, uint32_t value);
RUSHMEM_DEVICE int32_t rushmem_device_uint32_test_block(rushmem_ctx ctx, const uint32_t *word, int32_t cmp, uint32_t value);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_test(rushmem_ctx ctx, const uint64_t *word, int32_t cmp, uint64_t value);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_test_warp(rushmem_ctx ctx, const uint64_t *word, int32_t cmp, uint64_t value);
RUSHMEM_DEVICE int32_t rushmem_device_uint64_test_block(rushmem_ctx ctx, const uint64_t *word, int32_t cmp, uint64_t value);
RUSHMEM_DEVICE int32_t rushmem_device_int32_test(rushmem_ctx ctx, const int32_t *word, int32_t cmp, int32_t value);
RUSHMEM_DEVICE int32_t rushmem_device_int32_test_warp(rushmem_ctx ctx, const int32_t *word, int32_t cmp, int32_t value);
RUSHMEM_DEVICE int32_t rushmem_device_int32_test_block(rushmem_ctx ctx, const int32_t *word, int32_t cmp, int32_t value);
RUSHMEM_DEVICE int32_t rushmem_device_int64_test(rushmem_ctx ctx, const int64_t *word, int32_t cmp, int64_t value);
RUSHMEM_DEVICE int32_t rushmem_device_int64_test_warp(rushmem_ctx ctx, const int64_t *word, int32_t cmp, int64_t value);
RUSHMEM_DEVICE int32_t rushmem_device_int64_test_block(rushmem_ctx ctx, const int64_t *word, int32_t cmp, int64_t value);

/* Order and completion of operations. */

/* Orders the group's earlier puts, signals and atomics to each PE before its later ones. */
RUSHMEM_DEVICE int32_t rushmem_device_fence(rushmem_ctx ctx);
RUSHMEM_DEVICE int32_t rushmem_device_fence_warp(rushmem_ctx ctx);
RUSHMEM_DEVICE int32_t rushmem_device_fence_block(rushmem_ctx ctx);

/* Waits until all operations that the group has posted are complete: puts have arrived, gets and
   fetches have returned. */
RUSHMEM_DEVICE int32_t rushmem_device_quiet(rushmem_ctx ctx);
RUSHMEM_DEVICE int32_t rushmem_device_quiet_warp(rushmem_ctx ctx);
RUSHMEM_DEVICE int32_t rushmem_device_quiet_block(rushmem_ctx ctx);

/* Collective calls. */

/* Completes the group's operations, and waits until all PEs have made the call. */
RUSHMEM_DEVICE int32_t rushmem_device_barrier_all(rushmem_ctx ctx);
RUSHMEM_DEVICE int32_t rushmem_device_barrier_all_warp(rushmem_ctx ctx);
RUSHMEM_DEVICE int32_t rushmem_device_barrier_all_block(rushmem_ctx ctx);

/* Waits until all PEs have made the call, without completing operations. */
RUSHMEM_DEVICE int32_t rushmem_device_sync_all(rushmem_ctx ctx);
RUSHMEM_DEVICE int32_t rushmem_device_sync_all_warp(rushmem_ctx ctx);
RUSHMEM_DEVICE int32_t rushmem_device_sync_all_block(rushmem_ctx ctx);

/* Completes the group's operations, and waits until all members of `team` have made the call. */
RUSHMEM_DEVICE int32_t rushmem_device_barrier(rushmem_ctx ctx, rushmem_team team);
RUSHMEM_DEVICE int32_t rushmem_device_barrier_warp(rushmem_ctx ctx, rushmem_team team);
RUSHMEM_DEVICE int32_t rushmem_device_barrier_block(rushmem_ctx ctx, rushmem_team team);

/* Waits until all members of `team` have made the call, without completing operations. */
RUSHMEM_DEVICE int32_t rushmem_device_team_sync(rushmem_ctx ctx, rushmem_team team);
RUSHMEM_DEVICE int32_t rushmem_device_team_sync_warp(rushmem_ctx ctx, rushmem_team team);
RUSHMEM_DEVICE int32_t rushmem_device_team_sync_block(rushmem_ctx ctx, rushmem_team team);

/* Copies `bytes` bytes from `src` of the member `root` to `dst` of every member. */
RUSHMEM_DEVICE int32_t rushmem_device_broadcastmem_warp(rushmem_ctx ctx, rushmem_team team, void *dst, const void *src, size_t bytes, int32_t root);
RUSHMEM_DEVICE int32_t rushmem_device_broadcastmem_block(rushmem_ctx ctx, rushmem_team team, void *dst, const void *src, size_t bytes, int32_t root);

/* Concatenates `bytes` bytes of `src` of every member in `dst`, in team order. */
RUSHMEM_DEVICE int32_t rushmem_device_fcollectmem_warp(rushmem_ctx ctx, rushmem_team team, void *dst, const void *src, size_t bytes);
RUSHMEM_DEVICE int32_t rushmem_device_fcollectmem_block(rushmem_ctx ctx, rushmem_team team, void *dst, const void *src, size_t bytes);

/* Sends part `i` of `src`, of `bytes` bytes, to member `i`, which stores the part from member `j`
   as part `j` of its `dst`. */
RUSHMEM_DEVICE int32_t rushmem_device_alltoallmem_warp(rushmem_ctx ctx, rushmem_team team, void *dst, const void *src, size_t bytes);
RUSHMEM_DEVICE int32_t rushmem_device_alltoallmem_block(rushmem_ctx ctx, rushmem_team team, void *dst, const void *src, size_t bytes);

/* Combines `bytes` bytes of `src` of all members, elements of `type` by `op`, and stores the result
   in `dst` of each. */
RUSHMEM_DEVICE int32_t rushmem_device_reduce_warp(rushmem_ctx ctx, rushmem_team team, void *dst, const void *src, size_t bytes, int32_t type, int32_t op);
RUSHMEM_DEVICE int32_t rushmem_device_reduce_block(rushmem_ctx ctx, rushmem_team team, void *dst, const void *src, size_t bytes, int32_t type, int32_t op);

/* Combines `src` of all members, of which each receives its `bytes` bytes of the result in `dst`:
   member `i` the `i`th part. */
RUSHMEM_DEVICE int32_t rushmem_device_reduce_scatter_warp(rushmem_ctx ctx, rushmem_team team, void *dst, const void *src, size_t bytes, int32_t type, int32_t op);
RUSHMEM_DEVICE int32_t rushmem_device_reduce_scatter_block(rushmem_ctx ctx, rushmem_team team, void *dst, const void *src, size_t bytes, int32_t type, int32_t op);

#ifdef __cplusplus
}
#endif

#endif
