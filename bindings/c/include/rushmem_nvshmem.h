// NVSHMEM's names for Rushmem, so that programs in CUDA C++ compile unchanged: `-I bindings/c/include/nvshmem` selects
// <nvshmem.h> and <nvshmemx.h>, which include this file. It needs `nvcc -rdc=true` and C++17.
//
// NVSHMEM's device functions have no context argument. Each translation unit with this header therefore has a
// `__constant__` variable of 8 bytes, which initialization sets on the GPU of the PE, and finalization clears. A call
// reads it from the constant cache. Translation units that are loaded after initialization are not covered: their
// device functions access address 0, which CUDA reports.
//
// Most of NVSHMEM's functions cannot return an error. Here, a call of the host that fails prints the reason and ends
// the job with exit code 1. The host finds errors of kernels at its next barrier, `nvshmem_quiet` or
// `nvshmem_finalize`, and errors of operations in streams at `nvshmem_finalize`.
//
// What is missing is not declared, so it does not compile. docs/porting.md lists it.
#ifndef RUSHMEM_NVSHMEM_H
#define RUSHMEM_NVSHMEM_H

#ifndef __cplusplus
#error "rushmem_nvshmem.h needs C++; use rushmem.h in C"
#endif
#if defined(__CUDACC__) && !defined(__CUDACC_RDC__)
#error "rushmem_nvshmem.h needs nvcc -rdc=true, to link with librushmem_device.a"
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "rushmem.h"

#ifdef __CUDACC__
#include "rushmem_device.hpp"
#define RN_BOTH static inline __host__ __device__
#define RN_DEVICE static inline __device__
// Runs a device call in kernels, and a host call elsewhere.
#ifdef __CUDA_ARCH__
#define RN_SELECT(device, host) device
#else
#define RN_SELECT(device, host) host
#endif
#else
#define RN_BOTH static inline
#define RN_SELECT(device, host) host
#endif
#define RN_HOST static inline
#define RN_CTX rushmem::nvshmem::ctx
#define RN_PE rushmem::nvshmem::pe()
#define RN_CHECK rushmem::nvshmem::check

typedef rushmem_team nvshmem_team_t;

typedef struct {
  int num_contexts;
} nvshmem_team_config_t;

typedef struct {
  char text[RUSHMEM_UNIQUE_ID_BYTES];
} nvshmemx_uniqueid_t;

typedef struct {
  int pe, n_pes;
  const nvshmemx_uniqueid_t *id;
} nvshmemx_init_attr_t;

#define NVSHMEMX_UNIQUEID_INITIALIZER {{0}}
#define NVSHMEMX_INIT_ATTR_INITIALIZER {0, 0, nullptr}

enum { NVSHMEMX_INIT_WITH_UNIQUEID = 1 << 3 };
enum { NVSHMEM_THREAD_SINGLE, NVSHMEM_THREAD_FUNNELED, NVSHMEM_THREAD_SERIALIZED, NVSHMEM_THREAD_MULTIPLE };
enum { NVSHMEM_STATUS_NOT_INITIALIZED, NVSHMEM_STATUS_IS_BOOTSTRAPPED, NVSHMEM_STATUS_IS_INITIALIZED };
enum { NVSHMEM_SIGNAL_SET = RUSHMEM_SIGNAL_SET, NVSHMEM_SIGNAL_ADD = RUSHMEM_SIGNAL_ADD };
enum {
  NVSHMEM_CMP_EQ = RUSHMEM_CMP_EQ,
  NVSHMEM_CMP_NE = RUSHMEM_CMP_NE,
  NVSHMEM_CMP_GT = RUSHMEM_CMP_GT,
  NVSHMEM_CMP_GE = RUSHMEM_CMP_GE,
  NVSHMEM_CMP_LT = RUSHMEM_CMP_LT,
  NVSHMEM_CMP_LE = RUSHMEM_CMP_LE,
};
#define NVSHMEM_TEAM_INVALID ((nvshmem_team_t)RUSHMEM_TEAM_INVALID)
#define NVSHMEM_TEAM_WORLD ((nvshmem_team_t)RUSHMEM_TEAM_WORLD)
#define NVSHMEM_TEAM_SHARED ((nvshmem_team_t)RUSHMEM_TEAM_SHARED)
#define NVSHMEMX_TEAM_NODE ((nvshmem_team_t)RUSHMEM_TEAM_NODE)

