/*
 * A library to preload that hooks functions of the C library, as memory hooks of libfabric and UCX do, and ends the process if
 * a thread of the adapter calls one.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static void hook(const char *function)
{
	char thread[16] = "";
	prctl(PR_GET_NAME, thread);
	if (!strncmp(thread, "mlx5_", 5) || !strcmp(thread, "rdma_cm")) {
		static const char what[] = " in a thread of the adapter\n";
		if (syscall(SYS_write, 2, function, strlen(function)) > 0)
			syscall(SYS_write, 2, what, sizeof(what) - 1);
		abort();
	}
}

int munmap(void *at, size_t len)
{
	hook("munmap");
	return syscall(SYS_munmap, at, len);
}

void *mmap(void *at, size_t len, int access, int flags, int fd, off_t offset)
{
	hook("mmap");
	return (void *)syscall(SYS_mmap, at, len, access, flags, fd, offset);
}

void *mmap64(void *at, size_t len, int access, int flags, int fd, off_t offset)
{
	hook("mmap64");
	return (void *)syscall(SYS_mmap, at, len, access, flags, fd, offset);
}

int madvise(void *at, size_t len, int advice)
{
	hook("madvise");
	return syscall(SYS_madvise, at, len, advice);
}

int socket(int domain, int kind, int protocol)
{
	hook("socket");
	return syscall(SYS_socket, domain, kind, protocol);
}
