/*
 * The folders of the machine that list the devices, by each way that programs list folders.
 *
 * listing: prints nothing but what is wrong, and "all good".
 */
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
	const char *folder, *name;
} listed[] = {
	{ "/dev", "infiniband" },
	{ "/dev/char", "231:192" },
	{ "/dev/infiniband", "rdma_cm" },
	{ "/dev/infiniband", "umad0" },
	{ "/dev/infiniband", "uverbs0" },
	{ "/sys", "class" },
	{ "/sys/bus/pci", "devices" },
	{ "/sys/bus/pci/devices", "7000:00:01.0" },
	{ "/sys/bus/pci/devices", "7000:01:00.0" },
	{ "/sys/bus/pci/drivers", "mlx5_core" },
	{ "/sys/class", "infiniband" },
	{ "/sys/class", "infiniband_mad" },
	{ "/sys/class", "infiniband_verbs" },
	{ "/sys/class", "net" },
	{ "/sys/class/infiniband", "mlx5_0" },
	{ "/sys/class/infiniband_mad", "umad0" },
	{ "/sys/class/infiniband_verbs", "uverbs0" },
	{ "/sys/class/misc", "rdma_cm" },
	{ "/sys/class/pci_bus", "7000:01" },
	{ "/sys/dev/char", "231:192" },
	{ "/sys/devices", "pci7000:00" },
	{ "/sys/devices", "system" },
};

static int in(DIR *dir, const char *name)
{
	struct dirent *entry;
	int found = 0;
	CHECK(dir, "opendir");
	while ((entry = readdir(dir)))
		found |= !strcmp(entry->d_name, name);
	closedir(dir);
	return found;
}

static int is_listed_by_scandir(int at, const char *folder, const char *name)
{
	struct dirent **list;
	int count = scandirat(at, folder, &list, NULL, alphasort), found = 0;
	while (count-- > 0) {
		found |= !strcmp(list[count]->d_name, name);
		free(list[count]);
	}
	return found;
}

int main(void)
{
	int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(root >= 0, "open /");
	for (size_t i = 0; i < sizeof(listed) / sizeof(*listed); i++) {
		const char *folder = listed[i].folder, *name = listed[i].name;
		char path[128];
		struct stat absolute, relative;
		glob_t found;
		snprintf(path, sizeof(path), "%s/%s", folder, name);
		CHECK(in(opendir(folder), name), "%s", path);
		/* hwloc opens all paths below a descriptor of the root. */
		CHECK(in(fdopendir(openat(root, folder + 1, O_RDONLY | O_DIRECTORY)), name), "%s", path);
		CHECK(is_listed_by_scandir(AT_FDCWD, folder, name) && is_listed_by_scandir(root, folder + 1, name), "%s", path);
		CHECK(!glob(path, 0, NULL, &found) && found.gl_pathc == 1 && !strcmp(found.gl_pathv[0], path), "%s", path);
		globfree(&found);
		path[strlen(folder) + 2] = '*';
		path[strlen(folder) + 3] = 0;
		CHECK(!glob(path, 0, NULL, &found) && found.gl_pathc >= 1, "%s", path);
		globfree(&found);
		snprintf(path, sizeof(path), "%s/%s", folder, name);
		CHECK(!stat(path, &absolute) && !fstatat(root, path + 1, &relative, 0), "%s", path);
		CHECK(absolute.st_mode == relative.st_mode && absolute.st_rdev == relative.st_rdev, "%s", path);
		/* What is in the folder opens relative to the folder. */
		int at = open(folder, O_RDONLY | O_DIRECTORY);
		CHECK(at >= 0 && !fstatat(at, name, &relative, 0) && relative.st_mode == absolute.st_mode, "%s", path);
		close(at);
	}
	puts("all good");
	return 0;
}