namespace rushmem {
namespace nvshmem {

// A translation unit with kernels.
struct unit {
  void (*set_context)(uint64_t);
  unit *next;
};

struct job {
  rushmem_pe *pe;
  int gpu;
  unit *units;
};

inline job &this_job() {
  static job only = {nullptr, -1, nullptr};
  return only;
}

inline rushmem_pe *pe() { return this_job().pe; }

[[noreturn]] inline void fail(const char *what) {
  fprintf(stderr, "%s\n", what);
  if (pe()) {
    rushmem_global_exit(pe(), 1);
  }
  exit(1);
}

inline void check(int32_t status) {
  if (status != RUSHMEM_STATUS_SUCCESS) {
    fail(rushmem_error_message());
  }
}

inline void check(cudaError_t error) {
  if (error != cudaSuccess) {
    fail(cudaGetErrorString(error));
  }
}

// Reports errors of kernels, and a program that would launch kernels on another GPU.
inline void check_kernels() {
  check(rushmem_check(pe()));
  int current;
  check(cudaGetDevice(&current));
  if (current != this_job().gpu) {
    char text[128];
    snprintf(text, sizeof text, "the current GPU is %d, and that of this PE is %d: select it by RUSHMEM_GPUS", current,
             this_job().gpu);
    fail(text);
  }
}

// rushmem.h has another meaning for null. Translation units may differ in the default stream.
static inline void *stream(cudaStream_t of_program) {
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  return of_program ? of_program : cudaStreamPerThread;
#else
  return of_program ? of_program : cudaStreamLegacy;
#endif
}

inline void set_context(uint64_t context) {
  for (unit *each = this_job().units; each; each = each->next) {
    each->set_context(context);
  }
}

inline void start(const rushmem_init_options *options) {
  check(rushmem_init(options, &this_job().pe));
  this_job().gpu = rushmem_gpu(pe());
  if (this_job().gpu < 0) {
    fail("there is no GPU for the kernels of this program: this PE runs kernels natively");
  }
  check(cudaSetDevice(this_job().gpu));
  uint64_t context;
  check(rushmem_context(pe(), &context));
  set_context(context);
}

inline void *pointer(const void *memory, int peer) {
  void *address;
  check(rushmem_ptr(pe(), memory, peer, &address));
  return address;
}

// Checks an allocation. The memory stays null if the heap is full, as with NVSHMEM.
inline void check_allocation(int32_t status) {
  if (status != RUSHMEM_STATUS_OUT_OF_MEMORY) {
    check(status);
  }
}

inline uint64_t wait_for_signal(uint64_t *signal, int cmp, uint64_t value) {
  check(rushmem_signal_wait_until(pe(), signal, cmp, value));
  check(cudaMemcpy(&value, signal, sizeof value, cudaMemcpyDefault));
  return value;
}

#ifdef __CUDACC__
// The context of this PE, in this translation unit.
static __constant__ rushmem_ctx ctx;

static inline void set_unit_context(uint64_t context) { check(cudaMemcpyToSymbol(ctx, &context, sizeof context)); }

struct registered_unit : unit {
  explicit registered_unit(void (*set)(uint64_t)) : unit{set, this_job().units} { this_job().units = this; }
};
static registered_unit this_unit(set_unit_context);
#endif

} // namespace nvshmem
} // namespace rushmem

// Start, end and PEs.

RN_HOST void nvshmem_init() { rushmem::nvshmem::start(nullptr); }

RN_HOST int nvshmem_init_thread(int, int *provided) {
  nvshmem_init();
  *provided = NVSHMEM_THREAD_MULTIPLE;
  return 0;
}

RN_HOST int nvshmemx_get_uniqueid(nvshmemx_uniqueid_t *id) {
  RN_CHECK(rushmem_unique_id(id->text, sizeof id->text));
  return 0;
}

RN_HOST int nvshmemx_set_attr_uniqueid_args(int pe, int n_pes, const nvshmemx_uniqueid_t *id,
                                            nvshmemx_init_attr_t *attributes) {
  *attributes = {pe, n_pes, id};
  return 0;
}

