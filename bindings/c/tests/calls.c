/* Calls the functions of rushmem.h, and exits with the line of the first one that does not do what it should. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"

/* Expects an error with a status and a text. */
#define FAILS(call, status, text) \
    EXPECT((call) == (status) && strstr(rushmem_error_message(), (text)) != NULL)

static void *allocate(rushmem_pe *pe, size_t bytes) {
    void *ptr = NULL;
    OK(rushmem_malloc(pe, bytes, 0, &ptr));
    EXPECT(ptr != NULL && (uintptr_t)ptr % 128 == 0);
    return ptr;
}

static void memory(rushmem_pe *pe) {
    int32_t me = rushmem_my_pe(pe), n = rushmem_n_pes(pe);
    void *ptr, *there;
    OK(rushmem_malloc(pe, 100, 4096, &ptr));
    EXPECT((uintptr_t)ptr % 4096 == 0);
    OK(rushmem_ptr(pe, (char *)ptr + 8, me, &there));
    EXPECT(there == (char *)ptr + 8);
    FAILS(rushmem_ptr(pe, ptr, n, &there), RUSHMEM_STATUS_INVALID_VALUE, "there is no PE");
    FAILS(rushmem_free(pe, (char *)ptr + 8), RUSHMEM_STATUS_INVALID_VALUE, "is not the start of an allocation");
    OK(rushmem_free(pe, ptr));
    FAILS(rushmem_free(pe, ptr), RUSHMEM_STATUS_INVALID_VALUE, "is not the start of an allocation, or has been freed");
    FAILS(rushmem_putmem(pe, ptr, ptr, 8, 0), RUSHMEM_STATUS_INVALID_VALUE, "rushmem_putmem: `dst` (0x");

    OK(rushmem_calloc(pe, 10, 8, &ptr));
    for (int i = 0; i < 80; i++) {
        EXPECT(((char *)ptr)[i] == 0);
    }
    OK(rushmem_free(pe, ptr));
    OK(rushmem_malloc(pe, 0, 0, &ptr));
    EXPECT(ptr == NULL);
    OK(rushmem_free(pe, NULL));
    FAILS(rushmem_calloc(pe, SIZE_MAX, 2, &ptr), RUSHMEM_STATUS_INVALID_VALUE, "overflows");
    FAILS(rushmem_malloc(pe, 8, 3, &ptr), RUSHMEM_STATUS_INVALID_VALUE, "the alignment 3");
    FAILS(rushmem_malloc(pe, (size_t)1 << 40, 0, &ptr), RUSHMEM_STATUS_OUT_OF_MEMORY, "heap");
    EXPECT(strstr(rushmem_error_message(), ".rs:") == NULL);
    FAILS(rushmem_malloc(pe, 8, 0, NULL), RUSHMEM_STATUS_INVALID_VALUE, "`ptr` is null");
    FAILS(rushmem_malloc(pe, 8, 0, (void **)((char *)&ptr + 1)), RUSHMEM_STATUS_INVALID_VALUE, "not a multiple of 8");
}

