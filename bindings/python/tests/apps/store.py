"""Processes that a store of files brings together: `store.py FOLDER RANK WORLD_SIZE`."""

import sys
import time
from pathlib import Path

import numpy

import rushmem


class FileStore:
    """What a store of torch.distributed does, in a folder."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def path(self, key):
        return self.folder / key.replace("/", "-")

    def set(self, key, value):
        written = self.path(key + ".new")
        written.write_text(value)
        written.rename(self.path(key))

    def get(self, key):
        while not self.path(key).exists():
            time.sleep(0.01)
        return self.path(key).read_bytes()


store, rank, n = FileStore(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
for _ in range(2):
    with rushmem.init(store=store, rank=rank, world_size=n) as rt:
        assert (rt.rank, rt.world_size) == (rank, n)
        dst, src = rt.zeros(1, "int64"), rt.zeros(1, "int64")
        numpy.from_dlpack(src)[0] = rank
        rt.all_reduce(dst, src)
        assert numpy.from_dlpack(dst)[0] == n * (n - 1) // 2
