// NVSHMEM's names: compile with `-I` on this folder, and docs/porting.md says what remains.
#include "../rushmem_nvshmem.h"
