/* The stand-in for the CUDA driver, loaded as the CUDA runtime loads the driver: by name, and not for others. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CUDA_FUNCTIONS(f)                                                           \
	f(int, cuInit, unsigned)                                                    \
	f(int, cuDevicePrimaryCtxRetain, void **, int)                              \
	f(int, cuDevicePrimaryCtxRelease_v2, int)                                   \
	f(int, cuCtxPushCurrent_v2, void *)                                         \
	f(int, cuCtxPopCurrent_v2, void **)                                         \
	f(int, cuCtxGetCurrent, void **)                                            \
	f(int, cuMemAlloc_v2, uint64_t *, size_t)                                   \
	f(int, cuMemFree_v2, uint64_t)                                              \
	f(int, cuMemGetHandleForAddressRange, int *, uint64_t, size_t, int, uint64_t) \
	f(int, standin_map, uint64_t *, size_t, int)                                \
	f(char *, standin_host, uint64_t)                                           \
	f(int, standin_calls, void)                                                 \
	f(int, standin_left, void)

#define CUDA_FIELD(result, name, ...) result (*name)(__VA_ARGS__);
static struct { CUDA_FUNCTIONS(CUDA_FIELD) } cuda;

static inline void load_cuda(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
#define CUDA_FIND(result, name, ...) *(void **)&cuda.name = dlsym(library, #name);
	CUDA_FUNCTIONS(CUDA_FIND)
}
