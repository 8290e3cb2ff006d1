// Rushmem for kernels in CUDA C++, with overloads instead of names for each type and scope.
//
// Written by `UPDATE_DOCS=1 cargo test -p rushmem-device-c --test declarations`. rushmem_device.h explains the calls.
//
//     __global__ void shift(rushmem_ctx ctx, float *dst, const float *src, size_t n, uint64_t *arrived) {
//       int next = (rushmem::my_pe(ctx) + 1) % rushmem::n_pes(ctx);
//       rushmem::put_signal(rushmem::block, ctx, dst, src, n, arrived, 1, RUSHMEM_SIGNAL_SET, next);
//       rushmem::signal_wait_until(rushmem::block, ctx, arrived, RUSHMEM_CMP_EQ, 1);
//     }
#ifndef RUSHMEM_DEVICE_HPP
#define RUSHMEM_DEVICE_HPP

#include "rushmem_device.h"

namespace rushmem {

// The threads that make a call together.
struct thread_scope {};
struct warp_scope {};
struct block_scope {};
__device__ constexpr thread_scope thread{};
__device__ constexpr warp_scope warp{};
__device__ constexpr block_scope block{};

namespace detail {

// The type with the size and kind of T for which the C functions exist.
template <size_t size> struct integer;
template <> struct integer<1> { using type = uint8_t; };
template <> struct integer<2> { using type = uint16_t; };
template <> struct integer<4> { using type = uint32_t; };
template <> struct integer<8> { using type = uint64_t; };
template <class T> struct word { using type = typename integer<sizeof(T)>::type; };
template <> struct word<float> { using type = float; };
template <> struct word<double> { using type = double; };

// The same, for calls that compare: signed types stay signed.
template <class T, bool is_signed> struct ordered { using type = typename integer<sizeof(T)>::type; };
template <> struct ordered<int, true> { using type = int32_t; };
template <> struct ordered<long, true> { using type = int64_t; };
template <> struct ordered<long long, true> { using type = int64_t; };
template <class T> struct number { using type = typename ordered<T, (T(-1) < T(0))>::type; };

// T for parameters that do not decide what T is.
template <class T> struct same { using type = T; };

// Converts between types of the same size, bit for bit.
template <class To, class From> __device__ inline To bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "");
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}


__device__ inline int32_t p(thread_scope, rushmem_ctx ctx, uint8_t *dst, uint8_t value, int32_t pe) {
  return rushmem_device_uint8_p(ctx, dst, value, pe);
}

__device__ inline int32_t p(thread_scope, rushmem_ctx ctx, uint16_t *dst, uint16_t value, int32_t pe) {
  return rushmem_device_uint16_p(ctx, dst, value, pe);
}

__device__ inline int32_t p(thread_scope, rushmem_ctx ctx, uint32_t *dst, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_p(ctx, dst, value, pe);
}

__device__ inline int32_t p(thread_scope, rushmem_ctx ctx, uint64_t *dst, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_p(ctx, dst, value, pe);
}

__device__ inline int32_t p(thread_scope, rushmem_ctx ctx, float *dst, float value, int32_t pe) {
  return rushmem_device_float_p(ctx, dst, value, pe);
}

__device__ inline int32_t p(thread_scope, rushmem_ctx ctx, double *dst, double value, int32_t pe) {
  return rushmem_device_double_p(ctx, dst, value, pe);
}

__device__ inline uint8_t g(thread_scope, rushmem_ctx ctx, const uint8_t *src, int32_t pe) {
  return rushmem_device_uint8_g(ctx, src, pe);
}

__device__ inline uint16_t g(thread_scope, rushmem_ctx ctx, const uint16_t *src, int32_t pe) {
  return rushmem_device_uint16_g(ctx, src, pe);
}

__device__ inline uint32_t g(thread_scope, rushmem_ctx ctx, const uint32_t *src, int32_t pe) {
  return rushmem_device_uint32_g(ctx, src, pe);
}

__device__ inline uint64_t g(thread_scope, rushmem_ctx ctx, const uint64_t *src, int32_t pe) {
  return rushmem_device_uint64_g(ctx, src, pe);
}

__device__ inline float g(thread_scope, rushmem_ctx ctx, const float *src, int32_t pe) {
  return rushmem_device_float_g(ctx, src, pe);
}

__device__ inline double g(thread_scope, rushmem_ctx ctx, const double *src, int32_t pe) {
  return rushmem_device_double_g(ctx, src, pe);
}

__device__ inline uint32_t atomic_fetch(thread_scope, rushmem_ctx ctx, const uint32_t *word, int32_t pe) {
  return rushmem_device_uint32_atomic_fetch(ctx, word, pe);
}

__device__ inline uint32_t atomic_fetch(warp_scope, rushmem_ctx ctx, const uint32_t *word, int32_t pe) {
  return rushmem_device_uint32_atomic_fetch_warp(ctx, word, pe);
}

__device__ inline uint32_t atomic_fetch(block_scope, rushmem_ctx ctx, const uint32_t *word, int32_t pe) {
  return rushmem_device_uint32_atomic_fetch_block(ctx, word, pe);
}

__device__ inline uint64_t atomic_fetch(thread_scope, rushmem_ctx ctx, const uint64_t *word, int32_t pe) {
  return rushmem_device_uint64_atomic_fetch(ctx, word, pe);
}

__device__ inline uint64_t atomic_fetch(warp_scope, rushmem_ctx ctx, const uint64_t *word, int32_t pe) {
  return rushmem_device_uint64_atomic_fetch_warp(ctx, word, pe);
}

__device__ inline uint64_t atomic_fetch(block_scope, rushmem_ctx ctx, const uint64_t *word, int32_t pe) {
  return rushmem_device_uint64_atomic_fetch_block(ctx, word, pe);
}

__device__ inline float atomic_fetch(thread_scope, rushmem_ctx ctx, const float *word, int32_t pe) {
  return rushmem_device_float_atomic_fetch(ctx, word, pe);
}

__device__ inline float atomic_fetch(warp_scope, rushmem_ctx ctx, const float *word, int32_t pe) {
  return rushmem_device_float_atomic_fetch_warp(ctx, word, pe);
}

__device__ inline float atomic_fetch(block_scope, rushmem_ctx ctx, const float *word, int32_t pe) {
  return rushmem_device_float_atomic_fetch_block(ctx, word, pe);
}

__device__ inline double atomic_fetch(thread_scope, rushmem_ctx ctx, const double *word, int32_t pe) {
  return rushmem_device_double_atomic_fetch(ctx, word, pe);
}

__device__ inline double atomic_fetch(warp_scope, rushmem_ctx ctx, const double *word, int32_t pe) {
  return rushmem_device_double_atomic_fetch_warp(ctx, word, pe);
}

__device__ inline double atomic_fetch(block_scope, rushmem_ctx ctx, const double *word, int32_t pe) {
  return rushmem_device_double_atomic_fetch_block(ctx, word, pe);
}

__device__ inline int32_t atomic_set(thread_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_set(ctx, word, value, pe);
}

__device__ inline int32_t atomic_set(warp_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_set_warp(ctx, word, value, pe);
}

__device__ inline int32_t atomic_set(block_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_set_block(ctx, word, value, pe);
}

__device__ inline int32_t atomic_set(thread_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_set(ctx, word, value, pe);
}

__device__ inline int32_t atomic_set(warp_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_set_warp(ctx, word, value, pe);
}

__device__ inline int32_t atomic_set(block_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_set_block(ctx, word, value, pe);
}

