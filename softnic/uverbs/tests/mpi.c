/*
 * Ranks of MPI send messages, take part in collective operations, and write, read and add to each other's windows. Every
 * rank checks every byte.
 */
#include "data.h"
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST (1 << 20)

static const int sizes[] = { 1, 8, 1000, 8192, 65536, LONGEST };
static int me, count;

static void fail(const char *what, size_t size)
{
	fprintf(stderr, "rank %d: %s of %zu bytes: the data differs\n", me, what, size);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Checks that `found` is what `fill` with this seed makes. */
static void check(const uint8_t *found, size_t size, uint32_t seed, const char *what)
{
	static uint8_t expected[LONGEST];
	fill(expected, size, seed);
	if (memcmp(found, expected, size) != 0)
		fail(what, size);
}

/* Each rank sends to each rank, itself among them. */
static void messages(int size, uint8_t *out, uint8_t *in)
{
	MPI_Request requests[2 * count];
	for (int i = 0; i < count; i++) {
		fill(out + (size_t)i * size, size, seed_of(me, i, size));
		MPI_Irecv(in + (size_t)i * size, size, MPI_BYTE, i, size, MPI_COMM_WORLD, &requests[i]);
	}
	for (int i = 0; i < count; i++)
		MPI_Isend(out + (size_t)i * size, size, MPI_BYTE, i, size, MPI_COMM_WORLD, &requests[count + i]);
	MPI_Waitall(2 * count, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < count; i++)
		check(in + (size_t)i * size, size, seed_of(i, me, size), "message");
}

static void collectives(int size, uint8_t *out, uint8_t *in)
{
	memset(in, 0, (size_t)count * size);
	for (int i = 0; i < count; i++)
		fill(out + (size_t)i * size, size, seed_of(me, i, size));
	MPI_Alltoall(out, size, MPI_BYTE, in, size, MPI_BYTE, MPI_COMM_WORLD);
	for (int i = 0; i < count; i++)
		check(in + (size_t)i * size, size, seed_of(i, me, size), "alltoall");

	fill(out, size, seed_of(me, 7, size));
	for (int root = 0; root < count; root++) {
		uint8_t *bytes = me == root ? out : in;
		MPI_Bcast(bytes, size, MPI_BYTE, root, MPI_COMM_WORLD);
		check(bytes, size, seed_of(root, 7, size), "broadcast");
	}

	int numbers = size / sizeof(int64_t);
	int64_t *mine = (int64_t *)out, *sums = (int64_t *)in;
	for (int i = 0; i < numbers; i++)
		mine[i] = (int64_t)i * (me + 1);
	MPI_Allreduce(mine, sums, numbers, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < numbers; i++)
		if (sums[i] != (int64_t)i * count * (count + 1) / 2)
			fail("allreduce", size);
}

/* Each rank writes its part of the next rank's window, and reads it back. */
static void windows(int size, uint8_t *out, uint8_t *in, uint8_t *memory, MPI_Win window)
{
	int next = (me + 1) % count, previous = (me + count - 1) % count;
	fill(out, size, seed_of(me, next, size));
	memset(in, 0, size);
	MPI_Win_fence(0, window);
	MPI_Put(out, size, MPI_BYTE, next, 0, size, MPI_BYTE, window);
	MPI_Win_fence(0, window);
	check(memory, size, seed_of(previous, me, size), "put");
	MPI_Get(in, size, MPI_BYTE, next, 0, size, MPI_BYTE, window);
	MPI_Win_fence(0, window);
	check(in, size, seed_of(me, next, size), "get");
}

/* All ranks add to the numbers of rank 0, and one of them swaps each of its values. */
static void atomics(int64_t *numbers, MPI_Win window)
{
	const int rounds = 20;
	int64_t one = 1, seen, last = -1;
	MPI_Win_fence(0, window);
	if (me == 0)
		memset(numbers, 0, 3 * sizeof(*numbers));
	MPI_Win_fence(0, window);
	MPI_Win_lock_all(0, window);
	for (int i = 0; i < rounds; i++) {
		MPI_Fetch_and_op(&one, &seen, MPI_INT64_T, 0, 0, MPI_SUM, window);
		MPI_Win_flush(0, window);
		if (seen <= last)
			fail("fetch and add", sizeof(seen));
		last = seen;
		MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 1, 1, MPI_INT64_T, MPI_SUM, window);
	}
	MPI_Win_flush(0, window);
	int64_t from, to;
	do {
		from = me, to = me + 1;
		MPI_Compare_and_swap(&to, &from, &seen, MPI_INT64_T, 0, 2, window);
		MPI_Win_flush(0, window);
	} while (seen != me);
	MPI_Win_unlock_all(window);
	MPI_Win_fence(0, window);
	if (me == 0 && (numbers[0] != rounds * count || numbers[1] != rounds * count || numbers[2] != count))
		fail("atomics", 3 * sizeof(*numbers));
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &count);
	uint8_t *out = malloc((size_t)count * LONGEST), *in = malloc((size_t)count * LONGEST), *memory;
	MPI_Win window;
	MPI_Win_allocate(LONGEST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		messages(sizes[i], out, in);
		collectives(sizes[i], out, in);
		windows(sizes[i], out, in, memory, window);
	}
	MPI_Win_free(&window);
	int64_t *numbers;
	MPI_Win_allocate(3 * sizeof(*numbers), sizeof(*numbers), MPI_INFO_NULL, MPI_COMM_WORLD, &numbers, &window);
	atomics(numbers, window);
	MPI_Win_free(&window);
	printf("rank %d of %d: all data is right\n", me, count);
	MPI_Finalize();
	return 0;
}
