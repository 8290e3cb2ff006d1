#!/usr/bin/env python3
"""Measures how NIXL (wheel `nixl-cu13`) transfers a paged KV cache between two GPUs. Prints rows of JSON.

    python3 benches/nixl/kv.py --page-kib 16 64 --tokens 1024 4096

Sizes and page tables are those of the example `kv` with `--layers 8 --requests 16`. A process with a GPU owns the pages
of each side. The initiator of a WRITE has the filled pages, that of a READ the empty ones. `transfer_ms` lasts from the
post of one request for all pages to its completion, as the initiator sees it; `request_ms` is the time to make that
request from page numbers, which Rushmem's kernels look up during the transfer. The bound is a copy of as many
contiguous bytes between the GPUs by PyTorch.
"""

import argparse
import json
import statistics
import time
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier

import numpy
import torch
from nixl_cu13 import nixl_agent, nixl_agent_config, nixl_xfer_handle

LAYERS, REQUESTS, PAGE_TOKENS = 8, 16, 16
FILLED, EMPTY = 0, 1  # the rank that has filled pages at first, and the other
DEADLINE = 40  # seconds
WARM_UPS = 2


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page-kib", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--tokens", type=int, nargs="+", default=[1024, 4096], help="tokens of a request")
    parser.add_argument("--operation", choices=["WRITE", "READ"], action="append", help="default: both")
    parser.add_argument("--repetitions", type=int, default=7)
    args = parser.parse_args()
    args.operation = args.operation or ["WRITE", "READ"]
    return args


def page_numbers(rank: int, pages: int) -> tuple[numpy.ndarray, int]:
    """Returns the shuffled numbers of the pages that a rank uses, and the size of its pool."""
    pool_pages = pages + pages // 8 + 1
    numbers = numpy.arange(pool_pages, dtype=numpy.uint64)
    first = (rank * 0x9E37_79B9_7F4A_7C15 + 0x632B_E59B_D9B4_E019) % 2**64
    x = numbers + numpy.uint64(first)
    x = (x ^ x >> numpy.uint64(30)) * numpy.uint64(0xBF58_476D_1CE4_E5B9)
    x = (x ^ x >> numpy.uint64(27)) * numpy.uint64(0x94D0_49BB_1331_11EB)
    keys = (x ^ x >> numpy.uint64(31)).astype(numpy.uint32)
    return numpy.argsort(keys, kind="stable")[:pages], pool_pages


@dataclass
class Link:
    """How a rank reaches the other outside of NIXL."""

    pipe: Connection
    barrier: Barrier

    def meet(self) -> None:
        self.barrier.wait(DEADLINE)