__device__ inline int32_t atomic_set(thread_scope, rushmem_ctx ctx, float *word, float value, int32_t pe) {
  return rushmem_device_float_atomic_set(ctx, word, value, pe);
}

__device__ inline int32_t atomic_set(warp_scope, rushmem_ctx ctx, float *word, float value, int32_t pe) {
  return rushmem_device_float_atomic_set_warp(ctx, word, value, pe);
}

__device__ inline int32_t atomic_set(block_scope, rushmem_ctx ctx, float *word, float value, int32_t pe) {
  return rushmem_device_float_atomic_set_block(ctx, word, value, pe);
}

__device__ inline int32_t atomic_set(thread_scope, rushmem_ctx ctx, double *word, double value, int32_t pe) {
  return rushmem_device_double_atomic_set(ctx, word, value, pe);
}

__device__ inline int32_t atomic_set(warp_scope, rushmem_ctx ctx, double *word, double value, int32_t pe) {
  return rushmem_device_double_atomic_set_warp(ctx, word, value, pe);
}

__device__ inline int32_t atomic_set(block_scope, rushmem_ctx ctx, double *word, double value, int32_t pe) {
  return rushmem_device_double_atomic_set_block(ctx, word, value, pe);
}

__device__ inline uint32_t atomic_swap(thread_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_swap(ctx, word, value, pe);
}

__device__ inline uint32_t atomic_swap(warp_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_swap_warp(ctx, word, value, pe);
}

__device__ inline uint32_t atomic_swap(block_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_swap_block(ctx, word, value, pe);
}

__device__ inline uint64_t atomic_swap(thread_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_swap(ctx, word, value, pe);
}

__device__ inline uint64_t atomic_swap(warp_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_swap_warp(ctx, word, value, pe);
}

__device__ inline uint64_t atomic_swap(block_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_swap_block(ctx, word, value, pe);
}

__device__ inline float atomic_swap(thread_scope, rushmem_ctx ctx, float *word, float value, int32_t pe) {
  return rushmem_device_float_atomic_swap(ctx, word, value, pe);
}

__device__ inline float atomic_swap(warp_scope, rushmem_ctx ctx, float *word, float value, int32_t pe) {
  return rushmem_device_float_atomic_swap_warp(ctx, word, value, pe);
}

__device__ inline float atomic_swap(block_scope, rushmem_ctx ctx, float *word, float value, int32_t pe) {
  return rushmem_device_float_atomic_swap_block(ctx, word, value, pe);
}

__device__ inline double atomic_swap(thread_scope, rushmem_ctx ctx, double *word, double value, int32_t pe) {
  return rushmem_device_double_atomic_swap(ctx, word, value, pe);
}

__device__ inline double atomic_swap(warp_scope, rushmem_ctx ctx, double *word, double value, int32_t pe) {
  return rushmem_device_double_atomic_swap_warp(ctx, word, value, pe);
}

__device__ inline double atomic_swap(block_scope, rushmem_ctx ctx, double *word, double value, int32_t pe) {
  return rushmem_device_double_atomic_swap_block(ctx, word, value, pe);
}

__device__ inline uint32_t atomic_compare_swap(thread_scope, rushmem_ctx ctx, uint32_t *word, uint32_t compare, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_compare_swap(ctx, word, compare, value, pe);
}

__device__ inline uint32_t atomic_compare_swap(warp_scope, rushmem_ctx ctx, uint32_t *word, uint32_t compare, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_compare_swap_warp(ctx, word, compare, value, pe);
}

__device__ inline uint32_t atomic_compare_swap(block_scope, rushmem_ctx ctx, uint32_t *word, uint32_t compare, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_compare_swap_block(ctx, word, compare, value, pe);
}

__device__ inline uint64_t atomic_compare_swap(thread_scope, rushmem_ctx ctx, uint64_t *word, uint64_t compare, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_compare_swap(ctx, word, compare, value, pe);
}

__device__ inline uint64_t atomic_compare_swap(warp_scope, rushmem_ctx ctx, uint64_t *word, uint64_t compare, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_compare_swap_warp(ctx, word, compare, value, pe);
}

__device__ inline uint64_t atomic_compare_swap(block_scope, rushmem_ctx ctx, uint64_t *word, uint64_t compare, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_compare_swap_block(ctx, word, compare, value, pe);
}

__device__ inline int32_t atomic_add(thread_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_add(ctx, word, value, pe);
}

__device__ inline int32_t atomic_add(warp_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_add_warp(ctx, word, value, pe);
}

__device__ inline int32_t atomic_add(block_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_add_block(ctx, word, value, pe);
}

__device__ inline int32_t atomic_add(thread_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_add(ctx, word, value, pe);
}

__device__ inline int32_t atomic_add(warp_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_add_warp(ctx, word, value, pe);
}

__device__ inline int32_t atomic_add(block_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_add_block(ctx, word, value, pe);
}

__device__ inline int32_t atomic_add(thread_scope, rushmem_ctx ctx, float *word, float value, int32_t pe) {
  return rushmem_device_float_atomic_add(ctx, word, value, pe);
}

__device__ inline int32_t atomic_add(warp_scope, rushmem_ctx ctx, float *word, float value, int32_t pe) {
  return rushmem_device_float_atomic_add_warp(ctx, word, value, pe);
}

__device__ inline int32_t atomic_add(block_scope, rushmem_ctx ctx, float *word, float value, int32_t pe) {
  return rushmem_device_float_atomic_add_block(ctx, word, value, pe);
}

__device__ inline int32_t atomic_add(thread_scope, rushmem_ctx ctx, double *word, double value, int32_t pe) {
  return rushmem_device_double_atomic_add(ctx, word, value, pe);
}

__device__ inline int32_t atomic_add(warp_scope, rushmem_ctx ctx, double *word, double value, int32_t pe) {
  return rushmem_device_double_atomic_add_warp(ctx, word, value, pe);
}

__device__ inline int32_t atomic_add(block_scope, rushmem_ctx ctx, double *word, double value, int32_t pe) {
  return rushmem_device_double_atomic_add_block(ctx, word, value, pe);
}

__device__ inline uint32_t atomic_fetch_add(thread_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_fetch_add(ctx, word, value, pe);
}

__device__ inline uint32_t atomic_fetch_add(warp_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_fetch_add_warp(ctx, word, value, pe);
}

__device__ inline uint32_t atomic_fetch_add(block_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_fetch_add_block(ctx, word, value, pe);
}

__device__ inline uint64_t atomic_fetch_add(thread_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_fetch_add(ctx, word, value, pe);
}

__device__ inline uint64_t atomic_fetch_add(warp_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_fetch_add_warp(ctx, word, value, pe);
}

__device__ inline uint64_t atomic_fetch_add(block_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_fetch_add_block(ctx, word, value, pe);
}

__device__ inline float atomic_fetch_add(thread_scope, rushmem_ctx ctx, float *word, float value, int32_t pe) {
  return rushmem_device_float_atomic_fetch_add(ctx, word, value, pe);
}

__device__ inline float atomic_fetch_add(warp_scope, rushmem_ctx ctx, float *word, float value, int32_t pe) {
  return rushmem_device_float_atomic_fetch_add_warp(ctx, word, value, pe);
}

__device__ inline float atomic_fetch_add(block_scope, rushmem_ctx ctx, float *word, float value, int32_t pe) {
  return rushmem_device_float_atomic_fetch_add_block(ctx, word, value, pe);
}

__device__ inline double atomic_fetch_add(thread_scope, rushmem_ctx ctx, double *word, double value, int32_t pe) {
  return rushmem_device_double_atomic_fetch_add(ctx, word, value, pe);
}

