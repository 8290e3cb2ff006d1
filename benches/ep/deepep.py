#!/usr/bin/env python3
"""Measures dispatch and combine of DeepEP (wheel `sgl-deep-ep`), and prints a row of JSON for each size.

    python3 benches/ep/deepep.py --mode low-latency throughput

Low latency and throughput are those of DeepEP 1 (wheel 0.1.0), elastic is DeepEP 2 (since wheel 0.1.1), which needs
NCCL 2.30.7 and compiles its kernels with nvcc at first use. Low latency asserts that IBGDA has queue pairs, which takes
a NIC even if all ranks are reached over NVLink. Differences to Rushmem:

- Throughput: rows arrive once for all experts of a rank, who add their results up before combine. `update_us` is the
  time to count rows, and dispatch contains a wait of the host. Rushmem's dispatch contains the count.
- Throughput, elastic: experts apply the weights. Rushmem's combine contains that.
"""

from argparse import Namespace
from collections.abc import Callable
from importlib.metadata import version

import deep_ep
import torch
import torch.distributed as dist
from exchange import EXPERTS, HIDDEN, TOP, Input, factor, measure, options, report, start

SCALED = 128  # elements per scale
DEFAULT_TOKENS = {
    "low-latency": [1, 8, 32, 128, 512, 1024],
    "throughput": [128, 512, 1024, 4096],
    "elastic": [1, 8, 32, 128, 512, 1024, 4096],
}


def local_experts() -> torch.Tensor:
    count = EXPERTS // dist.get_world_size()
    first = dist.get_rank() * count
    return torch.arange(first, first + count, device="cuda")