RN_HOST int nvshmemx_init_attr(unsigned flags, nvshmemx_init_attr_t *attributes) {
  if (flags != NVSHMEMX_INIT_WITH_UNIQUEID) {
    rushmem::nvshmem::fail("nvshmemx_init_attr: only NVSHMEMX_INIT_WITH_UNIQUEID is supported");
  }
  rushmem_init_options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.unique_id = attributes->id->text;
  options.pe = attributes->pe;
  options.n_pes = attributes->n_pes;
  rushmem::nvshmem::start(&options);
  return 0;
}

RN_HOST int nvshmemx_init_status() {
  return RN_PE ? NVSHMEM_STATUS_IS_INITIALIZED : NVSHMEM_STATUS_NOT_INITIALIZED;
}

RN_HOST void nvshmem_finalize() {
  // Kernels may still be using the context.
  RN_CHECK(cudaDeviceSynchronize());
  rushmem::nvshmem::check_kernels();
  rushmem::nvshmem::set_context(0);
  RN_CHECK(rushmem_finalize(RN_PE));
  rushmem::nvshmem::this_job().pe = nullptr;
}

RN_HOST void nvshmem_global_exit(int status) { RN_CHECK(rushmem_global_exit(RN_PE, status)); }

RN_BOTH int nvshmem_my_pe() { return RN_SELECT(rushmem_device_my_pe(RN_CTX), rushmem_my_pe(RN_PE)); }

RN_BOTH int nvshmem_n_pes() { return RN_SELECT(rushmem_device_n_pes(RN_CTX), rushmem_n_pes(RN_PE)); }

// Symmetric memory.

RN_HOST void *nvshmem_align(size_t alignment, size_t bytes) {
  void *memory = nullptr;
  rushmem::nvshmem::check_kernels();
  rushmem::nvshmem::check_allocation(rushmem_malloc(RN_PE, bytes, alignment, &memory));
  return memory;
}

RN_HOST void *nvshmem_malloc(size_t bytes) { return nvshmem_align(0, bytes); }

RN_HOST void *nvshmem_calloc(size_t count, size_t bytes) {
  void *memory = nullptr;
  rushmem::nvshmem::check_kernels();
  rushmem::nvshmem::check_allocation(rushmem_calloc(RN_PE, count, bytes, &memory));
  return memory;
}

RN_HOST void nvshmem_free(void *memory) { RN_CHECK(rushmem_free(RN_PE, memory)); }

RN_BOTH void *nvshmem_ptr(const void *memory, int peer) {
  return RN_SELECT(rushmem_device_ptr(RN_CTX, memory, peer), rushmem::nvshmem::pointer(memory, peer));
}

RN_HOST int nvshmemx_buffer_register(void *memory, size_t bytes) {
  RN_CHECK(rushmem_register(RN_PE, memory, bytes));
  return 0;
}

RN_HOST int nvshmemx_buffer_unregister(void *memory) {
  RN_CHECK(rushmem_unregister(RN_PE, memory));
  return 0;
}

// Order and synchronization.

RN_BOTH void nvshmem_fence() { RN_SELECT(rushmem_device_fence(RN_CTX), RN_CHECK(rushmem_quiet(RN_PE))); }

RN_BOTH void nvshmem_quiet() {
  RN_SELECT(rushmem_device_quiet(RN_CTX), RN_CHECK(rushmem_quiet(RN_PE)); rushmem::nvshmem::check_kernels());
}

RN_BOTH void nvshmem_barrier_all() {
  RN_SELECT(rushmem_device_barrier_all(RN_CTX), RN_CHECK(rushmem_barrier_all(RN_PE));
            rushmem::nvshmem::check_kernels());
}

RN_BOTH void nvshmem_sync_all() {
  RN_SELECT(rushmem_device_sync_all(RN_CTX), RN_CHECK(rushmem_sync_all(RN_PE)); rushmem::nvshmem::check_kernels());
}

RN_BOTH int nvshmem_barrier(nvshmem_team_t team) {
  RN_SELECT(return rushmem_device_barrier(RN_CTX, team), RN_CHECK(rushmem_barrier(RN_PE, team));
            rushmem::nvshmem::check_kernels(); return 0);
}

// On the host, this completes operations too.
RN_BOTH int nvshmem_team_sync(nvshmem_team_t team) {
  RN_SELECT(return rushmem_device_team_sync(RN_CTX, team), RN_CHECK(rushmem_barrier(RN_PE, team));
            rushmem::nvshmem::check_kernels(); return 0);
}