__device__ inline double atomic_fetch_add(warp_scope, rushmem_ctx ctx, double *word, double value, int32_t pe) {
  return rushmem_device_double_atomic_fetch_add_warp(ctx, word, value, pe);
}

__device__ inline double atomic_fetch_add(block_scope, rushmem_ctx ctx, double *word, double value, int32_t pe) {
  return rushmem_device_double_atomic_fetch_add_block(ctx, word, value, pe);
}

__device__ inline int32_t atomic_inc(thread_scope, rushmem_ctx ctx, uint32_t *word, int32_t pe) {
  return rushmem_device_uint32_atomic_inc(ctx, word, pe);
}

__device__ inline int32_t atomic_inc(warp_scope, rushmem_ctx ctx, uint32_t *word, int32_t pe) {
  return rushmem_device_uint32_atomic_inc_warp(ctx, word, pe);
}

__device__ inline int32_t atomic_inc(block_scope, rushmem_ctx ctx, uint32_t *word, int32_t pe) {
  return rushmem_device_uint32_atomic_inc_block(ctx, word, pe);
}

__device__ inline int32_t atomic_inc(thread_scope, rushmem_ctx ctx, uint64_t *word, int32_t pe) {
  return rushmem_device_uint64_atomic_inc(ctx, word, pe);
}

__device__ inline int32_t atomic_inc(warp_scope, rushmem_ctx ctx, uint64_t *word, int32_t pe) {
  return rushmem_device_uint64_atomic_inc_warp(ctx, word, pe);
}

__device__ inline int32_t atomic_inc(block_scope, rushmem_ctx ctx, uint64_t *word, int32_t pe) {
  return rushmem_device_uint64_atomic_inc_block(ctx, word, pe);
}

__device__ inline uint32_t atomic_fetch_inc(thread_scope, rushmem_ctx ctx, uint32_t *word, int32_t pe) {
  return rushmem_device_uint32_atomic_fetch_inc(ctx, word, pe);
}

__device__ inline uint32_t atomic_fetch_inc(warp_scope, rushmem_ctx ctx, uint32_t *word, int32_t pe) {
  return rushmem_device_uint32_atomic_fetch_inc_warp(ctx, word, pe);
}

__device__ inline uint32_t atomic_fetch_inc(block_scope, rushmem_ctx ctx, uint32_t *word, int32_t pe) {
  return rushmem_device_uint32_atomic_fetch_inc_block(ctx, word, pe);
}

__device__ inline uint64_t atomic_fetch_inc(thread_scope, rushmem_ctx ctx, uint64_t *word, int32_t pe) {
  return rushmem_device_uint64_atomic_fetch_inc(ctx, word, pe);
}

__device__ inline uint64_t atomic_fetch_inc(warp_scope, rushmem_ctx ctx, uint64_t *word, int32_t pe) {
  return rushmem_device_uint64_atomic_fetch_inc_warp(ctx, word, pe);
}

__device__ inline uint64_t atomic_fetch_inc(block_scope, rushmem_ctx ctx, uint64_t *word, int32_t pe) {
  return rushmem_device_uint64_atomic_fetch_inc_block(ctx, word, pe);
}

__device__ inline int32_t atomic_and(thread_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_and(ctx, word, value, pe);
}

__device__ inline int32_t atomic_and(warp_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_and_warp(ctx, word, value, pe);
}

__device__ inline int32_t atomic_and(block_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_and_block(ctx, word, value, pe);
}

__device__ inline int32_t atomic_and(thread_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_and(ctx, word, value, pe);
}

__device__ inline int32_t atomic_and(warp_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_and_warp(ctx, word, value, pe);
}

__device__ inline int32_t atomic_and(block_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_and_block(ctx, word, value, pe);
}

__device__ inline uint32_t atomic_fetch_and(thread_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_fetch_and(ctx, word, value, pe);
}

__device__ inline uint32_t atomic_fetch_and(warp_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_fetch_and_warp(ctx, word, value, pe);
}

__device__ inline uint32_t atomic_fetch_and(block_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_fetch_and_block(ctx, word, value, pe);
}

__device__ inline uint64_t atomic_fetch_and(thread_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_fetch_and(ctx, word, value, pe);
}

__device__ inline uint64_t atomic_fetch_and(warp_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_fetch_and_warp(ctx, word, value, pe);
}

__device__ inline uint64_t atomic_fetch_and(block_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_fetch_and_block(ctx, word, value, pe);
}

__device__ inline int32_t atomic_or(thread_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_or(ctx, word, value, pe);
}

__device__ inline int32_t atomic_or(warp_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_or_warp(ctx, word, value, pe);
}

__device__ inline int32_t atomic_or(block_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_or_block(ctx, word, value, pe);
}

__device__ inline int32_t atomic_or(thread_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_or(ctx, word, value, pe);
}

__device__ inline int32_t atomic_or(warp_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_or_warp(ctx, word, value, pe);
}

__device__ inline int32_t atomic_or(block_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_or_block(ctx, word, value, pe);
}

__device__ inline uint32_t atomic_fetch_or(thread_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_fetch_or(ctx, word, value, pe);
}

__device__ inline uint32_t atomic_fetch_or(warp_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_fetch_or_warp(ctx, word, value, pe);
}

__device__ inline uint32_t atomic_fetch_or(block_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_fetch_or_block(ctx, word, value, pe);
}

__device__ inline uint64_t atomic_fetch_or(thread_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_fetch_or(ctx, word, value, pe);
}

__device__ inline uint64_t atomic_fetch_or(warp_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_fetch_or_warp(ctx, word, value, pe);
}

__device__ inline uint64_t atomic_fetch_or(block_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_fetch_or_block(ctx, word, value, pe);
}

__device__ inline int32_t atomic_xor(thread_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_xor(ctx, word, value, pe);
}

__device__ inline int32_t atomic_xor(warp_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_xor_warp(ctx, word, value, pe);
}

__device__ inline int32_t atomic_xor(block_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_xor_block(ctx, word, value, pe);
}

__device__ inline int32_t atomic_xor(thread_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_xor(ctx, word, value, pe);
}

__device__ inline int32_t atomic_xor(warp_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_xor_warp(ctx, word, value, pe);
}

__device__ inline int32_t atomic_xor(block_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_xor_block(ctx, word, value, pe);
}

__device__ inline uint32_t atomic_fetch_xor(thread_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_fetch_xor(ctx, word, value, pe);
}

__device__ inline uint32_t atomic_fetch_xor(warp_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_fetch_xor_warp(ctx, word, value, pe);
}

__device__ inline uint32_t atomic_fetch_xor(block_scope, rushmem_ctx ctx, uint32_t *word, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_atomic_fetch_xor_block(ctx, word, value, pe);
}

__device__ inline uint64_t atomic_fetch_xor(thread_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_fetch_xor(ctx, word, value, pe);
}

__device__ inline uint64_t atomic_fetch_xor(warp_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_fetch_xor_warp(ctx, word, value, pe);
}

__device__ inline uint64_t atomic_fetch_xor(block_scope, rushmem_ctx ctx, uint64_t *word, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_atomic_fetch_xor_block(ctx, word, value, pe);
}

__device__ inline int32_t wait_until(thread_scope, rushmem_ctx ctx, const uint32_t *word, int32_t cmp, uint32_t value) {
  return rushmem_device_uint32_wait_until(ctx, word, cmp, value);
}

