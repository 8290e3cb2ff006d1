"""Start the PE of this process, and find the others."""

from __future__ import annotations

import atexit
import itertools
import sys
from typing import Any

from . import _rushmem
from ._rushmem import Runtime

# Number of the next job whose PEs find each other through a store. Equal on all processes that make the same calls.
_generations = itertools.count()

# The runtime that `init` has started last.
_runtime: Runtime | None = None


def init(
    device: str | int | Any = None,
    *,
    id: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    group: Any = None,
    store: Any = None,
    heap: str | int | None = None,
    **settings: Any,
) -> Runtime:
    """Start the runtime in this process, as one PE of a job. Collective.

    Without further arguments, the PEs are the processes that a launcher has started: ``python -m rushmem run``,
    torchrun, mpirun or srun. A process without a launcher is a job of one PE. Otherwise pass one of:

    - ``id``, ``rank`` and ``world_size``: an ID of :func:`unique_id`, the same on all processes.
    - ``group``: a process group of torch.distributed, whose ranks become the PEs.
    - ``store``, ``rank`` and ``world_size``: a store of torch.distributed, or any object with ``set`` and ``get``.

    ``device`` is ``"native"`` for the CPU, ``"gpu"``, the ordinal of a GPU, or a ``torch.device``. By default, a GPU is
    used if there is one. ``heap`` is the size of each PE's symmetric heap, such as ``"1GiB"``. Other keyword arguments are
    settings of docs/settings.md, and override the environment.

    >>> with rushmem.init("native", heap="32MiB", timeout="10s") as rt:
    ...     rt.world_size
    1
    """
    texts = _texts(settings, heap, device)
    if sum(given is not None for given in (id, group, store)) > 1:
        raise ValueError("pass only one of id, group and store")
    if group is not None:
        id, rank, world_size = _from_group(group, texts)
    elif store is not None:
        id, rank, world_size = _from_store(store, rank, world_size, texts)
    global _runtime
    _runtime = _rushmem.start(list(texts.items()), id, rank, world_size)
    return _runtime


def unique_id(*, at: str | None = None, **settings: Any) -> str:
    """Create an ID for one job: text that all PEs pass to :func:`init`. Keep it secret.

    The process that creates the ID must be one of the PEs, because the others connect to it. If ``at`` is given, an IP
    address and a port such as ``"10.0.0.1:4711"``, any process may create the ID, and PE 0 listens there.

    >>> id = rushmem.unique_id()
    >>> rt = rushmem.init(id=id, rank=0, world_size=1)
    """
    return _rushmem.unique_id(list(_texts(settings).items()), at)


def _texts(settings, heap=None, device=None):
    """Return the settings as text, including those for a heap size and a device."""
    texts = {key: str(int(value)) if isinstance(value, bool) else str(value) for key, value in settings.items()}
    if heap is not None:
        texts["heap_bytes"] = str(heap)
    if device is not None:
        name, _, ordinal = ("cuda", "", device) if isinstance(device, int) else str(device).partition(":")
        kinds = {"native": "native", "cpu": "native", "gpu": "gpu", "cuda": "gpu"}
        if name not in kinds:
            raise ValueError(f"device is native, gpu, a CUDA ordinal or a torch.device, not {device!r}")
        texts["device"] = kinds[name]
        if ordinal != "":
            texts["gpus"] = str(ordinal)
    return texts


def _from_group(group, settings):
    import torch.distributed as dist

    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    ids = [_rushmem.unique_id(list(settings.items())) if rank == 0 else None]
    dist.broadcast_object_list(ids, src=dist.get_global_rank(group, 0), group=group)
    return ids[0], rank, world_size


def _from_store(store, rank, world_size, settings):
    if rank is None or world_size is None:
        raise ValueError("a store needs rank and world_size")
    key = f"rushmem/{next(_generations)}/id"
    if rank == 0:
        id = _rushmem.unique_id(list(settings.items()))
        store.set(key, id)
    else:
        id = store.get(key)
    return id.decode() if isinstance(id, bytes) else id, rank, world_size


@atexit.register
def _at_exit():
    """Finalize the runtime of a program that has not done so, or abort the job if an exception ended the program."""
    uncaught = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if hasattr(sys, "ps1") or sys.flags.interactive:
        # An interactive session keeps its last exception, but goes on.
        uncaught = None
    if _runtime is None:
        return
    if uncaught is None:
        _runtime.finalize()
    else:
        _runtime.abort(f"{type(uncaught).__name__}: {uncaught}")
