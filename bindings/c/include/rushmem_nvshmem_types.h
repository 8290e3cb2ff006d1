// NVSHMEM's functions with types in their names. Only for rushmem_nvshmem.h.

// Types of puts and gets, broadcasts and their like.
#define RN_TYPES(F)                                                                                                   \
  F(float, float)                                                                                                     \
  F(double, double)                                                                                                   \
  F(half, __half)                                                                                                     \
  F(bfloat16, __nv_bfloat16)                                                                                          \
  F(char, char)                                                                                                       \
  F(schar, signed char)                                                                                               \
  F(short, short)                                                                                                     \
  F(int, int)                                                                                                         \
  F(long, long)                                                                                                       \
  F(longlong, long long)                                                                                              \
  F(uchar, unsigned char)                                                                                             \
  F(ushort, unsigned short)                                                                                           \
  F(uint, unsigned int)                                                                                               \
  F(ulong, unsigned long)                                                                                             \
  F(ulonglong, unsigned long long)                                                                                    \
  F(int8, int8_t)                                                                                                     \
  F(int16, int16_t)                                                                                                   \
  F(int32, int32_t)                                                                                                   \
  F(int64, int64_t)                                                                                                   \
  F(uint8, uint8_t)                                                                                                   \
  F(uint16, uint16_t)                                                                                                 \
  F(uint32, uint32_t)                                                                                                 \
  F(uint64, uint64_t)                                                                                                 \
  F(size, size_t)                                                                                                     \
  F(ptrdiff, ptrdiff_t)