__device__ inline int32_t wait_until(warp_scope, rushmem_ctx ctx, const uint32_t *word, int32_t cmp, uint32_t value) {
  return rushmem_device_uint32_wait_until_warp(ctx, word, cmp, value);
}

__device__ inline int32_t wait_until(block_scope, rushmem_ctx ctx, const uint32_t *word, int32_t cmp, uint32_t value) {
  return rushmem_device_uint32_wait_until_block(ctx, word, cmp, value);
}

__device__ inline int32_t wait_until(thread_scope, rushmem_ctx ctx, const uint64_t *word, int32_t cmp, uint64_t value) {
  return rushmem_device_uint64_wait_until(ctx, word, cmp, value);
}

__device__ inline int32_t wait_until(warp_scope, rushmem_ctx ctx, const uint64_t *word, int32_t cmp, uint64_t value) {
  return rushmem_device_uint64_wait_until_warp(ctx, word, cmp, value);
}

__device__ inline int32_t wait_until(block_scope, rushmem_ctx ctx, const uint64_t *word, int32_t cmp, uint64_t value) {
  return rushmem_device_uint64_wait_until_block(ctx, word, cmp, value);
}

__device__ inline int32_t wait_until(thread_scope, rushmem_ctx ctx, const int32_t *word, int32_t cmp, int32_t value) {
  return rushmem_device_int32_wait_until(ctx, word, cmp, value);
}

__device__ inline int32_t wait_until(warp_scope, rushmem_ctx ctx, const int32_t *word, int32_t cmp, int32_t value) {
  return rushmem_device_int32_wait_until_warp(ctx, word, cmp, value);
}

__device__ inline int32_t wait_until(block_scope, rushmem_ctx ctx, const int32_t *word, int32_t cmp, int32_t value) {
  return rushmem_device_int32_wait_until_block(ctx, word, cmp, value);
}

__device__ inline int32_t wait_until(thread_scope, rushmem_ctx ctx, const int64_t *word, int32_t cmp, int64_t value) {
  return rushmem_device_int64_wait_until(ctx, word, cmp, value);
}

__device__ inline int32_t wait_until(warp_scope, rushmem_ctx ctx, const int64_t *word, int32_t cmp, int64_t value) {
  return rushmem_device_int64_wait_until_warp(ctx, word, cmp, value);
}

__device__ inline int32_t wait_until(block_scope, rushmem_ctx ctx, const int64_t *word, int32_t cmp, int64_t value) {
  return rushmem_device_int64_wait_until_block(ctx, word, cmp, value);
}

__device__ inline int32_t wait_until_from(thread_scope, rushmem_ctx ctx, const uint32_t *word, int32_t cmp, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_wait_until_from(ctx, word, cmp, value, pe);
}

__device__ inline int32_t wait_until_from(warp_scope, rushmem_ctx ctx, const uint32_t *word, int32_t cmp, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_wait_until_from_warp(ctx, word, cmp, value, pe);
}

__device__ inline int32_t wait_until_from(block_scope, rushmem_ctx ctx, const uint32_t *word, int32_t cmp, uint32_t value, int32_t pe) {
  return rushmem_device_uint32_wait_until_from_block(ctx, word, cmp, value, pe);
}

__device__ inline int32_t wait_until_from(thread_scope, rushmem_ctx ctx, const uint64_t *word, int32_t cmp, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_wait_until_from(ctx, word, cmp, value, pe);
}

__device__ inline int32_t wait_until_from(warp_scope, rushmem_ctx ctx, const uint64_t *word, int32_t cmp, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_wait_until_from_warp(ctx, word, cmp, value, pe);
}

__device__ inline int32_t wait_until_from(block_scope, rushmem_ctx ctx, const uint64_t *word, int32_t cmp, uint64_t value, int32_t pe) {
  return rushmem_device_uint64_wait_until_from_block(ctx, word, cmp, value, pe);
}

__device__ inline int32_t wait_until_from(thread_scope, rushmem_ctx ctx, const int32_t *word, int32_t cmp, int32_t value, int32_t pe) {
  return rushmem_device_int32_wait_until_from(ctx, word, cmp, value, pe);
}

__device__ inline int32_t wait_until_from(warp_scope, rushmem_ctx ctx, const int32_t *word, int32_t cmp, int32_t value, int32_t pe) {
  return rushmem_device_int32_wait_until_from_warp(ctx, word, cmp, value, pe);
}

__device__ inline int32_t wait_until_from(block_scope, rushmem_ctx ctx, const int32_t *word, int32_t cmp, int32_t value, int32_t pe) {
  return rushmem_device_int32_wait_until_from_block(ctx, word, cmp, value, pe);
}

__device__ inline int32_t wait_until_from(thread_scope, rushmem_ctx ctx, const int64_t *word, int32_t cmp, int64_t value, int32_t pe) {
  return rushmem_device_int64_wait_until_from(ctx, word, cmp, value, pe);
}

__device__ inline int32_t wait_until_from(warp_scope, rushmem_ctx ctx, const int64_t *word, int32_t cmp, int64_t value, int32_t pe) {
  return rushmem_device_int64_wait_until_from_warp(ctx, word, cmp, value, pe);
}

__device__ inline int32_t wait_until_from(block_scope, rushmem_ctx ctx, const int64_t *word, int32_t cmp, int64_t value, int32_t pe) {
  return rushmem_device_int64_wait_until_from_block(ctx, word, cmp, value, pe);
}

__device__ inline int32_t test(thread_scope, rushmem_ctx ctx, const uint32_t *word, int32_t cmp, uint32_t value) {
  return rushmem_device_uint32_test(ctx, word, cmp, value);
}

__device__ inline int32_t test(warp_scope, rushmem_ctx ctx, const uint32_t *word, int32_t cmp, uint32_t value) {
  return rushmem_device_uint32_test_warp(ctx, word, cmp, value);
}

__device__ inline int32_t test(block_scope, rushmem_ctx ctx, const uint32_t *word, int32_t cmp, uint32_t value) {
  return rushmem_device_uint32_test_block(ctx, word, cmp, value);
}

__device__ inline int32_t test(thread_scope, rushmem_ctx ctx, const uint64_t *word, int32_t cmp, uint64_t value) {
  return rushmem_device_uint64_test(ctx, word, cmp, value);
}

__device__ inline int32_t test(warp_scope, rushmem_ctx ctx, const uint64_t *word, int32_t cmp, uint64_t value) {
  return rushmem_device_uint64_test_warp(ctx, word, cmp, value);
}

__device__ inline int32_t test(block_scope, rushmem_ctx ctx, const uint64_t *word, int32_t cmp, uint64_t value) {
  return rushmem_device_uint64_test_block(ctx, word, cmp, value);
}

__device__ inline int32_t test(thread_scope, rushmem_ctx ctx, const int32_t *word, int32_t cmp, int32_t value) {
  return rushmem_device_int32_test(ctx, word, cmp, value);
}

__device__ inline int32_t test(warp_scope, rushmem_ctx ctx, const int32_t *word, int32_t cmp, int32_t value) {
  return rushmem_device_int32_test_warp(ctx, word, cmp, value);
}

__device__ inline int32_t test(block_scope, rushmem_ctx ctx, const int32_t *word, int32_t cmp, int32_t value) {
  return rushmem_device_int32_test_block(ctx, word, cmp, value);
}

__device__ inline int32_t test(thread_scope, rushmem_ctx ctx, const int64_t *word, int32_t cmp, int64_t value) {
  return rushmem_device_int64_test(ctx, word, cmp, value);
}