class LowLatency:
    def __init__(self, largest: int) -> None:
        ranks = dist.get_world_size()
        self.buffer = deep_ep.Buffer(
            dist.group.WORLD,
            num_rdma_bytes=deep_ep.Buffer.get_low_latency_rdma_size_hint(largest, HIDDEN, ranks, EXPERTS),
            low_latency_mode=True,
            num_qps_per_rank=EXPERTS // ranks,
            explicitly_destroy=True,
        )

    def begin(self, data: Input, count: int, fp8: bool) -> None:
        self.data, self.count, self.fp8 = data, count, fp8
        # Another number of tokens is another layout of the buffer.
        self.buffer.clean_low_latency_buffer(count, HIDDEN, EXPERTS)

    def dispatch(self) -> None:
        data = self.data
        self.rows, _, self.handle, _, _ = self.buffer.low_latency_dispatch(
            data.tokens, data.choices, self.count, EXPERTS, use_fp8=self.fp8
        )

    def compute(self) -> None:
        rows, scales = self.rows if self.fp8 else (self.rows, None)
        self.results = torch.empty(rows.shape, dtype=torch.bfloat16, device="cuda")
        # Expert by expert, because the buffers are large.
        for i, expert in enumerate(local_experts()):
            row = rows[i].float()
            if self.fp8:
                row = (row.view(-1, HIDDEN // SCALED, SCALED) * scales[i][..., None]).view_as(row)
            self.results[i] = row * factor(expert)

    def combine(self) -> None:
        data = self.data
        self.sums, _, _ = self.buffer.low_latency_combine(self.results, data.choices, data.weights, self.handle)

    def steps(self) -> dict[str, Callable[[], None]]:
        return {"dispatch_us": self.dispatch, "combine_us": self.combine}


class Throughput:
    def __init__(self, largest: int) -> None:
        ranks = dist.get_world_size()
        configs = (deep_ep.Buffer.get_dispatch_config(ranks), deep_ep.Buffer.get_combine_config(ranks))
        size = max(config.get_nvl_buffer_size_hint(2 * HIDDEN, ranks) for config in configs)
        self.buffer = deep_ep.Buffer(dist.group.WORLD, num_nvl_bytes=size, explicitly_destroy=True)

    def begin(self, data: Input, count: int, fp8: bool) -> None:
        self.data = data

    def update(self) -> None:
        self.layout = self.buffer.get_dispatch_layout(self.data.choices, EXPERTS)

    def dispatch(self) -> None:
        per_rank, _, per_expert, in_rank, _ = self.layout
        self.rows, self.choices, self.weights, _, self.handle, _ = self.buffer.dispatch(
            self.data.tokens,
            topk_idx=self.data.choices,
            topk_weights=self.data.weights,
            num_tokens_per_rank=per_rank,
            is_token_in_rank=in_rank,
            num_tokens_per_expert=per_expert,
        )

    def compute(self) -> None:
        # The rank numbers its experts from 0; others are -1.
        factors = factor(self.choices + local_experts()[0]) * self.weights
        factors = factors.masked_fill(self.choices < 0, 0).sum(1, keepdim=True)
        self.results = (self.rows.float() * factors).bfloat16()

    def combine(self) -> None:
        self.sums, _, _ = self.buffer.combine(self.results, self.handle)

    def steps(self) -> dict[str, Callable[[], None]]:
        return {"update_us": self.update, "dispatch_us": self.dispatch, "combine_us": self.combine}


class Elastic:
    def __init__(self, largest: int) -> None:
        self.buffer = deep_ep.ElasticBuffer(
            dist.group.WORLD,
            num_max_tokens_per_rank=largest,
            hidden=HIDDEN,
            num_topk=TOP,
            prefer_overlap_with_compute=False,
            explicitly_destroy=True,
        )

    def begin(self, data: Input, count: int, fp8: bool) -> None:
        self.data, self.count = data, count

    def dispatch(self) -> None:
        self.rows, _, self.weights, self.handle, _ = self.buffer.dispatch(
            self.data.tokens,
            topk_idx=self.data.choices,
            topk_weights=self.data.weights,
            num_experts=EXPERTS,
            num_max_tokens_per_rank=self.count,
            do_expand=True,
            do_cpu_sync=False,
        )

    def compute(self) -> None:
        ends = self.handle.psum_num_recv_tokens_per_expert
        received = torch.diff(ends, prepend=ends.new_zeros(1))
        of_rows = factor(local_experts()).repeat_interleave(received)
        used = slice(0, len(of_rows))
        self.results = torch.empty_like(self.rows)
        self.results[used] = self.rows[used].float() * (of_rows * self.weights[used])[:, None]

    def combine(self) -> None:
        self.sums, _, _ = self.buffer.combine(self.results, self.handle)

    def steps(self) -> dict[str, Callable[[], None]]:
        return {"dispatch_us": self.dispatch, "combine_us": self.combine}


FORMS = {"low-latency": LowLatency, "throughput": Throughput, "elastic": Elastic}


def run_size(form: LowLatency | Throughput | Elastic, mode: str, fp8: bool, count: int, repetitions: int) -> None:
    data = Input(count)
    form.begin(data, count, fp8)
    dist.barrier()
    steps = form.steps()
    for name, step in steps.items():
        if name == "combine_us":
            form.compute()
        step()
    # Terms or their sums are rounded to bf16, rows perhaps to e4m3.
    data.verify(form.sums, 1 / 15 if fp8 else 2**-6)
    dist.barrier()
    times = measure(list(steps.values()), repetitions)
    report(
        count,
        HIDDEN + HIDDEN // SCALED * 4 if fp8 else 2 * HIDDEN,
        dict(zip(steps, times)),
        library=f"sgl-deep-ep {version('sgl-deep-ep')}",
        mode=mode,
        dtype="fp8" if fp8 else "bf16",
    )
    dist.barrier()


def work(args: Namespace) -> None:
    for mode in args.mode:
        counts = args.tokens or DEFAULT_TOKENS[mode]
        form = FORMS[mode](max(counts))
        # Only the low-latency form converts rows to e4m3 itself.
        for fp8 in (False, True) if mode == "low-latency" else (False,):
            for count in counts:
                run_size(form, mode, fp8, count, args.repetitions)
                torch.cuda.empty_cache()
        form.buffer.destroy()


if __name__ == "__main__":
    start(work, options(__doc__.splitlines()[0], list(DEFAULT_TOKENS)).parse_args())
