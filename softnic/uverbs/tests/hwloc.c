/*
 * hwloc's view of the devices, by which MPICH and others choose a NIC.
 *
 * hwloc: prints nothing but what is wrong, and "all good".
 */
#include "check.h"
#include <hwloc.h>
#include <string.h>

int main(void)
{
	hwloc_topology_t topology;
	CHECK(!hwloc_topology_init(&topology), "init");
	CHECK(!hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL), "filter");
	CHECK(!hwloc_topology_load(topology), "load");
	hwloc_obj_t device = hwloc_get_pcidev_by_busid(topology, 0x7000, 1, 0, 0), child;
	CHECK(device, "PCI device");
	CHECK(device->attr->pcidev.vendor_id == 0x15b3 && device->attr->pcidev.device_id == 0x1021, "identity");
	CHECK(device->attr->pcidev.linkspeed > 60, "speed of the link in GB/s");
	CHECK(device->parent->type == HWLOC_OBJ_BRIDGE, "bridge");
	int named = 0;
	for (child = device->io_first_child; child; child = child->next_sibling)
		named |= child->type == HWLOC_OBJ_OS_DEVICE && !strcmp(child->name, "mlx5_0");
	CHECK(named, "mlx5_0 below the PCI device");
	hwloc_topology_destroy(topology);
	puts("all good");
	return 0;
}