__device__ inline int32_t test(warp_scope, rushmem_ctx ctx, const int64_t *word, int32_t cmp, int64_t value) {
  return rushmem_device_int64_test_warp(ctx, word, cmp, value);
}

__device__ inline int32_t test(block_scope, rushmem_ctx ctx, const int64_t *word, int32_t cmp, int64_t value) {
  return rushmem_device_int64_test_block(ctx, word, cmp, value);
}

} // namespace detail

__device__ inline int32_t my_pe(rushmem_ctx ctx) {
  return rushmem_device_my_pe(ctx);
}

__device__ inline int32_t n_pes(rushmem_ctx ctx) {
  return rushmem_device_n_pes(ctx);
}

__device__ inline int32_t is_lost(thread_scope, rushmem_ctx ctx, int32_t pe) {
  return rushmem_device_is_lost(ctx, pe);
}

__device__ inline int32_t is_lost(warp_scope, rushmem_ctx ctx, int32_t pe) {
  return rushmem_device_is_lost_warp(ctx, pe);
}

__device__ inline int32_t is_lost(block_scope, rushmem_ctx ctx, int32_t pe) {
  return rushmem_device_is_lost_block(ctx, pe);
}

__device__ inline void * ptr(rushmem_ctx ctx, const void *address, int32_t pe) {
  return rushmem_device_ptr(ctx, address, pe);
}

__device__ inline int32_t team_my_pe(rushmem_ctx ctx, rushmem_team team) {
  return rushmem_device_team_my_pe(ctx, team);
}

__device__ inline int32_t team_n_pes(rushmem_ctx ctx, rushmem_team team) {
  return rushmem_device_team_n_pes(ctx, team);
}

__device__ inline int32_t team_translate_pe(rushmem_ctx ctx, rushmem_team from, int32_t pe, rushmem_team to) {
  return rushmem_device_team_translate_pe(ctx, from, pe, to);
}

__device__ inline int32_t putmem(thread_scope, rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe) {
  return rushmem_device_putmem(ctx, dst, src, bytes, pe);
}

template <class T> __device__ inline int32_t put(thread_scope, rushmem_ctx ctx, T *dst, const typename detail::same<T>::type *src, size_t n, int32_t pe) {
  return rushmem_device_putmem(ctx, dst, src, n * sizeof(T), pe);
}

__device__ inline int32_t putmem(warp_scope, rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe) {
  return rushmem_device_putmem_warp(ctx, dst, src, bytes, pe);
}

template <class T> __device__ inline int32_t put(warp_scope, rushmem_ctx ctx, T *dst, const typename detail::same<T>::type *src, size_t n, int32_t pe) {
  return rushmem_device_putmem_warp(ctx, dst, src, n * sizeof(T), pe);
}

__device__ inline int32_t putmem(block_scope, rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe) {
  return rushmem_device_putmem_block(ctx, dst, src, bytes, pe);
}

template <class T> __device__ inline int32_t put(block_scope, rushmem_ctx ctx, T *dst, const typename detail::same<T>::type *src, size_t n, int32_t pe) {
  return rushmem_device_putmem_block(ctx, dst, src, n * sizeof(T), pe);
}

__device__ inline int32_t putmem_nbi(thread_scope, rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe) {
  return rushmem_device_putmem_nbi(ctx, dst, src, bytes, pe);
}

template <class T> __device__ inline int32_t put_nbi(thread_scope, rushmem_ctx ctx, T *dst, const typename detail::same<T>::type *src, size_t n, int32_t pe) {
  return rushmem_device_putmem_nbi(ctx, dst, src, n * sizeof(T), pe);
}

__device__ inline int32_t putmem_nbi(warp_scope, rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe) {
  return rushmem_device_putmem_nbi_warp(ctx, dst, src, bytes, pe);
}

template <class T> __device__ inline int32_t put_nbi(warp_scope, rushmem_ctx ctx, T *dst, const typename detail::same<T>::type *src, size_t n, int32_t pe) {
  return rushmem_device_putmem_nbi_warp(ctx, dst, src, n * sizeof(T), pe);
}

__device__ inline int32_t putmem_nbi(block_scope, rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe) {
  return rushmem_device_putmem_nbi_block(ctx, dst, src, bytes, pe);
}

template <class T> __device__ inline int32_t put_nbi(block_scope, rushmem_ctx ctx, T *dst, const typename detail::same<T>::type *src, size_t n, int32_t pe) {
  return rushmem_device_putmem_nbi_block(ctx, dst, src, n * sizeof(T), pe);
}

__device__ inline int32_t getmem(thread_scope, rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe) {
  return rushmem_device_getmem(ctx, dst, src, bytes, pe);
}

template <class T> __device__ inline int32_t get(thread_scope, rushmem_ctx ctx, T *dst, const typename detail::same<T>::type *src, size_t n, int32_t pe) {
  return rushmem_device_getmem(ctx, dst, src, n * sizeof(T), pe);
}

__device__ inline int32_t getmem(warp_scope, rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe) {
  return rushmem_device_getmem_warp(ctx, dst, src, bytes, pe);
}

template <class T> __device__ inline int32_t get(warp_scope, rushmem_ctx ctx, T *dst, const typename detail::same<T>::type *src, size_t n, int32_t pe) {
  return rushmem_device_getmem_warp(ctx, dst, src, n * sizeof(T), pe);
}

__device__ inline int32_t getmem(block_scope, rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe) {
  return rushmem_device_getmem_block(ctx, dst, src, bytes, pe);
}

template <class T> __device__ inline int32_t get(block_scope, rushmem_ctx ctx, T *dst, const typename detail::same<T>::type *src, size_t n, int32_t pe) {
  return rushmem_device_getmem_block(ctx, dst, src, n * sizeof(T), pe);
}

__device__ inline int32_t getmem_nbi(thread_scope, rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe) {
  return rushmem_device_getmem_nbi(ctx, dst, src, bytes, pe);
}

template <class T> __device__ inline int32_t get_nbi(thread_scope, rushmem_ctx ctx, T *dst, const typename detail::same<T>::type *src, size_t n, int32_t pe) {
  return rushmem_device_getmem_nbi(ctx, dst, src, n * sizeof(T), pe);
}

__device__ inline int32_t getmem_nbi(warp_scope, rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe) {
  return rushmem_device_getmem_nbi_warp(ctx, dst, src, bytes, pe);
}

template <class T> __device__ inline int32_t get_nbi(warp_scope, rushmem_ctx ctx, T *dst, const typename detail::same<T>::type *src, size_t n, int32_t pe) {
  return rushmem_device_getmem_nbi_warp(ctx, dst, src, n * sizeof(T), pe);
}

__device__ inline int32_t getmem_nbi(block_scope, rushmem_ctx ctx, void *dst, const void *src, size_t bytes, int32_t pe) {
  return rushmem_device_getmem_nbi_block(ctx, dst, src, bytes, pe);
}

template <class T> __device__ inline int32_t get_nbi(block_scope, rushmem_ctx ctx, T *dst, const typename detail::same<T>::type *src, size_t n, int32_t pe) {
  return rushmem_device_getmem_nbi_block(ctx, dst, src, n * sizeof(T), pe);
}

template <class T> __device__ inline int32_t p(rushmem_ctx ctx, T *dst, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::p(thread_scope{}, ctx, reinterpret_cast<W *>(dst), detail::bits<W>(value), pe);
}

template <class T> __device__ inline T g(rushmem_ctx ctx, const T *src, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::g(thread_scope{}, ctx, reinterpret_cast<const W *>(src), pe));
}

