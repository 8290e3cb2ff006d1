"""Collective calls of all PEs and of teams. Prints PASS."""

import numpy

import rushmem


def check(rt, team, members):
    """Check the collective calls of a team."""
    me, n = members.index(rt.rank), len(members)
    src, dst = rt.zeros(2 * n, "int32"), rt.zeros(2 * n, "int32")
    numpy.from_dlpack(src)[:] = 100 * me + numpy.arange(2 * n)
    rt.barrier(team)

    rt.all_reduce(dst, src, team=team)
    assert numpy.from_dlpack(dst).tolist() == [sum(100 * m + i for m in range(n)) for i in range(2 * n)]
    rt.all_reduce(dst, src, "max", team=team)
    assert numpy.from_dlpack(dst).tolist() == [100 * (n - 1) + i for i in range(2 * n)]
    rt.reduce_scatter(dst[:2], src, "min", team=team)
    assert numpy.from_dlpack(dst[:2]).tolist() == [2 * me, 2 * me + 1]
    rt.all_gather(dst, src[:2], team=team)
    assert numpy.from_dlpack(dst).tolist() == [100 * m + i for m in range(n) for i in range(2)]
    rt.all_to_all(dst, src, team=team)
    assert numpy.from_dlpack(dst).tolist() == [100 * m + 2 * me + i for m in range(n) for i in range(2)]
    rt.broadcast(dst, src, n - 1, team=team)
    assert numpy.from_dlpack(dst).tolist() == [100 * (n - 1) + i for i in range(2 * n)]


with rushmem.init() as rt:
    everyone = list(range(rt.world_size))
    check(rt, None, everyone)
    check(rt, rt.world, everyone)
    half = rt.world_size // 2
    halves = [rt.world.split_strided(first, 2, half) for first in (0, 1)]
    assert halves[1 - rt.rank % 2] is None
    # Arrays are allocated by all PEs, so both teams make the same calls.
    with halves[rt.rank % 2] as team:
        assert (team.rank, team.size, team.pes) == (rt.rank // 2, half, everyone[rt.rank % 2 :: 2])
        check(rt, team, team.pes)
print("PASS")
