"""Saves arrays of all PEs in the folder of the first argument, and restores them. Prints PASS."""

import sys
from pathlib import Path

import numpy

import rushmem

folder = Path(sys.argv[1])
with rushmem.init() as rt:
    cells, step = rt.zeros((4, 8), "float16"), rt.zeros((), "uint64")
    here, count = numpy.from_dlpack(cells), numpy.from_dlpack(step)
    here[:] = 10 * rt.rank + numpy.arange(32).reshape(4, 8) / 64
    count[...] = 7
    wanted = here.copy()
    rt.save(folder / "heat", {"cells": cells, "step": step})
    here[:], count[...] = 0, 8
    rt.restore(folder / "heat", {"cells": cells})
    assert (here == wanted).all() and count == 8
    rt.restore(folder / "heat", {"step": step})
    assert count == 7
    right = (rt.rank + 1) % rt.world_size
    assert rushmem.checkpoint_parts(folder / "heat") == rt.world_size
    rt.restore_part(folder / "heat", right, {"cells": cells})
    assert (here == wanted + 10 * (right - rt.rank)).all()
    rt.restore_part(folder / "heat", rt.rank, {"cells": cells})
    for wrong in ({"cells": rt.zeros((4, 8), "uint8")}, {"cell": cells}):
        try:
            rt.restore(folder / "heat", wrong)
            raise AssertionError(f"restored {wrong}")
        except rushmem.Error as error:
            assert "cell" in str(error), error
    assert (here == wanted).all()

    # Each PE writes its part of one file, and reads that of its neighbour.
    rt.write_file(folder / "parts", cells, offset=rt.rank * cells.nbytes)
    rt.barrier()
    rt.read_file(folder / "parts", cells, offset=right * cells.nbytes)
    assert (here == wanted + 10 * (right - rt.rank)).all()
    for offset, kind in ((-1, "invalid_value"), (rt.world_size * cells.nbytes, "system")):
        try:
            rt.read_file(folder / "parts", cells, offset=offset)
            raise AssertionError("there is nothing to read")
        except rushmem.Error as error:
            assert error.kind == kind, error
print("PASS")