template <class T> __device__ inline T atomic_fetch(thread_scope, rushmem_ctx ctx, const T *word, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_fetch(thread_scope{}, ctx, reinterpret_cast<const W *>(word), pe));
}

template <class T> __device__ inline T atomic_fetch(warp_scope, rushmem_ctx ctx, const T *word, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_fetch(warp_scope{}, ctx, reinterpret_cast<const W *>(word), pe));
}

template <class T> __device__ inline T atomic_fetch(block_scope, rushmem_ctx ctx, const T *word, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_fetch(block_scope{}, ctx, reinterpret_cast<const W *>(word), pe));
}

template <class T> __device__ inline int32_t atomic_set(thread_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::atomic_set(thread_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe);
}

template <class T> __device__ inline int32_t atomic_set(warp_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::atomic_set(warp_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe);
}

template <class T> __device__ inline int32_t atomic_set(block_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::atomic_set(block_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe);
}

template <class T> __device__ inline T atomic_swap(thread_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_swap(thread_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe));
}

template <class T> __device__ inline T atomic_swap(warp_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_swap(warp_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe));
}

template <class T> __device__ inline T atomic_swap(block_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_swap(block_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe));
}

template <class T> __device__ inline T atomic_compare_swap(thread_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type compare, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_compare_swap(thread_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(compare), detail::bits<W>(value), pe));
}

template <class T> __device__ inline T atomic_compare_swap(warp_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type compare, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_compare_swap(warp_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(compare), detail::bits<W>(value), pe));
}

template <class T> __device__ inline T atomic_compare_swap(block_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type compare, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_compare_swap(block_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(compare), detail::bits<W>(value), pe));
}

template <class T> __device__ inline int32_t atomic_add(thread_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::atomic_add(thread_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe);
}

template <class T> __device__ inline int32_t atomic_add(warp_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::atomic_add(warp_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe);
}

template <class T> __device__ inline int32_t atomic_add(block_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::atomic_add(block_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe);
}

template <class T> __device__ inline T atomic_fetch_add(thread_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_fetch_add(thread_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe));
}

template <class T> __device__ inline T atomic_fetch_add(warp_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_fetch_add(warp_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe));
}

template <class T> __device__ inline T atomic_fetch_add(block_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_fetch_add(block_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe));
}

template <class T> __device__ inline int32_t atomic_inc(thread_scope, rushmem_ctx ctx, T *word, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::atomic_inc(thread_scope{}, ctx, reinterpret_cast<W *>(word), pe);
}

template <class T> __device__ inline int32_t atomic_inc(warp_scope, rushmem_ctx ctx, T *word, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::atomic_inc(warp_scope{}, ctx, reinterpret_cast<W *>(word), pe);
}

template <class T> __device__ inline int32_t atomic_inc(block_scope, rushmem_ctx ctx, T *word, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::atomic_inc(block_scope{}, ctx, reinterpret_cast<W *>(word), pe);
}

template <class T> __device__ inline T atomic_fetch_inc(thread_scope, rushmem_ctx ctx, T *word, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_fetch_inc(thread_scope{}, ctx, reinterpret_cast<W *>(word), pe));
}

template <class T> __device__ inline T atomic_fetch_inc(warp_scope, rushmem_ctx ctx, T *word, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_fetch_inc(warp_scope{}, ctx, reinterpret_cast<W *>(word), pe));
}

template <class T> __device__ inline T atomic_fetch_inc(block_scope, rushmem_ctx ctx, T *word, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_fetch_inc(block_scope{}, ctx, reinterpret_cast<W *>(word), pe));
}

template <class T> __device__ inline int32_t atomic_and(thread_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::atomic_and(thread_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe);
}

template <class T> __device__ inline int32_t atomic_and(warp_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::atomic_and(warp_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe);
}

template <class T> __device__ inline int32_t atomic_and(block_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::atomic_and(block_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe);
}

template <class T> __device__ inline T atomic_fetch_and(thread_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_fetch_and(thread_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe));
}

template <class T> __device__ inline T atomic_fetch_and(warp_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_fetch_and(warp_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe));
}

template <class T> __device__ inline T atomic_fetch_and(block_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_fetch_and(block_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe));
}

template <class T> __device__ inline int32_t atomic_or(thread_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::atomic_or(thread_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe);
}

template <class T> __device__ inline int32_t atomic_or(warp_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::atomic_or(warp_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe);
}

template <class T> __device__ inline int32_t atomic_or(block_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::atomic_or(block_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe);
}

template <class T> __device__ inline T atomic_fetch_or(thread_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_fetch_or(thread_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe));
}

template <class T> __device__ inline T atomic_fetch_or(warp_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_fetch_or(warp_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe));
}

template <class T> __device__ inline T atomic_fetch_or(block_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_fetch_or(block_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe));
}

template <class T> __device__ inline int32_t atomic_xor(thread_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::atomic_xor(thread_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe);
}

template <class T> __device__ inline int32_t atomic_xor(warp_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::atomic_xor(warp_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe);
}

template <class T> __device__ inline int32_t atomic_xor(block_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::atomic_xor(block_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe);
}

template <class T> __device__ inline T atomic_fetch_xor(thread_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_fetch_xor(thread_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe));
}

template <class T> __device__ inline T atomic_fetch_xor(warp_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_fetch_xor(warp_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe));
}

template <class T> __device__ inline T atomic_fetch_xor(block_scope, rushmem_ctx ctx, T *word, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::word<T>::type;
  return detail::bits<T>(detail::atomic_fetch_xor(block_scope{}, ctx, reinterpret_cast<W *>(word), detail::bits<W>(value), pe));
}

__device__ inline int32_t putmem_signal(thread_scope, rushmem_ctx ctx, void *dst, const void *src, size_t bytes, uint64_t *signal, uint64_t value, int32_t op, int32_t pe) {
  return rushmem_device_putmem_signal(ctx, dst, src, bytes, signal, value, op, pe);
}

template <class T> __device__ inline int32_t put_signal(thread_scope, rushmem_ctx ctx, T *dst, const typename detail::same<T>::type *src, size_t n, uint64_t *signal, uint64_t value, int32_t op, int32_t pe) {
  return rushmem_device_putmem_signal(ctx, dst, src, n * sizeof(T), signal, value, op, pe);
}

__device__ inline int32_t putmem_signal(warp_scope, rushmem_ctx ctx, void *dst, const void *src, size_t bytes, uint64_t *signal, uint64_t value, int32_t op, int32_t pe) {
  return rushmem_device_putmem_signal_warp(ctx, dst, src, bytes, signal, value, op, pe);
}

template <class T> __device__ inline int32_t put_signal(warp_scope, rushmem_ctx ctx, T *dst, const typename detail::same<T>::type *src, size_t n, uint64_t *signal, uint64_t value, int32_t op, int32_t pe) {
  return rushmem_device_putmem_signal_warp(ctx, dst, src, n * sizeof(T), signal, value, op, pe);
}

__device__ inline int32_t putmem_signal(block_scope, rushmem_ctx ctx, void *dst, const void *src, size_t bytes, uint64_t *signal, uint64_t value, int32_t op, int32_t pe) {
  return rushmem_device_putmem_signal_block(ctx, dst, src, bytes, signal, value, op, pe);
}

template <class T> __device__ inline int32_t put_signal(block_scope, rushmem_ctx ctx, T *dst, const typename detail::same<T>::type *src, size_t n, uint64_t *signal, uint64_t value, int32_t op, int32_t pe) {
  return rushmem_device_putmem_signal_block(ctx, dst, src, n * sizeof(T), signal, value, op, pe);
}