#define RN_TRANSFERS(NAME, T)                                                                                         \
  RN_BOTH void nvshmem_##NAME##_put(T *dst, const T *src, size_t n, int pe) {                                         \
    nvshmem_putmem(dst, src, n * sizeof(T), pe);                                                                      \
  }                                                                                                                   \
  RN_BOTH void nvshmem_##NAME##_put_nbi(T *dst, const T *src, size_t n, int pe) {                                     \
    nvshmem_putmem_nbi(dst, src, n * sizeof(T), pe);                                                                  \
  }                                                                                                                   \
  RN_BOTH void nvshmem_##NAME##_get(T *dst, const T *src, size_t n, int pe) {                                         \
    nvshmem_getmem(dst, src, n * sizeof(T), pe);                                                                      \
  }                                                                                                                   \
  RN_BOTH void nvshmem_##NAME##_get_nbi(T *dst, const T *src, size_t n, int pe) {                                     \
    nvshmem_getmem_nbi(dst, src, n * sizeof(T), pe);                                                                  \
  }                                                                                                                   \
  RN_BOTH void nvshmem_##NAME##_put_signal(T *dst, const T *src, size_t n, uint64_t *signal, uint64_t value, int op,  \
                                           int pe) {                                                                  \
    nvshmem_putmem_signal(dst, src, n * sizeof(T), signal, value, op, pe);                                            \
  }                                                                                                                   \
  RN_BOTH void nvshmem_##NAME##_put_signal_nbi(T *dst, const T *src, size_t n, uint64_t *signal, uint64_t value,      \
                                               int op, int pe) {                                                      \
    nvshmem_putmem_signal_nbi(dst, src, n * sizeof(T), signal, value, op, pe);                                        \
  }                                                                                                                   \
  RN_HOST void nvshmemx_##NAME##_put_on_stream(T *dst, const T *src, size_t n, int pe, cudaStream_t stream) {         \
    nvshmemx_putmem_on_stream(dst, src, n * sizeof(T), pe, stream);                                                   \
  }                                                                                                                   \
  RN_HOST void nvshmemx_##NAME##_put_nbi_on_stream(T *dst, const T *src, size_t n, int pe, cudaStream_t stream) {     \
    nvshmemx_putmem_on_stream(dst, src, n * sizeof(T), pe, stream);                                                   \
  }                                                                                                                   \
  RN_HOST void nvshmemx_##NAME##_get_on_stream(T *dst, const T *src, size_t n, int pe, cudaStream_t stream) {         \
    nvshmemx_getmem_on_stream(dst, src, n * sizeof(T), pe, stream);                                                   \
  }                                                                                                                   \
  RN_HOST void nvshmemx_##NAME##_get_nbi_on_stream(T *dst, const T *src, size_t n, int pe, cudaStream_t stream) {     \
    nvshmemx_getmem_on_stream(dst, src, n * sizeof(T), pe, stream);                                                   \
  }                                                                                                                   \
  RN_HOST void nvshmemx_##NAME##_put_signal_on_stream(T *dst, const T *src, size_t n, uint64_t *signal,               \
                                                      uint64_t value, int op, int pe, cudaStream_t stream) {          \
    nvshmemx_putmem_signal_on_stream(dst, src, n * sizeof(T), signal, value, op, pe, stream);                         \
  }                                                                                                                   \
  RN_HOST void nvshmemx_##NAME##_put_signal_nbi_on_stream(T *dst, const T *src, size_t n, uint64_t *signal,           \
                                                          uint64_t value, int op, int pe, cudaStream_t stream) {      \
    nvshmemx_putmem_signal_on_stream(dst, src, n * sizeof(T), signal, value, op, pe, stream);                         \
  }                                                                                                                   \
  RN_HOST int nvshmem_##NAME##_broadcast(nvshmem_team_t team, T *dst, const T *src, size_t n, int root) {             \
    return nvshmem_broadcastmem(team, dst, src, n * sizeof(T), root);                                                 \
  }                                                                                                                   \
  RN_HOST int nvshmem_##NAME##_fcollect(nvshmem_team_t team, T *dst, const T *src, size_t n) {                        \
    return nvshmem_fcollectmem(team, dst, src, n * sizeof(T));                                                        \
  }                                                                                                                   \
  RN_HOST int nvshmem_##NAME##_alltoall(nvshmem_team_t team, T *dst, const T *src, size_t n) {                        \
    return nvshmem_alltoallmem(team, dst, src, n * sizeof(T));                                                        \
  }                                                                                                                   \
  RN_HOST int nvshmemx_##NAME##_broadcast_on_stream(nvshmem_team_t team, T *dst, const T *src, size_t n, int root,    \
                                                    cudaStream_t stream) {                                            \
    return nvshmemx_broadcastmem_on_stream(team, dst, src, n * sizeof(T), root, stream);                              \
  }                                                                                                                   \
  RN_HOST int nvshmemx_##NAME##_fcollect_on_stream(nvshmem_team_t team, T *dst, const T *src, size_t n,               \
                                                   cudaStream_t stream) {                                             \
    return nvshmemx_fcollectmem_on_stream(team, dst, src, n * sizeof(T), stream);                                     \
  }                                                                                                                   \
  RN_HOST int nvshmemx_##NAME##_alltoall_on_stream(nvshmem_team_t team, T *dst, const T *src, size_t n,               \
                                                   cudaStream_t stream) {                                             \
    return nvshmemx_alltoallmem_on_stream(team, dst, src, n * sizeof(T), stream);                                     \
  }
RN_TYPES(RN_TRANSFERS)
#undef RN_TRANSFERS

#ifdef __CUDACC__
#define RN_WORDS(NAME, T)                                                                                             \
  RN_DEVICE void nvshmem_##NAME##_p(T *dst, T value, int pe) { rushmem::p(RN_CTX, dst, value, pe); }                  \
  RN_DEVICE T nvshmem_##NAME##_g(const T *src, int pe) { return rushmem::g(RN_CTX, src, pe); }
RN_TYPES(RN_WORDS)
#undef RN_WORDS