/* Puts, gets and signals between neighbours, on the host or in a stream. */
static void transfers(rushmem_pe *pe, int in_stream) {
    int32_t me = rushmem_my_pe(pe), n = rushmem_n_pes(pe);
    int32_t right = (me + 1) % n, left = (me + n - 1) % n;
    uint64_t *inbox = allocate(pe, 4096), *message = allocate(pe, 4096), *signal = allocate(pe, 8);
    static _Alignas(4096) uint64_t own[512];
    OK(rushmem_register(pe, own, sizeof own));
    for (uint64_t i = 0; i < 512; i++) {
        message[i] = own[i] = (uint64_t)me << 32 | i;
    }
    OK(rushmem_barrier_all(pe));
    if (in_stream) {
        OK(rushmem_putmem_on_stream(pe, inbox, message, 2048, right, NULL));
        OK(rushmem_putmem_signal_on_stream(pe, inbox + 256, own + 256, 2048, signal, 5, RUSHMEM_SIGNAL_SET, right, NULL));
        OK(rushmem_quiet_on_stream(pe, NULL));
        OK(rushmem_signal_op_on_stream(pe, signal, 2, RUSHMEM_SIGNAL_ADD, right, NULL));
        OK(rushmem_signal_wait_until_on_stream(pe, signal, RUSHMEM_CMP_EQ, 7, NULL));
        OK(rushmem_getmem_on_stream(pe, own, message, 4096, left, NULL));
        OK(rushmem_sync_all_on_stream(pe, NULL));
        OK(rushmem_stream_synchronize(pe, NULL));
    } else {
        OK(rushmem_putmem(pe, inbox, message, 2048, right));
        OK(rushmem_putmem_signal(pe, inbox + 256, own + 256, 2048, signal, 5, RUSHMEM_SIGNAL_SET, right));
        OK(rushmem_quiet(pe));
        OK(rushmem_signal_op(pe, signal, 2, RUSHMEM_SIGNAL_ADD, right));
        OK(rushmem_signal_wait_until(pe, signal, RUSHMEM_CMP_EQ, 7));
        OK(rushmem_getmem(pe, own, message, 4096, left));
        OK(rushmem_sync_all(pe));
    }
    for (uint64_t i = 0; i < 512; i++) {
        EXPECT(inbox[i] == ((uint64_t)left << 32 | i) && own[i] == inbox[i]);
    }
    FAILS(rushmem_putmem(pe, inbox, message, 8, n), RUSHMEM_STATUS_INVALID_VALUE, "PE");
    FAILS(rushmem_putmem(pe, inbox, message, 8, -1), RUSHMEM_STATUS_INVALID_VALUE, "`peer` is -1");
    FAILS(rushmem_putmem(pe, inbox, message, 4097, right), RUSHMEM_STATUS_INVALID_VALUE, "has 4096 bytes up to");
    FAILS(rushmem_putmem(pe, own, message, 8, right), RUSHMEM_STATUS_INVALID_VALUE, "is a local buffer");
    FAILS(rushmem_putmem(pe, inbox, &me, 4, right), RUSHMEM_STATUS_INVALID_VALUE, "`src` (0x");
    FAILS(rushmem_signal_op(pe, (uint64_t *)((char *)signal + 4), 1, 0, right), RUSHMEM_STATUS_INVALID_VALUE, "`signal`");
    FAILS(rushmem_signal_op(pe, signal, 1, 2, right), RUSHMEM_STATUS_INVALID_VALUE, "there is no signal update 2");
    FAILS(rushmem_signal_wait_until(pe, signal, 7, 0), RUSHMEM_STATUS_INVALID_VALUE, "there is no comparison 7");
    FAILS(rushmem_quiet_on_stream(pe, &me), RUSHMEM_STATUS_NOT_SUPPORTED, "");
    OK(rushmem_unregister(pe, own));
    FAILS(rushmem_unregister(pe, own), RUSHMEM_STATUS_INVALID_VALUE, "is not a local buffer");
    FAILS(rushmem_putmem(pe, inbox, own, 8, right), RUSHMEM_STATUS_INVALID_VALUE, "`src` (0x");
    OK(rushmem_free(pe, inbox));
    OK(rushmem_free(pe, message));
    OK(rushmem_free(pe, signal));
}

