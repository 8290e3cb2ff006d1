"""Verifies collective and point-to-point operations of PyTorch over NCCL: two ranks on the first GPU.

    nccl.py            starts both ranks, each as a host of its own for NCCL, and waits for them
    nccl.py RANK PORT  is a rank

Prints PASS and the time of an all_reduce of 64 MiB.
"""

import os
import socket
import subprocess
import sys
import time

RANKS = 2


def start() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(RANKS):
        # NCCL allows two ranks on one GPU only if it believes that they are on different machines.
        env = dict(os.environ, NCCL_HOSTID=f"host{rank}")
        ranks.append(subprocess.Popen([sys.executable, __file__, str(rank), str(port)], env=env))
    codes = [0] * RANKS
    left = set(range(RANKS))
    while left:
        for rank in list(left):
            code = ranks[rank].poll()
            if code is None:
                continue
            codes[rank] = code
            left.discard(rank)
            if code != 0:
                # The other rank would wait for this one.
                for other in left:
                    ranks[other].terminate()
        time.sleep(0.05)
    return 0 if not any(codes) else 1


def pattern(torch, rank: int, count: int, seed: int):
    """Returns whole numbers, whose sums are exact in floats."""
    numbers = torch.arange(count, dtype=torch.int64)
    return ((numbers * 2654435761 + seed * 97 + rank * 31) % 1021).to(torch.float32).cuda()


def check(torch, what: str, got, wanted) -> None:
    if not torch.equal(got, wanted):
        wrong = (got != wanted).nonzero().flatten()
        sys.exit(f"{what}: {len(wrong)} of {got.numel()} elements are wrong, the first is {int(wrong[0])}")


def run(rank: int, port: int) -> None:
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(0)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    other = 1 - rank
    for seed, count in enumerate((1, 1000, 65536 + 3, 1 << 20)):
        mine = [pattern(torch, r, count, seed) for r in range(RANKS)]
        reduced = mine[rank].clone()
        dist.all_reduce(reduced)
        check(torch, f"all_reduce of {count}", reduced, sum(mine))
        gathered = torch.empty(RANKS * count, device="cuda")
        dist.all_gather_into_tensor(gathered, mine[rank])
        check(torch, f"all_gather of {count}", gathered, torch.cat(mine))
        arrived = torch.empty(count, device="cuda")
        requests = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, mine[rank], other), dist.P2POp(dist.irecv, arrived, other)]
        )
        for request in requests:
            request.wait()
        check(torch, f"send and recv of {count}", arrived, mine[other])
    large = torch.ones(16 << 20, device="cuda")
    times = []
    for _ in range(3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        dist.all_reduce(large)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    check(torch, "all_reduce of 64 MiB", large, torch.full_like(large, RANKS**3))
    dist.destroy_process_group()
    if rank == 0:
        version = ".".join(map(str, torch.cuda.nccl.version()))
        print(f"PASS NCCL {version}: all_reduce, all_gather, send and recv; 64 MiB in {min(times) * 1e3:.0f} ms", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(start())
    run(int(sys.argv[1]), int(sys.argv[2]))