#define RN_GROUP(SCOPE, NAME, T)                                                                                      \
  RN_DEVICE void nvshmemx_##NAME##_put_##SCOPE(T *dst, const T *src, size_t n, int pe) {                              \
    nvshmemx_putmem_##SCOPE(dst, src, n * sizeof(T), pe);                                                             \
  }                                                                                                                   \
  RN_DEVICE void nvshmemx_##NAME##_put_nbi_##SCOPE(T *dst, const T *src, size_t n, int pe) {                          \
    nvshmemx_putmem_nbi_##SCOPE(dst, src, n * sizeof(T), pe);                                                         \
  }                                                                                                                   \
  RN_DEVICE void nvshmemx_##NAME##_get_##SCOPE(T *dst, const T *src, size_t n, int pe) {                              \
    nvshmemx_getmem_##SCOPE(dst, src, n * sizeof(T), pe);                                                             \
  }                                                                                                                   \
  RN_DEVICE void nvshmemx_##NAME##_get_nbi_##SCOPE(T *dst, const T *src, size_t n, int pe) {                          \
    nvshmemx_getmem_nbi_##SCOPE(dst, src, n * sizeof(T), pe);                                                         \
  }                                                                                                                   \
  RN_DEVICE void nvshmemx_##NAME##_put_signal_##SCOPE(T *dst, const T *src, size_t n, uint64_t *signal,               \
                                                      uint64_t value, int op, int pe) {                               \
    nvshmemx_putmem_signal_##SCOPE(dst, src, n * sizeof(T), signal, value, op, pe);                                   \
  }                                                                                                                   \
  RN_DEVICE void nvshmemx_##NAME##_put_signal_nbi_##SCOPE(T *dst, const T *src, size_t n, uint64_t *signal,           \
                                                          uint64_t value, int op, int pe) {                           \
    nvshmemx_putmem_signal_nbi_##SCOPE(dst, src, n * sizeof(T), signal, value, op, pe);                               \
  }                                                                                                                   \
  RN_DEVICE int nvshmemx_##NAME##_broadcast_##SCOPE(nvshmem_team_t team, T *dst, const T *src, size_t n, int root) {  \
    return nvshmemx_broadcastmem_##SCOPE(team, dst, src, n * sizeof(T), root);                                        \
  }                                                                                                                   \
  RN_DEVICE int nvshmemx_##NAME##_fcollect_##SCOPE(nvshmem_team_t team, T *dst, const T *src, size_t n) {             \
    return nvshmemx_fcollectmem_##SCOPE(team, dst, src, n * sizeof(T));                                               \
  }                                                                                                                   \
  RN_DEVICE int nvshmemx_##NAME##_alltoall_##SCOPE(nvshmem_team_t team, T *dst, const T *src, size_t n) {             \
    return nvshmemx_alltoallmem_##SCOPE(team, dst, src, n * sizeof(T));                                               \
  }
#define RN_GROUPS(NAME, T) RN_GROUP(warp, NAME, T) RN_GROUP(block, NAME, T)
RN_TYPES(RN_GROUPS)
#undef RN_GROUPS
#undef RN_GROUP
#endif
#undef RN_TYPES

// Elements by their size in bits.
#define RN_SIZED(BITS)                                                                                                \
  RN_BOTH void nvshmem_put##BITS(void *dst, const void *src, size_t n, int pe) {                                      \
    nvshmem_putmem(dst, src, n * (BITS / 8), pe);                                                                     \
  }                                                                                                                   \
  RN_BOTH void nvshmem_put##BITS##_nbi(void *dst, const void *src, size_t n, int pe) {                                \
    nvshmem_putmem_nbi(dst, src, n * (BITS / 8), pe);                                                                 \
  }                                                                                                                   \
  RN_BOTH void nvshmem_get##BITS(void *dst, const void *src, size_t n, int pe) {                                      \
    nvshmem_getmem(dst, src, n * (BITS / 8), pe);                                                                     \
  }                                                                                                                   \
  RN_BOTH void nvshmem_get##BITS##_nbi(void *dst, const void *src, size_t n, int pe) {                                \
    nvshmem_getmem_nbi(dst, src, n * (BITS / 8), pe);                                                                 \
  }
