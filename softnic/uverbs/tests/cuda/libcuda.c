/*
 * A stand-in for the library of the CUDA driver, with two GPUs whose memory is host memory.
 *
 * The CPU cannot touch that memory at its device address. Copies begin at the synchronization of their stream, or at
 * `standin_start_copies`, not before.
 * Every call that a driver would refuse is refused here: with no current context, with the context of another GPU, in the
 * default stream, or of addresses that are not allocated. `standin_*` are for the test.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, GPUS = 2 };
enum { CONTEXT = 1, MEMORY_TYPE, IS_MANAGED = 8, DEVICE_ORDINAL, RANGE_START = 11, RANGE_SIZE };
enum { MEMORIES = 64, COPIES = 1 << 16, DEPTH = 8 };

struct context { int device, retained; };
struct stream { struct stream *next; struct context *context; struct { char *to; const char *from; size_t len; } copies[COPIES]; int count; };
struct memory { uint64_t start; size_t len; char *host; struct context *owner; int device; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int initialized, streams, page_locked, calls;
static struct stream *all;
static struct context primary[GPUS];
static struct memory memories[MEMORIES];
static __thread struct context *current[DEPTH];
static __thread int depth;
static __thread unsigned mode;

#define EXPORT(...) __attribute__((visibility("default"))) int __VA_ARGS__
/* A misuse that a test must see even if its caller ignores the code. */
static int misuse(const char *what, int code)
{
	fprintf(stderr, "stand-in CUDA driver: %s\n", what);
	if (getenv("STANDIN_STRICT"))
		abort();
	return code;
}

static struct context *here(void) { return depth ? current[depth - 1] : NULL; }

static struct memory *find(uint64_t address, size_t len)
{
	for (struct memory *one = memories; one < memories + MEMORIES; one++)
		if (one->len && address >= one->start && address - one->start < one->len &&
		    len <= one->len - (address - one->start))
			return one;
	return NULL;
}

EXPORT(cuInit(unsigned flags)) { initialized = 1; for (int i = 0; i < GPUS; i++) primary[i].device = i; return flags; }
EXPORT(cuDeviceGet(int *device, int ordinal)) { *device = ordinal; return initialized ? 0 : NOT_INITIALIZED; }
EXPORT(cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active))
{
	*flags = 0;
	*active = primary[device].retained > 0;
	return 0;
}
EXPORT(cuDevicePrimaryCtxRetain(struct context **context, int device))
{
	__atomic_add_fetch(&primary[device].retained, 1, __ATOMIC_SEQ_CST);
	*context = &primary[device];
	return initialized ? 0 : NOT_INITIALIZED;
}
EXPORT(cuDevicePrimaryCtxRelease_v2(int device))
{
	return __atomic_sub_fetch(&primary[device].retained, 1, __ATOMIC_SEQ_CST) < 0 ? misuse("released too often", INVALID_CONTEXT) : 0;
}
EXPORT(cuCtxPushCurrent_v2(struct context *context))
{
	if (!initialized)
		return NOT_INITIALIZED;
	if (context->retained <= 0 || depth == DEPTH)
		return misuse("a dead context becomes current", INVALID_CONTEXT);
	current[depth++] = context;
	return 0;
}
EXPORT(cuCtxPopCurrent_v2(struct context **context))
{
	if (!depth)
		return misuse("no context to pop", INVALID_CONTEXT);
	*context = current[--depth];
	return 0;
}
EXPORT(cuCtxGetCurrent(struct context **context)) { *context = here(); return initialized ? 0 : NOT_INITIALIZED; }
EXPORT(cuCtxGetDevice(int *device))
{
	if (!here())
		return INVALID_CONTEXT;
	*device = here()->device;
	return 0;
}
EXPORT(cuThreadExchangeStreamCaptureMode(unsigned *other)) { unsigned old = mode; mode = *other; *other = old; return 0; }
EXPORT(cuGetErrorName(int code, const char **name))
{
	*name = code == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : NULL;
	return *name ? 0 : INVALID_VALUE;
}

/* What a thread may not do while another one captures a stream, and what needs a context. */
static int may(const char *what)
{
	if (!here())
		return misuse(what, INVALID_CONTEXT);
	return mode == 2 ? 0 : misuse("the capture mode is not relaxed", INVALID_VALUE);
}

EXPORT(cuCtxGetStreamPriorityRange(int *least, int *greatest)) { *least = 0; *greatest = -5; return 0; }
EXPORT(cuStreamCreateWithPriority(struct stream **stream, unsigned flags, int priority))
{
	int refused = may("a stream without a context");
	if (refused)
		return refused;
	if (flags != 1 || priority != -5)
		return misuse("a stream that waits for others", INVALID_VALUE);
	*stream = calloc(1, sizeof **stream);
	(*stream)->context = here();
	pthread_mutex_lock(&lock);
	(*stream)->next = all;
	all = *stream;
	pthread_mutex_unlock(&lock);
	__atomic_add_fetch(&streams, 1, __ATOMIC_SEQ_CST);
	return 0;
}
EXPORT(cuStreamDestroy_v2(struct stream *stream))
{
	if (here() != stream->context)
		return misuse("a stream of another context", INVALID_CONTEXT);
	if (stream->count)
		misuse("a stream with pending copies is destroyed", 0);
	pthread_mutex_lock(&lock);
	struct stream **at = &all;
	while (*at != stream)
		at = &(*at)->next;
	*at = stream->next;
	pthread_mutex_unlock(&lock);
	free(stream);
	__atomic_sub_fetch(&streams, 1, __ATOMIC_SEQ_CST);
	return 0;
}
EXPORT(cuMemHostAlloc(void **at, size_t len, unsigned flags))
{
	int refused = may("page-locked memory without a context");
	if (refused || flags)
		return refused ? refused : INVALID_VALUE;
	*at = calloc(1, len);
	__atomic_add_fetch(&page_locked, 1, __ATOMIC_SEQ_CST);
	return 0;
}
EXPORT(cuMemFreeHost(void *at)) { free(at); __atomic_sub_fetch(&page_locked, 1, __ATOMIC_SEQ_CST); return 0; }

