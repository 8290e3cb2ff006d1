"""Symmetric arrays, one-sided operations and collective calls between the processes of a job.

Every process of a job is a PE. Each has its own copy of a symmetric array, and reads and writes the copies of the
others. On GPUs, data moves without a CPU; without a GPU, the same calls run on the CPU.

A ring, in which every PE puts its number to the next one::

    import numpy
    import rushmem

    with rushmem.init() as rt:
        inbox, message = rt.zeros(1, "int64"), rt.zeros(1, "int64")
        numpy.from_dlpack(message)[0] = rt.rank
        rt.put(inbox, message, (rt.rank + 1) % rt.world_size)
        rt.barrier()
        print(f"PE {rt.rank} received {numpy.from_dlpack(inbox)[0]}")

Start it with ``python -m rushmem run -n 4 ring.py``, torchrun, mpirun or srun.
"""

from ._errors import DeadlineError, Error, MisuseError, PeerLostError
from ._init import init, unique_id
from ._rushmem import Array, Runtime, Team, Window, checkpoint_parts

__all__ = [
    "Array",
    "DeadlineError",
    "Error",
    "MisuseError",
    "PeerLostError",
    "Runtime",
    "Team",
    "Window",
    "checkpoint_parts",
    "init",
    "unique_id",
]