RN_SIZED(8)
RN_SIZED(16)
RN_SIZED(32)
RN_SIZED(64)
RN_SIZED(128)
#undef RN_SIZED

// Atomics, and waits for words.
#ifdef __CUDACC__
#define RN_BITWISE_TYPES(F)                                                                                           \
  F(uint, unsigned int)                                                                                               \
  F(ulong, unsigned long)                                                                                             \
  F(ulonglong, unsigned long long)                                                                                    \
  F(int32, int32_t)                                                                                                   \
  F(int64, int64_t)                                                                                                   \
  F(uint32, uint32_t)                                                                                                 \
  F(uint64, uint64_t)
#define RN_STANDARD_TYPES(F)                                                                                          \
  RN_BITWISE_TYPES(F)                                                                                                 \
  F(int, int)                                                                                                         \
  F(long, long)                                                                                                       \
  F(longlong, long long)                                                                                              \
  F(size, size_t)                                                                                                     \
  F(ptrdiff, ptrdiff_t)
#define RN_EXTENDED_TYPES(F)                                                                                          \
  RN_STANDARD_TYPES(F)                                                                                                \
  F(float, float)                                                                                                     \
  F(double, double)

#define RN_EXTENDED(NAME, T)                                                                                          \
  RN_DEVICE T nvshmem_##NAME##_atomic_fetch(const T *word, int pe) {                                                  \
    return rushmem::atomic_fetch(rushmem::thread_scope{}, RN_CTX, word, pe);                                          \
  }                                                                                                                   \
  RN_DEVICE void nvshmem_##NAME##_atomic_set(T *word, T value, int pe) {                                              \
    rushmem::atomic_set(rushmem::thread_scope{}, RN_CTX, word, value, pe);                                            \
  }                                                                                                                   \
  RN_DEVICE T nvshmem_##NAME##_atomic_swap(T *word, T value, int pe) {                                                \
    return rushmem::atomic_swap(rushmem::thread_scope{}, RN_CTX, word, value, pe);                                    \
  }
RN_EXTENDED_TYPES(RN_EXTENDED)
#undef RN_EXTENDED

#define RN_STANDARD(NAME, T)                                                                                          \
  RN_DEVICE T nvshmem_##NAME##_atomic_compare_swap(T *word, T compare, T value, int pe) {                             \
    return rushmem::atomic_compare_swap(rushmem::thread_scope{}, RN_CTX, word, compare, value, pe);                   \
  }                                                                                                                   \
  RN_DEVICE void nvshmem_##NAME##_atomic_inc(T *word, int pe) {                                                       \
    rushmem::atomic_inc(rushmem::thread_scope{}, RN_CTX, word, pe);                                                   \
  }                                                                                                                   \
  RN_DEVICE T nvshmem_##NAME##_atomic_fetch_inc(T *word, int pe) {                                                    \
    return rushmem::atomic_fetch_inc(rushmem::thread_scope{}, RN_CTX, word, pe);                                      \
  }                                                                                                                   \
  RN_DEVICE void nvshmem_##NAME##_atomic_add(T *word, T value, int pe) {                                              \
    rushmem::atomic_add(rushmem::thread_scope{}, RN_CTX, word, value, pe);                                            \
  }                                                                                                                   \
  RN_DEVICE T nvshmem_##NAME##_atomic_fetch_add(T *word, T value, int pe) {                                           \
    return rushmem::atomic_fetch_add(rushmem::thread_scope{}, RN_CTX, word, value, pe);                               \
  }                                                                                                                   \
  RN_DEVICE void nvshmem_##NAME##_wait_until(T *word, int cmp, T value) {                                             \
    rushmem::wait_until(rushmem::thread_scope{}, RN_CTX, word, cmp, value);                                           \
  }                                                                                                                   \
  RN_DEVICE void nvshmem_##NAME##_wait_until_all(T *words, size_t n, const int *skipped, int cmp, T value) {          \
    for (size_t i = 0; i < n; i++) {                                                                                  \
      if (!skipped || !skipped[i]) {                                                                                  \
        nvshmem_##NAME##_wait_until(words + i, cmp, value);                                                           \
      }                                                                                                               \
    }                                                                                                                 \
  }                                                                                                                   \
  RN_DEVICE int nvshmem_##NAME##_test(T *word, int cmp, T value) {                                                    \
    return rushmem::test(rushmem::thread_scope{}, RN_CTX, word, cmp, value);                                          \
  }
