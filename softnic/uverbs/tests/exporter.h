/* Memory that the kernel exports as a dma-buf. */
#ifndef EXPORTER_H
#define EXPORTER_H

#include "check.h"
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* Makes a dma-buf of a memory file by udmabuf. */
static int export_memory_file(int exporter, int memory, size_t size)
{
	struct udmabuf_create create = { .memfd = memory, .flags = UDMABUF_FLAGS_CLOEXEC, .size = size };
	int file = ioctl(exporter, UDMABUF_CREATE, &create);
	CHECK(file >= 0, "udmabuf");
	close(exporter);
	close(memory);
	return file;
}

/* Commands of graphics cards, whose header is in a package of its own. */
struct drm_dumb_buffer {
	uint32_t height, width, bits_per_pixel, flags, handle, pitch;
	uint64_t size;
};

struct drm_export {
	uint32_t handle, flags;
	int32_t file;
};

#define DRM_CREATE_DUMB _IOWR('d', 0xb2, struct drm_dumb_buffer)
#define DRM_HANDLE_TO_FD _IOWR('d', 0x2d, struct drm_export)

/* Makes a dma-buf of a buffer of vgem, a graphics card without hardware. */
static int export_graphics_buffer(int card, size_t size)
{
	struct drm_dumb_buffer buffer = { .width = 4096, .height = size / 4096, .bits_per_pixel = 8 };
	CHECK(!ioctl(card, DRM_CREATE_DUMB, &buffer), "graphics buffer");
	struct drm_export export = { .handle = buffer.handle, .flags = O_CLOEXEC | O_RDWR };
	CHECK(!ioctl(card, DRM_HANDLE_TO_FD, &export), "export of a graphics buffer");
	close(card);
	return export.file;
}

/*
 * Returns a dma-buf of `size` bytes, a multiple of 4096, and maps it at `*memory`. Where the kernel exports none to this
 * user, it is a memory file, which the software ConnectX below libibverbs accepts and no kernel does.
 */
static int export_dma_buf(size_t size, void **memory)
{
	int exporter = open("/dev/udmabuf", O_RDWR), card = exporter < 0 ? open("/dev/dri/card0", O_RDWR) : -1, file;
	if (card >= 0) {
		file = export_graphics_buffer(card, size);
	} else {
		CHECK((file = memfd_create("dma-buf", MFD_ALLOW_SEALING)) >= 0, "memory file");
		CHECK(!ftruncate(file, size) && !fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK), "memory file");
		if (exporter >= 0)
			file = export_memory_file(exporter, file, size);
	}
	*memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	CHECK(*memory != MAP_FAILED, "mapping of a dma-buf");
	return file;
}

#endif