class Pages:
    """Where the pages of a rank lie, and the numbers of those in use."""

    def __init__(self, rank: int, page_bytes: int, tokens: int, address: int) -> None:
        self.rank, self.page_bytes, self.address = rank, page_bytes, address
        self.pages = REQUESTS * -(-tokens // PAGE_TOKENS)
        self.numbers, self.pool_pages = page_numbers(rank, self.pages)

    def descriptors(self) -> numpy.ndarray:
        """Returns address, length and device of each page of the pool."""
        count = LAYERS * self.pool_pages
        addresses = numpy.uint64(self.address) + numpy.arange(count, dtype=numpy.uint64) * numpy.uint64(self.page_bytes)
        others = numpy.tile(numpy.array([self.page_bytes, self.rank], dtype=numpy.uint64), (count, 1))
        return numpy.column_stack((addresses, others))

    def indices(self) -> numpy.ndarray:
        """Returns the numbers of the descriptors of the pages in use."""
        return (numpy.arange(LAYERS)[:, None] * self.pool_pages + self.numbers).astype(numpy.int32).ravel()


class Pool(Pages):
    """This rank's pages."""

    def __init__(self, rank: int, page_bytes: int, tokens: int) -> None:
        super().__init__(rank, page_bytes, tokens, 0)
        self.memory = torch.full((LAYERS, self.pool_pages, page_bytes // 8), -1, device="cuda")
        self.address, self.used = self.memory.data_ptr(), torch.from_numpy(self.numbers).cuda()
        if rank == FILLED:
            self.memory[:, self.used] = self.content()
        torch.cuda.synchronize()

    def content(self) -> torch.Tensor:
        """Returns the content of the pages in use after a transfer. Every word is different."""
        words = torch.arange(LAYERS * self.pages * self.page_bytes // 8, device="cuda")
        return (words * 0x1E37_79B9_7F4A_7C15).view(LAYERS, self.pages, -1)

    def verify(self) -> None:
        if not torch.equal(self.memory[:, self.used], self.content()):
            raise SystemExit(f"rank {self.rank}: a page in use has other bytes than were sent")
        unused = torch.ones(self.pool_pages, dtype=torch.bool, device="cuda")
        unused[self.used] = False
        if not (self.memory[:, unused] == -1).all():
            raise SystemExit(f"rank {self.rank}: a page that is not in use was written")


def wait(agent: nixl_agent, transfer: nixl_xfer_handle) -> None:
    """Posts a transfer and waits until it is complete."""
    state, end = agent.transfer(transfer), time.monotonic() + DEADLINE
    while state == "PROC":
        state = agent.check_xfer_state(transfer)
        if time.monotonic() > end:
            raise SystemExit(f"the transfer takes more than {DEADLINE} s")
    if state != "DONE":
        raise SystemExit(f"the transfer failed: {state}")


def measure(agent: nixl_agent, pool: Pool, operation: str, name: str, other: Pages, repetitions: int) -> list[float]:
    """Returns the median times to make and to complete a request, in seconds."""
    local = agent.prep_xfer_dlist("NIXL_INIT_AGENT", pool.descriptors(), "VRAM")
    remote = agent.prep_xfer_dlist(name, other.descriptors(), "VRAM")
    times = []
    for _ in range(WARM_UPS + repetitions):
        start = time.perf_counter()
        transfer = agent.make_prepped_xfer(operation, local, pool.indices(), remote, other.indices())
        made = time.perf_counter()
        wait(agent, transfer)
        times.append((made - start, time.perf_counter() - made))
        transfer.release()
    local.release()
    remote.release()
    return [statistics.median(step) for step in zip(*times[WARM_UPS:])]


def run_size(rank: int, page_bytes: int, tokens: int, operation: str, link: Link, repetitions: int) -> None:
    pool = Pool(rank, page_bytes, tokens)  # first, because the agent looks for a CUDA context
    agent = nixl_agent(f"rank {rank}", nixl_agent_config(backends=["UCX"]))
    registered = agent.register_memory(pool.memory)
    link.pipe.send((agent.get_agent_metadata(), pool.address))
    metadata, address = link.pipe.recv()
    name, other = agent.add_remote_agent(metadata), Pages(1 - rank, page_bytes, tokens, address)
    link.meet()
    initiator = FILLED if operation == "WRITE" else EMPTY
    if rank == initiator:
        request, transfer = measure(agent, pool, operation, name, other, repetitions)
    link.meet()
    pool.verify()
    link.meet()
    if rank == initiator:
        report(
            page_bytes,
            tokens,
            transfer,
            library=f"NIXL {version('nixl-cu13')}",
            operation=operation,
            request_ms=round(request * 1e3, 3),
        )
    agent.remove_remote_agent(name)
    agent.deregister_memory(registered)
    link.meet()


def report(page_bytes: int, tokens: int, seconds: float, **about: object) -> None:
    size = LAYERS * REQUESTS * -(-tokens // PAGE_TOKENS) * page_bytes
    row = {
        **about,
        "page": page_bytes,
        "tokens": tokens,
        "bytes": size,
        "transfer_ms": round(seconds * 1e3, 3),
        "gb_s": round(size / seconds / 1e9, 2),
        "verified": True,
    }
    print(json.dumps(row), flush=True)


def bound(page_bytes: int, tokens: int, repetitions: int) -> None:
    """Measures a copy of as many contiguous bytes from one GPU to the other."""
    size = LAYERS * REQUESTS * -(-tokens // PAGE_TOKENS) * page_bytes
    source = torch.arange(size // 8, device=f"cuda:{FILLED}")
    target = torch.empty_like(source, device=f"cuda:{EMPTY}")
    times = []
    for _ in range(WARM_UPS + repetitions):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    if not torch.equal(target.to(source.device), source):
        raise SystemExit("the copy has other bytes than its source")
    seconds = statistics.median(times[WARM_UPS:])
    report(page_bytes, tokens, seconds, library=f"torch {torch.__version__}", operation="copy")


def work(rank: int, args: argparse.Namespace, links: list[Link]) -> None:
    torch.cuda.set_device(rank)
    for page_kib in args.page_kib:
        for tokens in args.tokens:
            for operation in args.operation:
                run_size(rank, page_kib << 10, tokens, operation, links[rank], args.repetitions)
            if rank == FILLED:
                bound(page_kib << 10, tokens, args.repetitions)
            links[rank].meet()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    context = torch.multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    links = [Link(pipe, barrier) for pipe in context.Pipe()]
    torch.multiprocessing.spawn(work, (arguments(), links), nprocs=2)