RN_STANDARD_TYPES(RN_STANDARD)
#undef RN_STANDARD

#define RN_BITWISE(NAME, T)                                                                                           \
  RN_DEVICE void nvshmem_##NAME##_atomic_and(T *word, T value, int pe) {                                              \
    rushmem::atomic_and(rushmem::thread_scope{}, RN_CTX, word, value, pe);                                            \
  }                                                                                                                   \
  RN_DEVICE void nvshmem_##NAME##_atomic_or(T *word, T value, int pe) {                                               \
    rushmem::atomic_or(rushmem::thread_scope{}, RN_CTX, word, value, pe);                                             \
  }                                                                                                                   \
  RN_DEVICE void nvshmem_##NAME##_atomic_xor(T *word, T value, int pe) {                                              \
    rushmem::atomic_xor(rushmem::thread_scope{}, RN_CTX, word, value, pe);                                            \
  }                                                                                                                   \
  RN_DEVICE T nvshmem_##NAME##_atomic_fetch_and(T *word, T value, int pe) {                                           \
    return rushmem::atomic_fetch_and(rushmem::thread_scope{}, RN_CTX, word, value, pe);                               \
  }                                                                                                                   \
  RN_DEVICE T nvshmem_##NAME##_atomic_fetch_or(T *word, T value, int pe) {                                            \
    return rushmem::atomic_fetch_or(rushmem::thread_scope{}, RN_CTX, word, value, pe);                                \
  }                                                                                                                   \
  RN_DEVICE T nvshmem_##NAME##_atomic_fetch_xor(T *word, T value, int pe) {                                           \
    return rushmem::atomic_fetch_xor(rushmem::thread_scope{}, RN_CTX, word, value, pe);                               \
  }
RN_BITWISE_TYPES(RN_BITWISE)
#undef RN_BITWISE
#undef RN_BITWISE_TYPES
#undef RN_STANDARD_TYPES
#undef RN_EXTENDED_TYPES
#endif

// Reductions.
#define RN_INTEGERS(F)                                                                                                \
  F(uchar, unsigned char, UINT8)                                                                                      \
  F(ushort, unsigned short, UINT16)                                                                                   \
  F(uint, unsigned int, UINT32)                                                                                       \
  F(ulong, unsigned long, UINT64)                                                                                     \
  F(ulonglong, unsigned long long, UINT64)                                                                            \
  F(int8, int8_t, INT8)                                                                                               \
  F(int16, int16_t, INT16)                                                                                            \
  F(int32, int32_t, INT32)                                                                                            \
  F(int64, int64_t, INT64)                                                                                            \
  F(uint8, uint8_t, UINT8)                                                                                            \
  F(uint16, uint16_t, UINT16)                                                                                         \
  F(uint32, uint32_t, UINT32)                                                                                         \
  F(uint64, uint64_t, UINT64)                                                                                         \
  F(size, size_t, UINT64)
#define RN_NUMBERS(F)                                                                                                 \
  RN_INTEGERS(F)                                                                                                      \
  F(char, char, INT8)                                                                                                 \
  F(schar, signed char, INT8)                                                                                         \
  F(short, short, INT16)                                                                                              \
  F(int, int, INT32)                                                                                                  \
  F(long, long, INT64)                                                                                                \
  F(longlong, long long, INT64)                                                                                       \
  F(ptrdiff, ptrdiff_t, INT64)                                                                                        \
  F(half, __half, FLOAT16)                                                                                            \
  F(bfloat16, __nv_bfloat16, BFLOAT16)                                                                                \
  F(float, float, FLOAT32)                                                                                            \
  F(double, double, FLOAT64)

