"""PE 1 raises an exception, and PE 0 prints the one that it sees."""

import sys

import rushmem


def run(rt):
    if rt.rank == 1:
        raise ValueError("no more bananas")
    try:
        rt.barrier()
    except rushmem.Error as error:
        print(f"SEEN {type(error).__name__} {error}", flush=True)
        raise


if "--no-block" in sys.argv:
    run(rushmem.init())
else:
    with rushmem.init() as rt:
        run(rt)
