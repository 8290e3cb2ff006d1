"""What the measurements of dispatch and combine share: ranks, input, verification and timing.

The input is that of `rushmem-ep-bench`, number for number: uniform routing, seeded by the rank.
"""

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Sequence

import numpy
import torch
import torch.distributed as dist

HIDDEN, EXPERTS, TOP = 7168, 256, 8  # DeepSeek-V3
WARM_UPS = 5
DELAY_CYCLES = 4_000_000  # 2 ms: longer than a host takes to queue a timed call


def options(description: str, modes: list[str]) -> argparse.ArgumentParser:
    """Returns a parser of the options that all measurements have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--mode", choices=modes, nargs="+", default=modes)
    parser.add_argument("--tokens", type=int, nargs="+", help="tokens per rank; default: what suits the mode")
    parser.add_argument("--ranks", type=int, default=torch.cuda.device_count(), help="default: one per GPU")
    parser.add_argument("--repetitions", type=int, default=20)
    return parser


def start(work: Callable[[argparse.Namespace], None], args: argparse.Namespace) -> None:
    """Runs `work(args)` on each rank, a process with a GPU of its own."""
    if args.ranks < 2:
        raise SystemExit(f"{args.ranks} ranks have nobody to exchange with: use a machine with 2 GPUs")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_rank, (work, args, os.path.join(folder, "store")), nprocs=args.ranks)


def _rank(rank: int, work: Callable[[argparse.Namespace], None], args: argparse.Namespace, store: str) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl",
        store=dist.FileStore(store, args.ranks),
        rank=rank,
        world_size=args.ranks,
        device_id=torch.device("cuda", rank),
    )
    with torch.cuda.stream(torch.cuda.Stream()):
        work(args)
        dist.barrier()
    dist.destroy_process_group()


class Input:
    """The tokens of a rank, the experts that each one chooses, and the weights of these."""

    def __init__(self, tokens: int) -> None:
        rank, elements, pairs = dist.get_rank(), tokens * HIDDEN, tokens * TOP
        numbers = torch.from_numpy(_numbers(rank, 0, elements)).cuda()
        self.tokens = numbers.view(tokens, HIDDEN).bfloat16()
        self.weights = torch.from_numpy(abs(_numbers(rank, elements, pairs))).cuda().view(tokens, TOP)
        self.choices = torch.tensor(_choices(rank, elements + pairs, tokens), device="cuda")

    def verify(self, sums: torch.Tensor, relative: float) -> None:
        """Compares `sums` with a serial computation in which expert `e` multiplies rows by `1 + e % 8`.

        An element may differ by `relative` of the sum of its terms' magnitudes.
        """
        wanted, magnitude = torch.zeros_like(self.tokens, dtype=torch.float32), 0
        for choice, weight in zip(self.choices.T, self.weights.T):
            term = weight[:, None] * (self.tokens.float() * factor(choice)[:, None])
            wanted, magnitude = wanted + term, magnitude + term.abs()
        wrong = ~((sums.float() - wanted).abs() <= relative * magnitude + 1e-4)
        if wrong.any():
            token, element = wrong.nonzero()[0].tolist()
            found, wanted = sums[token, element].item(), wanted[token, element].item()
            raise SystemExit(
                f"rank {dist.get_rank()}: element {element} of token {token} is {found}, not {wanted}; "
                f"{wrong.sum().item()} of {wrong.numel()} differ"
            )


def factor(experts: torch.Tensor) -> torch.Tensor:
    """Returns what each expert multiplies its rows by."""
    return (1 + experts % 8).float()


def _draws(rank: int, first: int, count: int) -> numpy.ndarray:
    """Returns `count` numbers of 32 bits of the rank's SplitMix64 sequence."""
    x = numpy.arange(first + 1, first + count + 1, dtype=numpy.uint64) * numpy.uint64(0x9E37_79B9_7F4A_7C15)
    x += numpy.uint64(rank << 32)
    x = (x ^ x >> numpy.uint64(30)) * numpy.uint64(0xBF58_476D_1CE4_E5B9)
    x = (x ^ x >> numpy.uint64(27)) * numpy.uint64(0x94D0_49BB_1331_11EB)
    return (x ^ x >> numpy.uint64(31)).astype(numpy.uint32)


def _numbers(rank: int, first: int, count: int) -> numpy.ndarray:
    """Returns numbers between -1 and 1."""
    return (_draws(rank, first, count) >> 8).astype(numpy.float32) / numpy.float32(1 << 23) - numpy.float32(1)


def _choices(rank: int, first: int, tokens: int) -> list[list[int]]:
    draws, all_chosen = iter((_draws(rank, first, 4 * TOP * tokens + 64) % EXPERTS).tolist()), []
    for _ in range(tokens):
        chosen = []
        while len(chosen) < TOP:
            expert = next(draws)
            if expert not in chosen:
                chosen.append(expert)
        all_chosen.append(chosen)
    return all_chosen


def measure(steps: Sequence[Callable[[], object]], repetitions: int) -> list[float]:
    """Returns the duration of each step in microseconds: the median of `repetitions` sequences on the slowest rank.

    All ranks meet before a sequence. Its kernels are queued while the GPU is still busy, so launches do not count.
    """
    meeting, times = torch.zeros(1, device="cuda"), []
    for _ in range(WARM_UPS + repetitions):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(len(steps) + 1)]
        torch.cuda._sleep(DELAY_CYCLES)
        dist.all_reduce(meeting)
        events[0].record()
        for step, event in zip(steps, events[1:]):
            step()
            event.record()
        torch.cuda.current_stream().synchronize()
        times.append([start.elapsed_time(end) * 1e3 for start, end in zip(events, events[1:])])
    medians = torch.tensor([statistics.median(step) for step in zip(*times[WARM_UPS:])], device="cuda")
    dist.all_reduce(medians, dist.ReduceOp.MAX)
    return medians.tolist()


def report(tokens: int, dispatch_row_bytes: int, times: dict[str, float], **about: object) -> None:
    """Prints a row as JSON on rank 0. `times` has the microseconds of each step."""
    if dist.get_rank() != 0:
        return
    rates = {}
    for step, row_bytes in (("dispatch", dispatch_row_bytes), ("combine", 2 * HIDDEN)):
        rates[f"{step}_gb_s"] = round(tokens * TOP * row_bytes / times[f"{step}_us"] / 1e3, 2)
    times = {step: round(us, 2) for step, us in times.items()}
    shape = {"hidden": HIDDEN, "experts": EXPERTS, "top": TOP}
    row = {**about, "ranks": dist.get_world_size(), "tokens": tokens, **shape, **times, **rates, "verified": True}
    print(json.dumps(row), flush=True)
