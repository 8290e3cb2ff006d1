"""Every PE puts its number to the next PE, and checks the number that it receives.

Run it with `python -m rushmem run -n 4 ring.py`, or without a launcher as a job of one PE.
"""

import numpy

import rushmem

with rushmem.init() as rt:
    inbox, message = rt.zeros(1, "int64"), rt.zeros(1, "int64")
    arrived = rt.zeros(1, "uint64")
    if rt.is_gpu:
        import torch as library
    else:
        library = numpy
    library.from_dlpack(message)[0] = rt.rank

    following = (rt.rank + 1) % rt.world_size
    rt.put_signal(inbox, message, arrived, 1, following)
    rt.wait_until(arrived, "==", 1)

    received = int(library.from_dlpack(inbox)[0])
    assert received == (rt.rank - 1) % rt.world_size, f"PE {rt.rank} received {received}"
    print(f"PASS ring: PE {rt.rank} of {rt.world_size} received {received}")