RN_HOST void nvshmemx_quiet_on_stream(cudaStream_t stream) {
  RN_CHECK(rushmem_quiet_on_stream(RN_PE, rushmem::nvshmem::stream(stream)));
}

RN_HOST void nvshmemx_barrier_all_on_stream(cudaStream_t stream) {
  RN_CHECK(rushmem_barrier_all_on_stream(RN_PE, rushmem::nvshmem::stream(stream)));
}

RN_HOST void nvshmemx_sync_all_on_stream(cudaStream_t stream) {
  RN_CHECK(rushmem_sync_all_on_stream(RN_PE, rushmem::nvshmem::stream(stream)));
}

RN_HOST int nvshmemx_barrier_on_stream(nvshmem_team_t team, cudaStream_t stream) {
  RN_CHECK(rushmem_barrier_on_stream(RN_PE, team, rushmem::nvshmem::stream(stream)));
  return 0;
}

RN_HOST int nvshmemx_team_sync_on_stream(nvshmem_team_t team, cudaStream_t stream) {
  return nvshmemx_barrier_on_stream(team, stream);
}

// Teams.

RN_BOTH int nvshmem_team_my_pe(nvshmem_team_t team) {
  return RN_SELECT(rushmem_device_team_my_pe(RN_CTX, team), rushmem_team_my_pe(RN_PE, team));
}

RN_BOTH int nvshmem_team_n_pes(nvshmem_team_t team) {
  return RN_SELECT(rushmem_device_team_n_pes(RN_CTX, team), rushmem_team_n_pes(RN_PE, team));
}

RN_BOTH int nvshmem_team_translate_pe(nvshmem_team_t from, int index, nvshmem_team_t to) {
  return RN_SELECT(rushmem_device_team_translate_pe(RN_CTX, from, index, to),
                   rushmem_team_translate_pe(RN_PE, from, index, to));
}

RN_HOST int nvshmem_team_split_strided(nvshmem_team_t parent, int start, int stride, int size,
                                       const nvshmem_team_config_t *, long config_mask, nvshmem_team_t *made) {
  if (config_mask != 0) {
    rushmem::nvshmem::fail("nvshmem_team_split_strided: the mask must be 0, since teams have no options");
  }
  RN_CHECK(rushmem_team_split_strided(RN_PE, parent, start, stride, size, made));
  return 0;
}

RN_HOST void nvshmem_team_destroy(nvshmem_team_t team) { RN_CHECK(rushmem_team_destroy(RN_PE, team)); }

// Collective launches: the blocks of a kernel may wait for each other.

RN_HOST int nvshmemx_collective_launch_query_gridsize(const void *kernel, dim3 block, void **, size_t shared_bytes,
                                                      int *blocks) {
  int threads = block.x * block.y * block.z, processors, resident;
  RN_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, rushmem::nvshmem::this_job().gpu));
  RN_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, shared_bytes));
  *blocks = resident * processors;
  return 0;
}

