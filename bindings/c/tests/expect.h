/* Checks of the test programs, which exit with the line of the first one that fails. */
#include <stdio.h>
#include <stdlib.h>

#include <rushmem.h>

#define EXPECT(condition)                                                                    \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            fprintf(stderr, "line %d: %s; last error: %s\n", __LINE__, #condition, rushmem_error_message()); \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

#define OK(call) EXPECT((call) == RUSHMEM_STATUS_SUCCESS)
