/* The bytes that a program sends, which the receiver computes again. */
#ifndef DATA_H
#define DATA_H

#include <stddef.h>
#include <stdint.h>

static inline void fill(uint8_t *bytes, size_t size, uint32_t seed)
{
	for (size_t i = 0; i < size; i++) {
		seed = seed * 1664525 + 1013904223;
		bytes[i] = seed >> 24;
	}
}

static inline uint32_t seed_of(int from, int to, int size)
{
	return from * 1000 + to * 100 + size;
}

#endif
