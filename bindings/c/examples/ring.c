/*
 * Every PE puts a message to the next one.
 *
 *     cargo build --release -p rushmem-cli -p rushmem-c
 *     cc -I bindings/c/include -o target/ring bindings/c/examples/ring.c -L target/release -lrushmem -Wl,-rpath,$PWD/target/release
 *     target/release/rushmem run -n 4 target/ring
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <rushmem.h>

enum { WORDS = 1024 };

/* Exits with the text of the error if a call has failed. */
static void check(int32_t status) {
    if (status != RUSHMEM_STATUS_SUCCESS) {
        fprintf(stderr, "error %" PRId32 ": %s\n", status, rushmem_error_message());
        exit(1);
    }
}

int main(void) {
    rushmem_pe *pe;
    check(rushmem_init(NULL, &pe));
    int32_t me = rushmem_my_pe(pe), n = rushmem_n_pes(pe);
    int32_t right = (me + 1) % n, left = (me + n - 1) % n;
    if (rushmem_is_gpu(pe)) {
        fprintf(stderr, "this example accesses symmetric memory on the host: set RUSHMEM_DEVICE=native\n");
        return 1;
    }

    void *memory;
    check(rushmem_malloc(pe, WORDS * sizeof(uint32_t), 0, &memory));
    uint32_t *inbox = memory;
    check(rushmem_malloc(pe, WORDS * sizeof(uint32_t), 0, &memory));
    uint32_t *message = memory;
    for (uint32_t i = 0; i < WORDS; i++) {
        message[i] = (uint32_t)me * WORDS + i;
    }

    check(rushmem_putmem(pe, inbox, message, WORDS * sizeof(uint32_t), right));
    check(rushmem_barrier_all(pe));
    for (uint32_t i = 0; i < WORDS; i++) {
        if (inbox[i] != (uint32_t)left * WORDS + i) {
            fprintf(stderr, "word %" PRIu32 " is %" PRIu32 "\n", i, inbox[i]);
            return 1;
        }
    }
    printf("PE %" PRId32 " of %" PRId32 " has the message of PE %" PRId32 "\n", me, n, left);

    check(rushmem_free(pe, message));
    check(rushmem_free(pe, inbox));
    check(rushmem_finalize(pe));
    return 0;
}
