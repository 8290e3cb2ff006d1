/*
 * The network devices in the table of GIDs, as the call and as sysfs have them.
 *
 * gid_table DEVICE: prints nothing but what is wrong, and "all good".
 */
#include "open.h"
#include <net/if.h>

int main(int argc, char **argv)
{
	struct ibv_gid_entry entries[32], entry;
	CHECK(argc == 2, "arguments");
	struct ibv_context *context = open_by_name(argv[1]);
	ssize_t count = ibv_query_gid_table(context, entries, 32, 0);
	CHECK(count == 4, "entries");
	for (int i = 0; i < count; i++) {
		char path[128], name[IF_NAMESIZE] = "";
		snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/gid_attrs/ndevs/%u", argv[1],
			 entries[i].gid_index);
		FILE *file = fopen(path, "r");
		CHECK(file && fscanf(file, "%15s", name) == 1, "%s", path);
		fclose(file);
		CHECK(if_nametoindex(name) && entries[i].ndev_ifindex == if_nametoindex(name), "index in the table");
		CHECK(!ibv_query_gid_ex(context, 1, entries[i].gid_index, &entry, 0), "entry");
		CHECK(entry.ndev_ifindex == entries[i].ndev_ifindex, "index in the entry");
	}
	puts("all good");
	return 0;
}