// A grid without blocks stands for the largest one.
RN_HOST int nvshmemx_collective_launch(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                                       cudaStream_t stream) {
  if (grid.x == 0) {
    int blocks;
    nvshmemx_collective_launch_query_gridsize(kernel, block, arguments, shared_bytes, &blocks);
    grid = dim3(blocks);
  }
  return cudaLaunchCooperativeKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

// Puts and gets.

#define RN_COPY(OP, DST, SRC)                                                                                         \
  RN_BOTH void nvshmem_##OP(DST, SRC, size_t bytes, int pe) {                                                         \
    RN_SELECT(rushmem_device_##OP(RN_CTX, dst, src, bytes, pe), RN_CHECK(rushmem_##OP(RN_PE, dst, src, bytes, pe)));  \
  }                                                                                                                   \
  RN_BOTH void nvshmem_##OP##_nbi(DST, SRC, size_t bytes, int pe) {                                                   \
    RN_SELECT(rushmem_device_##OP##_nbi(RN_CTX, dst, src, bytes, pe),                                                 \
              RN_CHECK(rushmem_##OP(RN_PE, dst, src, bytes, pe)));                                                    \
  }                                                                                                                   \
  RN_HOST void nvshmemx_##OP##_on_stream(DST, SRC, size_t bytes, int pe, cudaStream_t stream) {                       \
    RN_CHECK(rushmem_##OP##_on_stream(RN_PE, dst, src, bytes, pe, rushmem::nvshmem::stream(stream)));                 \
  }                                                                                                                   \
  RN_HOST void nvshmemx_##OP##_nbi_on_stream(DST, SRC, size_t bytes, int pe, cudaStream_t stream) {                   \
    nvshmemx_##OP##_on_stream(dst, src, bytes, pe, stream);                                                           \
  }
RN_COPY(putmem, void *dst, const void *src)
RN_COPY(getmem, void *dst, const void *src)
#undef RN_COPY

RN_BOTH void nvshmem_putmem_signal(void *dst, const void *src, size_t bytes, uint64_t *signal, uint64_t value, int op,
                                   int pe) {
  RN_SELECT(rushmem_device_putmem_signal(RN_CTX, dst, src, bytes, signal, value, op, pe),
            RN_CHECK(rushmem_putmem_signal(RN_PE, dst, src, bytes, signal, value, op, pe)));
}

RN_BOTH void nvshmem_putmem_signal_nbi(void *dst, const void *src, size_t bytes, uint64_t *signal, uint64_t value,
                                       int op, int pe) {
  RN_SELECT(rushmem_device_putmem_signal_nbi(RN_CTX, dst, src, bytes, signal, value, op, pe),
            RN_CHECK(rushmem_putmem_signal(RN_PE, dst, src, bytes, signal, value, op, pe)));
}

RN_HOST void nvshmemx_putmem_signal_on_stream(void *dst, const void *src, size_t bytes, uint64_t *signal,
                                              uint64_t value, int op, int pe, cudaStream_t stream) {
  RN_CHECK(rushmem_putmem_signal_on_stream(RN_PE, dst, src, bytes, signal, value, op, pe,
                                           rushmem::nvshmem::stream(stream)));
}

RN_HOST void nvshmemx_putmem_signal_nbi_on_stream(void *dst, const void *src, size_t bytes, uint64_t *signal,
                                                  uint64_t value, int op, int pe, cudaStream_t stream) {
  nvshmemx_putmem_signal_on_stream(dst, src, bytes, signal, value, op, pe, stream);
}

RN_BOTH void nvshmemx_signal_op(uint64_t *signal, uint64_t value, int op, int pe) {
  RN_SELECT(rushmem_device_signal_op(RN_CTX, signal, value, op, pe),
            RN_CHECK(rushmem_signal_op(RN_PE, signal, value, op, pe)));
}

RN_HOST void nvshmemx_signal_op_on_stream(uint64_t *signal, uint64_t value, int op, int pe, cudaStream_t stream) {
  RN_CHECK(rushmem_signal_op_on_stream(RN_PE, signal, value, op, pe, rushmem::nvshmem::stream(stream)));
}

RN_BOTH uint64_t nvshmem_signal_wait_until(uint64_t *signal, int cmp, uint64_t value) {
  RN_SELECT(rushmem_device_signal_wait_until(RN_CTX, signal, cmp, value);
            return rushmem_device_signal_fetch(RN_CTX, signal),
                   return rushmem::nvshmem::wait_for_signal(signal, cmp, value));
}

RN_HOST void nvshmemx_signal_wait_until_on_stream(uint64_t *signal, int cmp, uint64_t value, cudaStream_t stream) {
  RN_CHECK(rushmem_signal_wait_until_on_stream(RN_PE, signal, cmp, value, rushmem::nvshmem::stream(stream)));
}

#ifdef __CUDACC__
RN_DEVICE uint64_t nvshmem_signal_fetch(uint64_t *signal) { return rushmem_device_signal_fetch(RN_CTX, signal); }

#define RN_GROUP(SCOPE)                                                                                               \
  RN_DEVICE void nvshmemx_putmem_##SCOPE(void *dst, const void *src, size_t bytes, int pe) {                          \
    rushmem_device_putmem_##SCOPE(RN_CTX, dst, src, bytes, pe);                                                       \
  }                                                                                                                   \
  RN_DEVICE void nvshmemx_putmem_nbi_##SCOPE(void *dst, const void *src, size_t bytes, int pe) {                      \
    rushmem_device_putmem_nbi_##SCOPE(RN_CTX, dst, src, bytes, pe);                                                   \
  }                                                                                                                   \
  RN_DEVICE void nvshmemx_getmem_##SCOPE(void *dst, const void *src, size_t bytes, int pe) {                          \
    rushmem_device_getmem_##SCOPE(RN_CTX, dst, src, bytes, pe);                                                       \
  }                                                                                                                   \
  RN_DEVICE void nvshmemx_getmem_nbi_##SCOPE(void *dst, const void *src, size_t bytes, int pe) {                      \
    rushmem_device_getmem_nbi_##SCOPE(RN_CTX, dst, src, bytes, pe);                                                   \
  }                                                                                                                   \
  RN_DEVICE void nvshmemx_putmem_signal_##SCOPE(void *dst, const void *src, size_t bytes, uint64_t *signal,           \
                                                uint64_t value, int op, int pe) {                                     \
    rushmem_device_putmem_signal_##SCOPE(RN_CTX, dst, src, bytes, signal, value, op, pe);                             \
  }                                                                                                                   \
  RN_DEVICE void nvshmemx_putmem_signal_nbi_##SCOPE(void *dst, const void *src, size_t bytes, uint64_t *signal,       \
                                                    uint64_t value, int op, int pe) {                                 \
    rushmem_device_putmem_signal_nbi_##SCOPE(RN_CTX, dst, src, bytes, signal, value, op, pe);                         \
  }                                                                                                                   \
  RN_DEVICE void nvshmemx_barrier_all_##SCOPE() { rushmem_device_barrier_all_##SCOPE(RN_CTX); }                       \
  RN_DEVICE void nvshmemx_sync_all_##SCOPE() { rushmem_device_sync_all_##SCOPE(RN_CTX); }                             \
  RN_DEVICE int nvshmemx_barrier_##SCOPE(nvshmem_team_t team) { return rushmem_device_barrier_##SCOPE(RN_CTX, team); } \
  RN_DEVICE int nvshmemx_team_sync_##SCOPE(nvshmem_team_t team) {                                                     \
    return rushmem_device_team_sync_##SCOPE(RN_CTX, team);                                                            \
  }                                                                                                                   \
  RN_DEVICE int nvshmemx_broadcastmem_##SCOPE(nvshmem_team_t team, void *dst, const void *src, size_t bytes,          \
                                              int root) {                                                             \
    return rushmem_device_broadcastmem_##SCOPE(RN_CTX, team, dst, src, bytes, root);                                  \
  }                                                                                                                   \
  RN_DEVICE int nvshmemx_fcollectmem_##SCOPE(nvshmem_team_t team, void *dst, const void *src, size_t bytes) {         \
    return rushmem_device_fcollectmem_##SCOPE(RN_CTX, team, dst, src, bytes);                                         \
  }                                                                                                                   \
  RN_DEVICE int nvshmemx_alltoallmem_##SCOPE(nvshmem_team_t team, void *dst, const void *src, size_t bytes) {         \
    return rushmem_device_alltoallmem_##SCOPE(RN_CTX, team, dst, src, bytes);                                         \
  }
