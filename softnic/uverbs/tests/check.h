/* A check that ends the program, and says what was wrong. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition, ...)                                                              \
	do {                                                                               \
		if (!(condition)) {                                                        \
			fprintf(stderr, "line %d: %s: ", __LINE__, #condition);            \
			fprintf(stderr, __VA_ARGS__);                                      \
			fprintf(stderr, " (errno %d: %s)\n", errno, strerror(errno));      \
			exit(1);                                                           \
		}                                                                          \
	} while (0)

#endif
