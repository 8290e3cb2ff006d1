/*
 * PEs of OpenSHMEM write, read and add to each other's symmetric memory, and take part in collective operations. Every PE
 * checks every byte.
 */
#include "data.h"
#include <shmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST (1 << 18)

static const int sizes[] = { 1, 8, 1000, 8192, LONGEST };
static int me, count;

static void fail(const char *what, size_t size)
{
	fprintf(stderr, "PE %d: %s of %zu bytes: the data differs\n", me, what, size);
	shmem_global_exit(1);
}

/* Each PE writes to each, tells it so, checks what it has got, and reads back what it has written. */
static void rma(int size, uint8_t *slots, uint8_t *out, uint64_t *arrived)
{
	static uint8_t back[LONGEST], expected[LONGEST];
	for (int to = 0; to < count; to++) {
		fill(out, size, seed_of(me, to, size));
		shmem_putmem(slots + (size_t)me * LONGEST, out, size, to);
		shmem_fence();
		shmem_uint64_p(&arrived[me], size, to);
	}
	for (int from = 0; from < count; from++) {
		shmem_uint64_wait_until(&arrived[from], SHMEM_CMP_EQ, size);
		fill(expected, size, seed_of(from, me, size));
		if (memcmp(slots + (size_t)from * LONGEST, expected, size) != 0)
			fail("put", size);
	}
	for (int to = 0; to < count; to++) {
		memset(back, 0, size);
		shmem_getmem(back, slots + (size_t)me * LONGEST, size, to);
		fill(expected, size, seed_of(me, to, size));
		if (memcmp(back, expected, size) != 0)
			fail("get", size);
	}
	shmem_barrier_all();
}

static void atomics(uint64_t *numbers, uint32_t *small)
{
	const int rounds = 20;
	for (int pe = 0; pe < count; pe++)
		for (int i = 0; i < rounds; i++) {
			shmem_ulong_atomic_add(&numbers[0], 2, pe);
			shmem_ulong_atomic_fetch_inc(&numbers[1], pe);
			shmem_uint_atomic_fetch_add(small, 1, pe);
		}
	while (shmem_ulong_atomic_compare_swap(&numbers[2], me, me + 1, 0) != (uint64_t)me)
		;
	shmem_barrier_all();
	if (numbers[0] != 2u * rounds * count || numbers[1] != (uint64_t)rounds * count)
		fail("64-bit atomics", 16);
	if (*small != (uint32_t)rounds * count)
		fail("32-bit atomics", 4);
	if (shmem_ulong_atomic_fetch(&numbers[2], 0) != (uint64_t)count)
		fail("compare and swap", 8);
}

static long sync_bcast[SHMEM_BCAST_SYNC_SIZE], sync_reduce[SHMEM_REDUCE_SYNC_SIZE], sync_all[SHMEM_ALLTOALL_SYNC_SIZE];
static long long work[SHMEM_REDUCE_MIN_WRKDATA_SIZE > 256 ? SHMEM_REDUCE_MIN_WRKDATA_SIZE : 256];

static void collectives(long long *out, long long *in)
{
	const int numbers = 256;
	for (int i = 0; i < SHMEM_BCAST_SYNC_SIZE; i++)
		sync_bcast[i] = SHMEM_SYNC_VALUE;
	for (int i = 0; i < SHMEM_REDUCE_SYNC_SIZE; i++)
		sync_reduce[i] = SHMEM_SYNC_VALUE;
	for (int i = 0; i < SHMEM_ALLTOALL_SYNC_SIZE; i++)
		sync_all[i] = SHMEM_SYNC_VALUE;
	for (int i = 0; i < numbers; i++)
		out[i] = (long long)i * (me + 1);
	shmem_barrier_all();
	shmem_longlong_sum_to_all(in, out, numbers, 0, 0, count, work, sync_reduce);
	for (int i = 0; i < numbers; i++)
		if (in[i] != (long long)i * count * (count + 1) / 2)
			fail("sum", numbers * sizeof(*in));
	shmem_barrier_all();
	shmem_alltoall64(in, out, numbers / count, 0, 0, count, sync_all);
	for (int from = 0; from < count; from++)
		for (int i = 0; i < numbers / count; i++)
			if (in[from * (numbers / count) + i] !=
			    (long long)(me * (numbers / count) + i) * (from + 1))
				fail("alltoall", numbers * sizeof(*in));
	shmem_barrier_all();
	shmem_broadcast64(in, out, numbers, 0, 0, 0, count, sync_bcast);
	for (int i = 0; me != 0 && i < numbers; i++)
		if (in[i] != i)
			fail("broadcast", numbers * sizeof(*in));
	shmem_barrier_all();
}

int main(void)
{
	shmem_init();
	me = shmem_my_pe();
	count = shmem_n_pes();
	uint8_t *slots = shmem_malloc((size_t)count * LONGEST), *out = shmem_malloc(LONGEST);
	uint64_t *arrived = shmem_calloc(count, sizeof(*arrived)), *numbers = shmem_calloc(3, sizeof(*numbers));
	uint32_t *small = shmem_calloc(1, sizeof(*small));
	shmem_barrier_all();
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		rma(sizes[i], slots, out, arrived);
	atomics(numbers, small);
	collectives((long long *)slots, (long long *)out);
	printf("PE %d of %d: all data is right\n", me, count);
	shmem_finalize();
	return 0;
}