RN_GROUP(warp)
RN_GROUP(block)
#undef RN_GROUP
#endif

// Collective calls.

#define RN_COLLECTIVE(OP, ROOT_PARAMETER, ROOT)                                                                       \
  RN_HOST int nvshmem_##OP##mem(nvshmem_team_t team, void *dst, const void *src, size_t bytes ROOT_PARAMETER) {       \
    RN_CHECK(rushmem_##OP##mem(RN_PE, team, dst, src, bytes ROOT));                                                   \
    return 0;                                                                                                         \
  }                                                                                                                   \
  RN_HOST int nvshmemx_##OP##mem_on_stream(nvshmem_team_t team, void *dst, const void *src,                           \
                                           size_t bytes ROOT_PARAMETER, cudaStream_t stream) {                        \
    RN_CHECK(rushmem_##OP##mem_on_stream(RN_PE, team, dst, src, bytes ROOT, rushmem::nvshmem::stream(stream)));       \
    return 0;                                                                                                         \
  }
#define RN_COMMA ,
RN_COLLECTIVE(broadcast, RN_COMMA int root, RN_COMMA root)
RN_COLLECTIVE(fcollect, , )
RN_COLLECTIVE(alltoall, , )
#undef RN_COLLECTIVE
#undef RN_COMMA

#include "rushmem_nvshmem_types.h"

#undef RN_BOTH
#undef RN_DEVICE
#undef RN_SELECT
#undef RN_HOST
#undef RN_CTX
#undef RN_PE
#undef RN_CHECK

#endif