#define RN_REDUCE_OF_HOST(NAME, T, TYPE, OP, NUMBER, FORM, CALL)                                                      \
  RN_HOST int nvshmem_##NAME##_##OP##_##FORM(nvshmem_team_t team, T *dst, const T *src, size_t n) {                   \
    RN_CHECK(rushmem_##CALL(RN_PE, team, dst, src, n, RUSHMEM_TYPE_##TYPE, RUSHMEM_OP_##NUMBER));                     \
    return 0;                                                                                                         \
  }                                                                                                                   \
  RN_HOST int nvshmemx_##NAME##_##OP##_##FORM##_on_stream(nvshmem_team_t team, T *dst, const T *src, size_t n,        \
                                                          cudaStream_t stream) {                                      \
    RN_CHECK(rushmem_##CALL##_on_stream(RN_PE, team, dst, src, n, RUSHMEM_TYPE_##TYPE, RUSHMEM_OP_##NUMBER,           \
                                        rushmem::nvshmem::stream(stream)));                                           \
    return 0;                                                                                                         \
  }
#ifdef __CUDACC__
#define RN_REDUCE(NAME, T, TYPE, OP, NUMBER, FORM, CALL)                                                              \
  RN_REDUCE_OF_HOST(NAME, T, TYPE, OP, NUMBER, FORM, CALL)                                                            \
  RN_DEVICE int nvshmemx_##NAME##_##OP##_##FORM##_warp(nvshmem_team_t team, T *dst, const T *src, size_t n) {         \
    return rushmem_device_##CALL##_warp(RN_CTX, team, dst, src, n * sizeof(T), RUSHMEM_TYPE_##TYPE,                   \
                                        RUSHMEM_OP_##NUMBER);                                                         \
  }                                                                                                                   \
  RN_DEVICE int nvshmemx_##NAME##_##OP##_##FORM##_block(nvshmem_team_t team, T *dst, const T *src, size_t n) {        \
    return rushmem_device_##CALL##_block(RN_CTX, team, dst, src, n * sizeof(T), RUSHMEM_TYPE_##TYPE,                  \
                                         RUSHMEM_OP_##NUMBER);                                                        \
  }
#else
#define RN_REDUCE RN_REDUCE_OF_HOST
#endif
#define RN_REDUCTION(NAME, T, TYPE, OP, NUMBER)                                                                       \
  RN_REDUCE(NAME, T, TYPE, OP, NUMBER, reduce, reduce)                                                                \
  RN_REDUCE(NAME, T, TYPE, OP, NUMBER, reducescatter, reduce_scatter)
#define RN_ARITHMETIC(NAME, T, TYPE)                                                                                  \
  RN_REDUCTION(NAME, T, TYPE, sum, SUM)                                                                               \
  RN_REDUCTION(NAME, T, TYPE, prod, PROD)                                                                             \
  RN_REDUCTION(NAME, T, TYPE, min, MIN)                                                                               \
  RN_REDUCTION(NAME, T, TYPE, max, MAX)
#define RN_BITWISE(NAME, T, TYPE)                                                                                     \
  RN_REDUCTION(NAME, T, TYPE, and, AND)                                                                               \
  RN_REDUCTION(NAME, T, TYPE, or, OR)                                                                                 \
  RN_REDUCTION(NAME, T, TYPE, xor, XOR)
RN_NUMBERS(RN_ARITHMETIC)
RN_INTEGERS(RN_BITWISE)
#undef RN_INTEGERS
#undef RN_NUMBERS
#undef RN_REDUCE_OF_HOST
#undef RN_REDUCE
#undef RN_REDUCTION
#undef RN_ARITHMETIC
#undef RN_BITWISE