static int enqueue(struct stream *stream, uint64_t address, void *host, size_t len, int in)
{
	__atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
	if (!stream || !here() || stream->context != here())
		return misuse("a copy in the default stream, or of another context", INVALID_HANDLE);
	pthread_mutex_lock(&lock);
	struct memory *memory = find(address, len);
	int fits = memory && memory->device == here()->device && stream->count < COPIES;
	if (fits) {
		char *device = memory->host + (address - memory->start);
		int i = stream->count++;
		stream->copies[i].to = in ? device : host;
		stream->copies[i].from = in ? host : device;
		stream->copies[i].len = len;
	}
	pthread_mutex_unlock(&lock);
	return fits ? 0 : INVALID_VALUE;
}
EXPORT(cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t len, struct stream *stream)) { return enqueue(stream, from, to, len, 0); }
EXPORT(cuMemcpyHtoDAsync_v2(uint64_t to, void *from, size_t len, struct stream *stream)) { return enqueue(stream, to, from, len, 1); }
/* Executes the pending copies of a stream, under the lock. */
static void copy_all(struct stream *stream)
{
	for (int i = 0; i < stream->count; i++)
		memcpy(stream->copies[i].to, stream->copies[i].from, stream->copies[i].len);
	stream->count = 0;
}
EXPORT(cuStreamSynchronize(struct stream *stream))
{
	int refused = may("a wait without a context");
	__atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
	if (refused)
		return refused;
	pthread_mutex_lock(&lock);
	copy_all(stream);
	pthread_mutex_unlock(&lock);
	return 0;
}
/* Executes all pending copies, as a GPU does by and by. */
EXPORT(standin_start_copies(void))
{
	pthread_mutex_lock(&lock);
	for (struct stream *stream = all; stream; stream = stream->next)
		copy_all(stream);
	pthread_mutex_unlock(&lock);
	return 0;
}

/* Allocates memory of a GPU: of the current context, or mapped memory, which has no context. */
static int allocate(uint64_t *address, size_t len, int device, struct context *owner)
{
	struct memory *memory = memories;
	pthread_mutex_lock(&lock);
	while (memory < memories + MEMORIES && memory->len)
		memory++;
	int fd = memfd_create("gpu", MFD_CLOEXEC);
	void *outside = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory < memories + MEMORIES && !ftruncate(fd, len))
		*memory = (struct memory){ (uintptr_t)outside, len, mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), owner, device };
	close(fd);
	*address = memory->start;
	pthread_mutex_unlock(&lock);
	return 0;
}
EXPORT(cuMemAlloc_v2(uint64_t *address, size_t len))
{
	return here() ? allocate(address, len, here()->device, here()) : INVALID_CONTEXT;
}
EXPORT(standin_map(uint64_t *address, size_t len, int device)) { return allocate(address, len, device, NULL); }
EXPORT(cuMemFree_v2(uint64_t address))
{
	pthread_mutex_lock(&lock);
	struct memory *memory = find(address, 1);
	munmap((void *)memory->start, memory->len);
	munmap(memory->host, memory->len);
	memset(memory, 0, sizeof *memory);
	pthread_mutex_unlock(&lock);
	return 0;
}
EXPORT(cuPointerGetAttribute(void *to, int attribute, uint64_t address))
{
	if (!initialized)
		return NOT_INITIALIZED;
	pthread_mutex_lock(&lock);
	struct memory *memory = find(address, 1), found = memory ? *memory : (struct memory){ 0 };
	pthread_mutex_unlock(&lock);
	if (!found.len)
		return INVALID_VALUE;
	switch (attribute) {
	case CONTEXT: *(void **)to = found.owner; return 0;
	case MEMORY_TYPE: *(unsigned *)to = 2; return 0;
	case IS_MANAGED: *(char *)to = 0; return 0;
	case DEVICE_ORDINAL: *(int *)to = found.device; return 0;
	case RANGE_START: *(uint64_t *)to = found.start; return 0;
	case RANGE_SIZE: *(size_t *)to = found.len; return 0;
	}
	return INVALID_VALUE;
}
/* A dma-buf that cannot be mapped. */
EXPORT(cuMemGetHandleForAddressRange(int *fd, uint64_t address, size_t len, int kind, uint64_t flags))
{
	if (!find(address, len) || kind != 1 || flags)
		return INVALID_VALUE;
	*fd = memfd_create("dma-buf", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return ftruncate(*fd, len) || fcntl(*fd, F_ADD_SEALS, F_SEAL_WRITE) ? OUT_OF_MEMORY : 0;
}

/* The CPU's address of GPU memory, which no adapter can know. */
__attribute__((visibility("default"))) char *standin_host(uint64_t address)
{
	struct memory *memory = find(address, 1);
	return memory->host + (address - memory->start);
}
/* Copies and waits so far. */
EXPORT(standin_calls(void)) { return __atomic_load_n(&calls, __ATOMIC_SEQ_CST); }
/* Streams and page-locked buffers that exist, and contexts on this thread's stack. */
EXPORT(standin_left(void)) { return streams + page_locked + depth; }