static void windows(rushmem_pe *pe) {
    int32_t me = rushmem_my_pe(pe), n = rushmem_n_pes(pe);
    uint64_t context, again;
    OK(rushmem_context(pe, &context));
    EXPECT(context != 0);
    static _Alignas(4096) int32_t mine[2048];
    rushmem_window *window;
    OK(rushmem_register_symmetric(pe, mine, sizeof mine, &window));
    FAILS(rushmem_register(pe, mine, 64), RUSHMEM_STATUS_INVALID_VALUE, "overlap");
    for (int32_t i = 0; i < 1024; i++) {
        mine[i] = me + i;
    }
    OK(rushmem_barrier_all(pe));
    OK(rushmem_putmem(pe, mine + 1024, mine, 4096, (me + 1) % n));
    OK(rushmem_barrier_all(pe));
    for (int32_t i = 0; i < 1024; i++) {
        EXPECT(mine[1024 + i] == (me + n - 1) % n + i);
    }
    OK(rushmem_unregister_symmetric(pe, window));
    FAILS(rushmem_unregister_symmetric(pe, window), RUSHMEM_STATUS_INVALID_VALUE, "is not a window");
    FAILS(rushmem_putmem(pe, mine, mine, 8, 0), RUSHMEM_STATUS_INVALID_VALUE, "`dst` (0x");
    OK(rushmem_context(pe, &again));
    EXPECT(context == again);
    OK(rushmem_check(pe));
}

