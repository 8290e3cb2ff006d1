#!/usr/bin/env python3
"""Measures dispatch and combine of NCCL EP (wheel `nccl-extensions`), and prints a row of JSON for each size.

    LD_PRELOAD=.../nvidia/nccl/lib/libnccl.so.2 python3 benches/ep/nccl_ep.py

NCCL EP needs NCCL 2.30.7, which must be preloaded if PyTorch brings an older one. It compiles its kernels with nvcc at
first use; `NCCL_EP_JIT_CACHE_DIR` keeps them. The rows arrive grouped by expert, as in Rushmem. Differences:

- `update_us` is the time to pass new routing to a handle. Rushmem's dispatch contains that.
- In throughput, experts apply the weights. Rushmem's combine contains that.
- Throughput moves rows with 16 multiprocessors, to leave the others to experts; NCCL EP 0.2 has barriers for no more.
  Rushmem uses all.
"""

from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import nccl.core
import nccl.ep as ep
import torch
import torch.distributed as dist
from exchange import EXPERTS, HIDDEN, TOP, Input, factor, measure, options, report, start
from nccl.core import Communicator
from nccl.ep.interop.torch import get_nccl_comm_from_group

SCALED = 128  # elements per scale
DEFAULT_TOKENS = {"low-latency": [1, 8, 32, 128, 512, 1024], "throughput": [128, 512, 1024, 4096]}


@dataclass
class Exchange:
    """A dispatch with its combine."""

    update: Callable[[], None]
    dispatch: Callable[[], None]
    experts: Callable[[], None]
    combine: Callable[[], None]
    sums: torch.Tensor
    row_bytes: int


def local_experts() -> torch.Tensor:
    count = EXPERTS // dist.get_world_size()
    first = dist.get_rank() * count
    return torch.arange(first, first + count, device="cuda")


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, ep.Tensor]:
    """Returns memory and its descriptor."""
    memory = torch.empty(shape, dtype=dtype, device="cuda")
    return memory, ep.Tensor(memory)


