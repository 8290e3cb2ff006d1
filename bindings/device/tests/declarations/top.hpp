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