static void collectives(rushmem_pe *pe, rushmem_team team, int in_stream) {
    int32_t me = rushmem_team_my_pe(pe, team), n = rushmem_team_n_pes(pe, team);
    uint32_t *src = allocate(pe, 4 * 64), *dst = allocate(pe, 4 * 64);
    float *half = allocate(pe, 4);
    for (int32_t i = 0; i < 16; i++) {
        src[i] = (uint32_t)(100 * me + i);
    }
    OK(rushmem_barrier(pe, team));
#define BOTH(name, ...) \
    OK(in_stream ? name##_on_stream(pe, team, __VA_ARGS__, NULL) : name(pe, team, __VA_ARGS__)); \
    OK(rushmem_stream_synchronize(pe, NULL)); \
    OK(in_stream ? rushmem_barrier_on_stream(pe, team, NULL) : rushmem_barrier(pe, team)); \
    OK(rushmem_stream_synchronize(pe, NULL))
    BOTH(rushmem_broadcastmem, dst, src, 16, 1);
    EXPECT(dst[0] == 100 && dst[3] == 103);
    BOTH(rushmem_fcollectmem, dst, src, 8);
    for (int32_t i = 0; i < n; i++) {
        EXPECT(dst[2 * i] == (uint32_t)(100 * i) && dst[2 * i + 1] == (uint32_t)(100 * i + 1));
    }
    BOTH(rushmem_alltoallmem, dst, src, 4);
    for (int32_t i = 0; i < n; i++) {
        EXPECT(dst[i] == (uint32_t)(100 * i + me));
    }
    BOTH(rushmem_reduce, dst, src, 4, RUSHMEM_TYPE_UINT32, RUSHMEM_OP_MAX);
    EXPECT(dst[2] == (uint32_t)(100 * (n - 1) + 2));
    float *floats = (float *)src;
    for (int32_t i = 0; i < n; i++) {
        floats[i] = 0.5f * (float)(i + 1);
    }
    OK(rushmem_barrier(pe, team));
    BOTH(rushmem_reduce_scatter, half, floats, 1, RUSHMEM_TYPE_FLOAT32, RUSHMEM_OP_SUM);
    EXPECT(*half == 0.5f * (float)(me + 1) * (float)n);
    FAILS(rushmem_reduce(pe, team, dst, src, 1, 12, 0), RUSHMEM_STATUS_INVALID_VALUE, "there is no element type 12");
    FAILS(rushmem_reduce(pe, team, dst, src, 1, 0, -1), RUSHMEM_STATUS_INVALID_VALUE, "there is no reduction -1");
    FAILS(rushmem_alltoallmem(pe, team, dst, src, 256), RUSHMEM_STATUS_INVALID_VALUE, "`dst` (0x");
    FAILS(rushmem_barrier(pe, 77), RUSHMEM_STATUS_INVALID_VALUE, "0x4d is not a team");
    OK(rushmem_barrier(pe, team));
    OK(rushmem_free(pe, src));
    OK(rushmem_free(pe, dst));
    OK(rushmem_free(pe, half));
}

static void teams(rushmem_pe *pe) {
    int32_t me = rushmem_my_pe(pe), n = rushmem_n_pes(pe);
    rushmem_team world = RUSHMEM_TEAM_WORLD, reversed, first;
    OK(rushmem_team_split_strided(pe, world, n - 1, -1, n, &reversed));
    EXPECT(rushmem_team_my_pe(pe, reversed) == n - 1 - me && rushmem_team_n_pes(pe, reversed) == n);
    EXPECT(rushmem_team_translate_pe(pe, reversed, 0, world) == n - 1);
    OK(rushmem_team_split_strided(pe, world, 0, 1, 1, &first));
    EXPECT((first == RUSHMEM_TEAM_INVALID) == (me != 0));
    EXPECT(me != 0 || rushmem_team_translate_pe(pe, world, 1, first) == -1);
    OK(rushmem_team_destroy(pe, first));
    EXPECT(rushmem_team_my_pe(pe, RUSHMEM_TEAM_NODE) == me && rushmem_team_n_pes(pe, RUSHMEM_TEAM_NODE) == n);
    EXPECT(rushmem_team_n_pes(pe, RUSHMEM_TEAM_SHARED) >= 1);
    OK(rushmem_team_destroy(pe, RUSHMEM_TEAM_NODE));
    collectives(pe, world, 0);
    collectives(pe, reversed, 1);
    OK(rushmem_team_destroy(pe, reversed));
    EXPECT(rushmem_team_n_pes(pe, reversed) == -1);
    FAILS(rushmem_team_destroy(pe, reversed), RUSHMEM_STATUS_INVALID_VALUE, "has been destroyed");
}

/* Checkpoints in a folder that all PEs see, and files of each PE. */
static void storage(rushmem_pe *pe, const char *folder) {
    int32_t me = rushmem_my_pe(pe);
    char checkpoint[256], file[256];
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint", folder);
    snprintf(file, sizeof file, "%s/file", folder);
    uint32_t *cells = allocate(pe, 4096), *step = allocate(pe, 4);
    for (uint32_t i = 0; i < 1024; i++) {
        cells[i] = 10000 * (uint32_t)me + i;
    }
    *step = 7;
    rushmem_object objects[] = {{"cells", cells, 4096}, {"step", step, 4}};
    OK(rushmem_save(pe, checkpoint, objects, 2));
    memset(cells, 0, 4096);
    *step = 8;
    OK(rushmem_restore(pe, checkpoint, objects, 1));
    EXPECT(cells[1023] == 10000 * (uint32_t)me + 1023 && *step == 8);
    OK(rushmem_restore(pe, checkpoint, objects, 2));
    EXPECT(*step == 7);
    int32_t n = rushmem_n_pes(pe), right = (me + 1) % n;
    EXPECT(rushmem_checkpoint_parts(checkpoint) == n && rushmem_checkpoint_parts(folder) == -1);
    OK(rushmem_restore_part(pe, checkpoint, right, objects, 1));
    EXPECT(cells[5] == 10000 * (uint32_t)right + 5);
    OK(rushmem_restore_part(pe, checkpoint, me, objects, 1));
    EXPECT(rushmem_restore_part(pe, checkpoint, n, objects, 1) != RUSHMEM_STATUS_SUCCESS);
    FAILS(rushmem_restore_part(pe, checkpoint, -1, objects, 1), RUSHMEM_STATUS_INVALID_VALUE, "`part` is -1");
    rushmem_object wrong[] = {{"cells", cells, 4092}, {"cells", step, 4}, {NULL, step, 4}};
    EXPECT(rushmem_restore(pe, checkpoint, wrong, 1) != RUSHMEM_STATUS_SUCCESS);
    FAILS(rushmem_save(pe, checkpoint, wrong, 2), RUSHMEM_STATUS_INVALID_VALUE, "two objects have the name `cells`");
    FAILS(rushmem_save(pe, checkpoint, wrong, 3), RUSHMEM_STATUS_INVALID_VALUE, "`objects->name` is null");
    FAILS(rushmem_save(pe, checkpoint, (void *)((char *)objects + 1), 1), RUSHMEM_STATUS_INVALID_VALUE, "not a multiple");
    FAILS(rushmem_save(pe, checkpoint, objects, SIZE_MAX), RUSHMEM_STATUS_INVALID_VALUE, "cannot have");
    FAILS(rushmem_save(pe, checkpoint, NULL, 1), RUSHMEM_STATUS_INVALID_VALUE, "`objects` is null");
    FAILS(rushmem_save(pe, NULL, objects, 2), RUSHMEM_STATUS_INVALID_VALUE, "`path` is null");

    OK(rushmem_write_file(pe, file, 4096 * (uint64_t)me, cells, 4096));
    OK(rushmem_read_file(pe, file, 4096 * (uint64_t)me + 4, step, 4));
    EXPECT(*step == 10000 * (uint32_t)me + 1);
    EXPECT(rushmem_read_file(pe, file, (uint64_t)1 << 20, step, 4) == RUSHMEM_STATUS_SYSTEM);
    FAILS(rushmem_read_file(pe, file, 0, &me, 4), RUSHMEM_STATUS_INVALID_VALUE, "`dst` (0x");
    OK(rushmem_barrier_all(pe));
    OK(rushmem_free(pe, cells));
    OK(rushmem_free(pe, step));
}

int main(int argc, char **argv) {
    rushmem_pe *pe = NULL;
    EXPECT(strlen(rushmem_version()) >= 5 && rushmem_error_message()[0] == 0);
    FAILS(rushmem_init(NULL, NULL), RUSHMEM_STATUS_INVALID_VALUE, "`pe` is null");
    rushmem_init_options options = {.size = sizeof options, .device = 9};
    FAILS(rushmem_init(&options, &pe), RUSHMEM_STATUS_INVALID_VALUE, "there is no device 9");
    options = (rushmem_init_options){.size = sizeof options, .pe = 1};
    FAILS(rushmem_init(&options, &pe), RUSHMEM_STATUS_INVALID_VALUE, "need a unique ID");
    options = (rushmem_init_options){.size = sizeof options, .unique_id = "12"};
    EXPECT(rushmem_init(&options, &pe) == RUSHMEM_STATUS_INVALID_VALUE);
    char id[RUSHMEM_UNIQUE_ID_BYTES];
    FAILS(rushmem_unique_id(id, sizeof id - 1), RUSHMEM_STATUS_INVALID_VALUE, "too few");
    FAILS(rushmem_barrier_all(pe), RUSHMEM_STATUS_INVALID_VALUE, "rushmem_barrier_all: `pe` is null");
    EXPECT(rushmem_my_pe(pe) == -1);

    options = (rushmem_init_options){
        .size = sizeof options, .heap_bytes = 1 << 20, .device = RUSHMEM_DEVICE_KIND_NATIVE};
    OK(rushmem_init(&options, &pe));
    EXPECT(rushmem_n_pes(pe) >= 2 && !rushmem_is_gpu(pe) && rushmem_gpu(pe) == -1);
    FAILS(rushmem_global_exit(pe, 256), RUSHMEM_STATUS_INVALID_VALUE, "is not in 0 to 255");
    memory(pe);
    transfers(pe, 0);
    transfers(pe, 1);
    if (argc < 3) {
        windows(pe);
    }
    teams(pe);
    EXPECT(rushmem_epoch(pe) == 0 && rushmem_is_lost(pe, 1) == 0);
    rushmem_team living;
    FAILS(rushmem_shrink(pe, &living), RUSHMEM_STATUS_INVALID_VALUE, "fixed membership");
    storage(pe, argv[argc - 1]);
    int32_t me = rushmem_my_pe(pe);
    OK(rushmem_finalize(pe));
    FAILS(rushmem_finalize(pe), RUSHMEM_STATUS_INVALID_VALUE, "or has been finalized");
    FAILS(rushmem_check(pe), RUSHMEM_STATUS_INVALID_VALUE, "or has been finalized");
    printf("PE %d passed\n", (int)me);
    return 0;
}