__device__ inline int32_t putmem_signal_nbi(thread_scope, rushmem_ctx ctx, void *dst, const void *src, size_t bytes, uint64_t *signal, uint64_t value, int32_t op, int32_t pe) {
  return rushmem_device_putmem_signal_nbi(ctx, dst, src, bytes, signal, value, op, pe);
}

template <class T> __device__ inline int32_t put_signal_nbi(thread_scope, rushmem_ctx ctx, T *dst, const typename detail::same<T>::type *src, size_t n, uint64_t *signal, uint64_t value, int32_t op, int32_t pe) {
  return rushmem_device_putmem_signal_nbi(ctx, dst, src, n * sizeof(T), signal, value, op, pe);
}

__device__ inline int32_t putmem_signal_nbi(warp_scope, rushmem_ctx ctx, void *dst, const void *src, size_t bytes, uint64_t *signal, uint64_t value, int32_t op, int32_t pe) {
  return rushmem_device_putmem_signal_nbi_warp(ctx, dst, src, bytes, signal, value, op, pe);
}

template <class T> __device__ inline int32_t put_signal_nbi(warp_scope, rushmem_ctx ctx, T *dst, const typename detail::same<T>::type *src, size_t n, uint64_t *signal, uint64_t value, int32_t op, int32_t pe) {
  return rushmem_device_putmem_signal_nbi_warp(ctx, dst, src, n * sizeof(T), signal, value, op, pe);
}

__device__ inline int32_t putmem_signal_nbi(block_scope, rushmem_ctx ctx, void *dst, const void *src, size_t bytes, uint64_t *signal, uint64_t value, int32_t op, int32_t pe) {
  return rushmem_device_putmem_signal_nbi_block(ctx, dst, src, bytes, signal, value, op, pe);
}

template <class T> __device__ inline int32_t put_signal_nbi(block_scope, rushmem_ctx ctx, T *dst, const typename detail::same<T>::type *src, size_t n, uint64_t *signal, uint64_t value, int32_t op, int32_t pe) {
  return rushmem_device_putmem_signal_nbi_block(ctx, dst, src, n * sizeof(T), signal, value, op, pe);
}

__device__ inline int32_t signal_op(thread_scope, rushmem_ctx ctx, uint64_t *signal, uint64_t value, int32_t op, int32_t pe) {
  return rushmem_device_signal_op(ctx, signal, value, op, pe);
}

__device__ inline int32_t signal_op(warp_scope, rushmem_ctx ctx, uint64_t *signal, uint64_t value, int32_t op, int32_t pe) {
  return rushmem_device_signal_op_warp(ctx, signal, value, op, pe);
}

__device__ inline int32_t signal_op(block_scope, rushmem_ctx ctx, uint64_t *signal, uint64_t value, int32_t op, int32_t pe) {
  return rushmem_device_signal_op_block(ctx, signal, value, op, pe);
}

__device__ inline uint64_t signal_fetch(thread_scope, rushmem_ctx ctx, const uint64_t *signal) {
  return rushmem_device_signal_fetch(ctx, signal);
}

__device__ inline uint64_t signal_fetch(warp_scope, rushmem_ctx ctx, const uint64_t *signal) {
  return rushmem_device_signal_fetch_warp(ctx, signal);
}

__device__ inline uint64_t signal_fetch(block_scope, rushmem_ctx ctx, const uint64_t *signal) {
  return rushmem_device_signal_fetch_block(ctx, signal);
}

__device__ inline int32_t signal_wait_until(thread_scope, rushmem_ctx ctx, const uint64_t *signal, int32_t cmp, uint64_t value) {
  return rushmem_device_signal_wait_until(ctx, signal, cmp, value);
}

__device__ inline int32_t signal_wait_until(warp_scope, rushmem_ctx ctx, const uint64_t *signal, int32_t cmp, uint64_t value) {
  return rushmem_device_signal_wait_until_warp(ctx, signal, cmp, value);
}

__device__ inline int32_t signal_wait_until(block_scope, rushmem_ctx ctx, const uint64_t *signal, int32_t cmp, uint64_t value) {
  return rushmem_device_signal_wait_until_block(ctx, signal, cmp, value);
}

__device__ inline int32_t signal_wait_until_from(thread_scope, rushmem_ctx ctx, const uint64_t *signal, int32_t cmp, uint64_t value, int32_t pe) {
  return rushmem_device_signal_wait_until_from(ctx, signal, cmp, value, pe);
}

__device__ inline int32_t signal_wait_until_from(warp_scope, rushmem_ctx ctx, const uint64_t *signal, int32_t cmp, uint64_t value, int32_t pe) {
  return rushmem_device_signal_wait_until_from_warp(ctx, signal, cmp, value, pe);
}

__device__ inline int32_t signal_wait_until_from(block_scope, rushmem_ctx ctx, const uint64_t *signal, int32_t cmp, uint64_t value, int32_t pe) {
  return rushmem_device_signal_wait_until_from_block(ctx, signal, cmp, value, pe);
}

template <class T> __device__ inline int32_t wait_until(thread_scope, rushmem_ctx ctx, const T *word, int32_t cmp, typename detail::same<T>::type value) {
  using W = typename detail::number<T>::type;
  return detail::wait_until(thread_scope{}, ctx, reinterpret_cast<const W *>(word), cmp, detail::bits<W>(value));
}

template <class T> __device__ inline int32_t wait_until(warp_scope, rushmem_ctx ctx, const T *word, int32_t cmp, typename detail::same<T>::type value) {
  using W = typename detail::number<T>::type;
  return detail::wait_until(warp_scope{}, ctx, reinterpret_cast<const W *>(word), cmp, detail::bits<W>(value));
}

template <class T> __device__ inline int32_t wait_until(block_scope, rushmem_ctx ctx, const T *word, int32_t cmp, typename detail::same<T>::type value) {
  using W = typename detail::number<T>::type;
  return detail::wait_until(block_scope{}, ctx, reinterpret_cast<const W *>(word), cmp, detail::bits<W>(value));
}

template <class T> __device__ inline int32_t wait_until_from(thread_scope, rushmem_ctx ctx, const T *word, int32_t cmp, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::number<T>::type;
  return detail::wait_until_from(thread_scope{}, ctx, reinterpret_cast<const W *>(word), cmp, detail::bits<W>(value), pe);
}

template <class T> __device__ inline int32_t wait_until_from(warp_scope, rushmem_ctx ctx, const T *word, int32_t cmp, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::number<T>::type;
  return detail::wait_until_from(warp_scope{}, ctx, reinterpret_cast<const W *>(word), cmp, detail::bits<W>(value), pe);
}

template <class T> __device__ inline int32_t wait_until_from(block_scope, rushmem_ctx ctx, const T *word, int32_t cmp, typename detail::same<T>::type value, int32_t pe) {
  using W = typename detail::number<T>::type;
  return detail::wait_until_from(block_scope{}, ctx, reinterpret_cast<const W *>(word), cmp, detail::bits<W>(value), pe);
}

template <class T> __device__ inline int32_t test(thread_scope, rushmem_ctx ctx, const T *word, int32_t cmp, typename detail::same<T>::type value) {
  using W = typename detail::number<T>::type;
  return detail::test(thread_scope{}, ctx, reinterpret_cast<const W *>(word), cmp, detail::bits<W>(value));
}

template <class T> __device__ inline int32_t test(warp_scope, rushmem_ctx ctx, const T *word, int32_t cmp, typename detail::same<T>::type value) {
  using W = typename detail::number<T>::type;
  return detail::test(warp_scope{}, ctx, reinterpret_cast<const W *>(word), cmp, detail::bits<W>(value));
}

