/* Starts one process per PE, without a launcher. They find each other by a unique ID. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rushmem.h>

enum { PES = 3 };

static void check(int32_t status) {
    if (status != RUSHMEM_STATUS_SUCCESS) {
        fprintf(stderr, "error %d: %s\n", (int)status, rushmem_error_message());
        exit(1);
    }
}

static void run(const char *id, int32_t number) {
    rushmem_init_options options = {.size = sizeof options, .unique_id = id, .pe = number, .n_pes = PES};
    rushmem_pe *pe;
    check(rushmem_init(&options, &pe));
    if (rushmem_my_pe(pe) != number || rushmem_n_pes(pe) != PES) {
        exit(2);
    }
    check(rushmem_barrier_all(pe));
    check(rushmem_finalize(pe));
}

int main(int argc, char **argv) {
    if (argc == 3) {
        run(argv[1], atoi(argv[2]));
        return 0;
    }
    char id[RUSHMEM_UNIQUE_ID_BYTES];
    check(rushmem_unique_id(id, sizeof id));
    for (int i = 1; i < PES; i++) {
        char number[] = {(char)('0' + i), 0};
        if (fork() == 0) {
            execl(argv[0], argv[0], id, number, (char *)NULL);
            _exit(3);
        }
    }
    run(id, 0);
    for (int i = 1; i < PES; i++) {
        int status;
        if (wait(&status) < 0 || status != 0) {
            return 4;
        }
    }
    return 0;
}
