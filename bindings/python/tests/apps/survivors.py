"""PE 1 dies, or raises an exception with the argument `--raise`. The others go on without it, and print PASS."""

import os
import signal
import sys

import numpy

import rushmem

with rushmem.init(membership="live") as rt:
    assert (rt.epoch, rt.shrink().pes, rt.is_lost(1)) == (1, rt.world.pes, False)
    mine, total = rt.zeros(1, "int64"), rt.zeros(1, "int64")
    numpy.from_dlpack(mine)[0] = 1 << rt.rank
    if rt.rank == 1 and "--raise" in sys.argv:
        raise ValueError("no more bananas")
    if rt.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        rt.all_reduce(total, mine)
        raise AssertionError("PE 1 cannot have taken part")
    except rushmem.PeerLostError as error:
        assert "PE 1" in str(error), error
    try:
        rt.host_sync()
        raise AssertionError("PE 1 cannot have taken part")
    except rushmem.PeerLostError:
        living = rt.shrink()
    others = [pe for pe in range(rt.world_size) if pe != 1]
    assert (rt.epoch, living.pes, rt.is_lost(1)) == (2, others, True)
    rt.all_reduce(total, mine, team=living)
    rt.host_sync()
    assert numpy.from_dlpack(total)[0] == sum(1 << pe for pe in others)
    later = rt.zeros(1)
    later.free()
print("PASS")