template <class T> __device__ inline int32_t test(block_scope, rushmem_ctx ctx, const T *word, int32_t cmp, typename detail::same<T>::type value) {
  using W = typename detail::number<T>::type;
  return detail::test(block_scope{}, ctx, reinterpret_cast<const W *>(word), cmp, detail::bits<W>(value));
}

__device__ inline int32_t fence(thread_scope, rushmem_ctx ctx) {
  return rushmem_device_fence(ctx);
}

__device__ inline int32_t fence(warp_scope, rushmem_ctx ctx) {
  return rushmem_device_fence_warp(ctx);
}

__device__ inline int32_t fence(block_scope, rushmem_ctx ctx) {
  return rushmem_device_fence_block(ctx);
}

__device__ inline int32_t quiet(thread_scope, rushmem_ctx ctx) {
  return rushmem_device_quiet(ctx);
}

__device__ inline int32_t quiet(warp_scope, rushmem_ctx ctx) {
  return rushmem_device_quiet_warp(ctx);
}

__device__ inline int32_t quiet(block_scope, rushmem_ctx ctx) {
  return rushmem_device_quiet_block(ctx);
}

__device__ inline int32_t barrier_all(thread_scope, rushmem_ctx ctx) {
  return rushmem_device_barrier_all(ctx);
}

__device__ inline int32_t barrier_all(warp_scope, rushmem_ctx ctx) {
  return rushmem_device_barrier_all_warp(ctx);
}

__device__ inline int32_t barrier_all(block_scope, rushmem_ctx ctx) {
  return rushmem_device_barrier_all_block(ctx);
}

__device__ inline int32_t sync_all(thread_scope, rushmem_ctx ctx) {
  return rushmem_device_sync_all(ctx);
}

__device__ inline int32_t sync_all(warp_scope, rushmem_ctx ctx) {
  return rushmem_device_sync_all_warp(ctx);
}

__device__ inline int32_t sync_all(block_scope, rushmem_ctx ctx) {
  return rushmem_device_sync_all_block(ctx);
}

__device__ inline int32_t barrier(thread_scope, rushmem_ctx ctx, rushmem_team team) {
  return rushmem_device_barrier(ctx, team);
}

__device__ inline int32_t barrier(warp_scope, rushmem_ctx ctx, rushmem_team team) {
  return rushmem_device_barrier_warp(ctx, team);
}

__device__ inline int32_t barrier(block_scope, rushmem_ctx ctx, rushmem_team team) {
  return rushmem_device_barrier_block(ctx, team);
}

__device__ inline int32_t team_sync(thread_scope, rushmem_ctx ctx, rushmem_team team) {
  return rushmem_device_team_sync(ctx, team);
}

__device__ inline int32_t team_sync(warp_scope, rushmem_ctx ctx, rushmem_team team) {
  return rushmem_device_team_sync_warp(ctx, team);
}

__device__ inline int32_t team_sync(block_scope, rushmem_ctx ctx, rushmem_team team) {
  return rushmem_device_team_sync_block(ctx, team);
}

__device__ inline int32_t broadcastmem(warp_scope, rushmem_ctx ctx, rushmem_team team, void *dst, const void *src, size_t bytes, int32_t root) {
  return rushmem_device_broadcastmem_warp(ctx, team, dst, src, bytes, root);
}

template <class T> __device__ inline int32_t broadcast(warp_scope, rushmem_ctx ctx, rushmem_team team, T *dst, const typename detail::same<T>::type *src, size_t n, int32_t root) {
  return rushmem_device_broadcastmem_warp(ctx, team, dst, src, n * sizeof(T), root);
}

__device__ inline int32_t broadcastmem(block_scope, rushmem_ctx ctx, rushmem_team team, void *dst, const void *src, size_t bytes, int32_t root) {
  return rushmem_device_broadcastmem_block(ctx, team, dst, src, bytes, root);
}

template <class T> __device__ inline int32_t broadcast(block_scope, rushmem_ctx ctx, rushmem_team team, T *dst, const typename detail::same<T>::type *src, size_t n, int32_t root) {
  return rushmem_device_broadcastmem_block(ctx, team, dst, src, n * sizeof(T), root);
}

__device__ inline int32_t fcollectmem(warp_scope, rushmem_ctx ctx, rushmem_team team, void *dst, const void *src, size_t bytes) {
  return rushmem_device_fcollectmem_warp(ctx, team, dst, src, bytes);
}

template <class T> __device__ inline int32_t fcollect(warp_scope, rushmem_ctx ctx, rushmem_team team, T *dst, const typename detail::same<T>::type *src, size_t n) {
  return rushmem_device_fcollectmem_warp(ctx, team, dst, src, n * sizeof(T));
}

__device__ inline int32_t fcollectmem(block_scope, rushmem_ctx ctx, rushmem_team team, void *dst, const void *src, size_t bytes) {
  return rushmem_device_fcollectmem_block(ctx, team, dst, src, bytes);
}

template <class T> __device__ inline int32_t fcollect(block_scope, rushmem_ctx ctx, rushmem_team team, T *dst, const typename detail::same<T>::type *src, size_t n) {
  return rushmem_device_fcollectmem_block(ctx, team, dst, src, n * sizeof(T));
}

__device__ inline int32_t alltoallmem(warp_scope, rushmem_ctx ctx, rushmem_team team, void *dst, const void *src, size_t bytes) {
  return rushmem_device_alltoallmem_warp(ctx, team, dst, src, bytes);
}

template <class T> __device__ inline int32_t alltoall(warp_scope, rushmem_ctx ctx, rushmem_team team, T *dst, const typename detail::same<T>::type *src, size_t n) {
  return rushmem_device_alltoallmem_warp(ctx, team, dst, src, n * sizeof(T));
}

__device__ inline int32_t alltoallmem(block_scope, rushmem_ctx ctx, rushmem_team team, void *dst, const void *src, size_t bytes) {
  return rushmem_device_alltoallmem_block(ctx, team, dst, src, bytes);
}

template <class T> __device__ inline int32_t alltoall(block_scope, rushmem_ctx ctx, rushmem_team team, T *dst, const typename detail::same<T>::type *src, size_t n) {
  return rushmem_device_alltoallmem_block(ctx, team, dst, src, n * sizeof(T));
}

__device__ inline int32_t reduce(warp_scope, rushmem_ctx ctx, rushmem_team team, void *dst, const void *src, size_t bytes, int32_t type, int32_t op) {
  return rushmem_device_reduce_warp(ctx, team, dst, src, bytes, type, op);
}

__device__ inline int32_t reduce(block_scope, rushmem_ctx ctx, rushmem_team team, void *dst, const void *src, size_t bytes, int32_t type, int32_t op) {
  return rushmem_device_reduce_block(ctx, team, dst, src, bytes, type, op);
}

__device__ inline int32_t reduce_scatter(warp_scope, rushmem_ctx ctx, rushmem_team team, void *dst, const void *src, size_t bytes, int32_t type, int32_t op) {
  return rushmem_device_reduce_scatter_warp(ctx, team, dst, src, bytes, type, op);
}

__device__ inline int32_t reduce_scatter(block_scope, rushmem_ctx ctx, rushmem_team team, void *dst, const void *src, size_t bytes, int32_t type, int32_t op) {
  return rushmem_device_reduce_scatter_block(ctx, team, dst, src, bytes, type, op);
}

} // namespace rushmem

#endif
