"""Writes from one process to another with Mooncake's transfer engine, and verifies the bytes."""

import multiprocessing
import sys

import numpy
from mooncake.engine import TransferEngine

BYTES = 4 << 20


def pattern():
    return (numpy.arange(BYTES, dtype=numpy.uint32) * 2654435761 >> 13).astype(numpy.uint8)


def start(name):
    engine = TransferEngine()
    if engine.initialize(name, "P2PHANDSHAKE", "rdma", "mlx5_0") != 0:
        sys.exit("initialize failed")
    memory = numpy.zeros(BYTES, dtype=numpy.uint8)
    if engine.register_memory(memory.ctypes.data, BYTES) != 0:
        sys.exit("register_memory failed")
    return engine, memory


def serve(pipe):
    engine, memory = start("127.0.0.1")
    pipe.send((f"127.0.0.1:{engine.get_rpc_port()}", memory.ctypes.data))
    pipe.recv()
    pipe.send(bool((memory == pattern()).all()))
    pipe.recv()


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    own, other = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(other,), daemon=True)
    server.start()
    peer, address = own.recv()
    engine, memory = start("127.0.0.1")
    memory[:] = pattern()
    code = engine.transfer_sync_write(peer, memory.ctypes.data, address, BYTES)
    own.send("written")
    right = own.recv()
    own.send("done")
    print("PASS" if code == 0 and right else f"FAIL: code {code}, data right: {right}")