def low_latency(group: ep.Group, stream: int, data: Input, count: int, fp8: bool) -> tuple[ep.Handle, Exchange]:
    experts = local_experts()
    slots = (len(experts), count * dist.get_world_size())
    choices = ep.Tensor(data.choices)
    handle = group.create_handle(ep.Layout.EXPERT_MAJOR, choices, stream=stream)
    rows, rows_tensor = empty(*slots, HIDDEN, dtype=torch.float8_e4m3fn if fp8 else torch.bfloat16)
    scales, scales_tensor = empty(*slots, HIDDEN // SCALED, dtype=torch.float32) if fp8 else (None, None)
    results, results_tensor = empty(*slots, HIDDEN)
    sums, sums_tensor = empty(count, HIDDEN)
    _, counters = empty(len(experts), dtype=torch.int32)

    def compute() -> None:
        # Expert by expert, because the buffers are large.
        for i, expert in enumerate(experts):
            row = rows[i].float()
            if fp8:
                row = (row.view(-1, HIDDEN // SCALED, SCALED) * scales[i][..., None]).view_as(row)
            results[i] = row * factor(expert)

    recipe = ep.DispatchQuantizationRecipe.DS_FP8E3M4 if fp8 else ep.DispatchQuantizationRecipe.NONE
    return handle, Exchange(
        partial(handle.update, choices, stream=stream),
        partial(
            handle.dispatch,
            ep.DispatchInputs(tokens=ep.Tensor(data.tokens)),
            ep.DispatchOutputs(tokens=rows_tensor, scales=scales_tensor),
            layout_info=ep.LayoutInfo(expert_counters=counters),
            config=ep.DispatchConfig(quantization_recipe=recipe),
            stream=stream,
        ),
        compute,
        partial(
            handle.combine,
            ep.CombineInputs(tokens=results_tensor),
            ep.CombineOutputs(tokens=sums_tensor, topk_weights=ep.Tensor(data.weights)),
            stream=stream,
        ),
        sums,
        HIDDEN + HIDDEN // SCALED * 4 if fp8 else 2 * HIDDEN,
    )


def throughput(group: ep.Group, stream: int, data: Input, count: int) -> tuple[ep.Handle, Exchange]:
    experts = local_experts()
    max_rows = max_received(count)
    choices = ep.Tensor(data.choices)
    received, received_tensor = empty(len(experts), dtype=torch.int64)
    layout = ep.LayoutInfo(expert_counters=received_tensor)
    handle = group.create_handle(ep.Layout.EXPERT_MAJOR, choices, layout_info=layout, stream=stream)
    rows, rows_tensor = empty(max_rows, HIDDEN)
    row_weights, row_weights_tensor = empty(max_rows, dtype=torch.float32)
    results, results_tensor = empty(max_rows, HIDDEN)
    sums, sums_tensor = empty(count, HIDDEN)

    def compute() -> None:
        of_rows = factor(experts).repeat_interleave(received)
        used = slice(0, len(of_rows))
        results[used] = rows[used].float() * (of_rows * row_weights[used])[:, None]

    return handle, Exchange(
        partial(handle.update, choices, layout_info=layout, stream=stream),
        partial(
            handle.dispatch,
            ep.DispatchInputs(tokens=ep.Tensor(data.tokens), topk_weights=ep.Tensor(data.weights)),
            ep.DispatchOutputs(tokens=rows_tensor, topk_weights=row_weights_tensor),
            stream=stream,
        ),
        compute,
        partial(
            handle.combine,
            ep.CombineInputs(tokens=results_tensor),
            ep.CombineOutputs(tokens=sums_tensor),
            stream=stream,
        ),
        sums,
        2 * HIDDEN,
    )


def max_received(count: int) -> int:
    """Returns the rows that a rank receives if all choices fall on its experts."""
    return dist.get_world_size() * count * TOP


def run_size(communicator: Communicator, mode: str, fp8: bool, count: int, repetitions: int) -> None:
    is_low_latency = mode == "low-latency"
    config = ep.GroupConfig(
        algorithm=ep.Algorithm.LOW_LATENCY if is_low_latency else ep.Algorithm.HIGH_THROUGHPUT,
        num_experts=EXPERTS,
        max_dispatch_tokens_per_rank=count,
        max_recv_tokens_per_rank=0 if is_low_latency else max_received(count),
        max_token_bytes=2 * HIDDEN,
        num_qp_per_rank=EXPERTS // dist.get_world_size() if is_low_latency else 0,
        num_topk=TOP,
    )
    group = ep.Group.create(communicator, config)
    stream, data = torch.cuda.current_stream().cuda_stream, Input(count)
    if is_low_latency:
        handle, exchange = low_latency(group, stream, data, count, fp8)
    else:
        handle, exchange = throughput(group, stream, data, count)
    for step in (exchange.update, exchange.dispatch, exchange.experts, exchange.combine):
        step()
    # Terms or their sums are rounded to bf16, rows perhaps to e4m3.
    data.verify(exchange.sums, 1 / 15 if fp8 else 2**-6)
    dist.barrier()
    times = measure((exchange.update, exchange.dispatch, exchange.combine), repetitions)
    report(
        count,
        exchange.row_bytes,
        dict(zip(("update_us", "dispatch_us", "combine_us"), times)),
        library=f"NCCL EP {ep.get_lib_version()}",
        nccl=str(nccl.core.get_version().libnccl.version),
        mode=mode,
        dtype="fp8" if fp8 else "bf16",
    )
    dist.barrier()
    handle.destroy()
    group.destroy()


def work(args: Namespace) -> None:
    communicator = get_nccl_comm_from_group()
    for mode in args.mode:
        # Only the low-latency form converts rows to e4m3 itself.
        for fp8 in (False, True) if mode == "low-latency" else (False,):
            for count in args.tokens or DEFAULT_TOKENS[mode]:
                run_size(communicator, mode, fp8, count, args.repetitions)
                torch.cuda.empty_cache()


if __name__ == "__main__":
    start(work, options(__doc__.splitlines()[0], list(DEFAULT_TOKENS)).parse_args())
