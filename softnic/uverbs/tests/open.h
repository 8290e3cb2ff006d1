/* Opening a device by its name. */
#ifndef OPEN_H
#define OPEN_H

#include "check.h"
#include <infiniband/verbs.h>

static struct ibv_context *open_by_name(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL), **device = list;
	struct ibv_context *context;
	while (*device && strcmp(ibv_get_device_name(*device), name))
		device++;
	CHECK(*device, "no device %s", name);
	CHECK((context = ibv_open_device(*device)), "%s", name);
	ibv_free_device_list(list);
	return context;
}

#endif
