/* A job with live membership: PE 1 dies, and the others go on. Exits with the line of the first call that does not do
 * what it should. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"

int main(void) {
    rushmem_pe *pe = NULL;
    rushmem_init_options options = {.size = sizeof options, .device = RUSHMEM_DEVICE_KIND_NATIVE};
    OK(rushmem_init(&options, &pe));
    int32_t me = rushmem_my_pe(pe), n = rushmem_n_pes(pe);
    rushmem_team team = 0;
    OK(rushmem_shrink(pe, &team));
    EXPECT(team == RUSHMEM_TEAM_WORLD && rushmem_epoch(pe) == 1 && rushmem_is_lost(pe, 1) == 0);
    EXPECT(rushmem_is_lost(pe, n) == -1 && strstr(rushmem_error_message(), "there is no PE") != NULL);
    EXPECT(rushmem_shrink(pe, NULL) == RUSHMEM_STATUS_INVALID_VALUE);
    void *memory;
    OK(rushmem_malloc(pe, 16, 0, &memory));
    uint64_t *mine = memory, *sum = mine + 1;
    *mine = (uint64_t)1 << me;
    if (me == 1) {
        raise(SIGKILL);
    }
    EXPECT(rushmem_reduce(pe, team, sum, mine, 1, RUSHMEM_TYPE_UINT64, RUSHMEM_OP_SUM) == RUSHMEM_STATUS_PEER_LOST);
    EXPECT(strstr(rushmem_error_message(), "PE 1 was lost") != NULL);
    EXPECT(rushmem_host_sync(pe) == RUSHMEM_STATUS_PEER_LOST);
    OK(rushmem_shrink(pe, &team));
    EXPECT(team != RUSHMEM_TEAM_WORLD && rushmem_epoch(pe) == 2 && rushmem_is_lost(pe, 1) == 1);
    EXPECT(rushmem_team_n_pes(pe, team) == n - 1);
    OK(rushmem_reduce(pe, team, sum, mine, 1, RUSHMEM_TYPE_UINT64, RUSHMEM_OP_SUM));
    OK(rushmem_host_sync(pe));
    EXPECT(*sum == ((uint64_t)1 << n) - 1 - 2);
    OK(rushmem_finalize(pe));
    printf("PE %d passed\n", (int)me);
    return 0;
}
