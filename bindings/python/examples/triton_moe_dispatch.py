"""Dispatch and combine of a mixture of experts in Triton: tokens go to the PEs of their experts, and results return.

    python -m rushmem run -n 2 triton_moe_dispatch.py          # or torchrun --nproc-per-node 2

Copies of tokens are sent in the order of their experts, so each PE receives a contiguous part from every other, with
the number of the first copy for each expert. An expert multiplies by a vector here; put your own network there.

Needs PyTorch, Triton and a GPU. PEs that share a GPU need MPS.
"""

import statistics

import torch
import triton
import triton.language as tl

import rushmem
import rushmem.triton as rt

TOKENS, TOP_K, HIDDEN, EXPERTS, PROGRAMS = 1024, 4, 2048, 8, 64  # EXPERTS of each PE


@rt.jit
def dispatch(
    ctx, x, order, starts, received, all_starts, arrived, epochs, ROWS,
    PES: tl.constexpr, TOP_K: tl.constexpr, HIDDEN: tl.constexpr, EXPERTS: tl.constexpr,
):  # fmt: skip
    # Each program adds 1 to each signal in a call, so signals are never reset. A PE calls `dispatch` after all others
    # have signalled that its tokens are back, and thus have read what they received.
    pid, programs, me = tl.program_id(0), tl.num_programs(0), rt.my_pe(ctx)
    epoch = tl.load(epochs + pid) + 1
    bounds: tl.constexpr = PES * EXPERTS + 1
    for i in range(PES):
        pe = (me + i) % PES
        first, last = tl.load(starts + pe * EXPERTS), tl.load(starts + (pe + 1) * EXPERTS)
        if pid == 0:
            rt.put_nbi_block(ctx, all_starts + me * bounds, starts, bounds, pe)
        for copy in range(first + pid, last, programs):
            token = tl.load(order + copy) // TOP_K
            there = received + (me * ROWS + copy - first) * HIDDEN
            rt.put_nbi_block(ctx, there, x + token * HIDDEN, HIDDEN, pe)
        rt.fence_block(ctx)
        rt.signal_op_block(ctx, arrived + me, 1, rt.SIGNAL_ADD, pe)
    if pid < PES:
        # The end of the kernel covers the waits of all programs.
        rt.signal_wait_until_block(ctx, arrived + pid, rt.CMP_GE, epoch * programs)
    rt.quiet_block(ctx)
    tl.store(epochs + pid, epoch)


@triton.jit
def experts(
    received, all_starts, vectors, me, ROWS,
    PES: tl.constexpr, HIDDEN: tl.constexpr, EXPERTS: tl.constexpr,
):  # fmt: skip
    lanes, each = tl.arange(0, HIDDEN), tl.arange(0, EXPERTS)
    for pe in range(PES):
        mine = all_starts + pe * (PES * EXPERTS + 1) + me * EXPERTS
        first, last, ends = tl.load(mine), tl.load(mine + EXPERTS), tl.load(mine + 1 + each)
        for copy in range(first + tl.program_id(0), last, tl.num_programs(0)):
            expert = tl.sum((ends <= copy).to(tl.int32))
            row = received + (pe * ROWS + copy - first) * HIDDEN + lanes
            tl.store(row, tl.load(row) * tl.load(vectors + expert * HIDDEN + lanes))


@rt.jit
def combine(
    ctx, received, all_starts, returned, done, epochs, places, weights, out, TOKENS, ROWS,
    PES: tl.constexpr, TOP_K: tl.constexpr, HIDDEN: tl.constexpr, EXPERTS: tl.constexpr,
):  # fmt: skip
    pid, programs, me = tl.program_id(0), tl.num_programs(0), rt.my_pe(ctx)
    epoch = tl.load(epochs + pid)
    for i in range(PES):
        pe = (me + i) % PES
        mine = all_starts + pe * (PES * EXPERTS + 1) + me * EXPERTS
        first, last = tl.load(mine), tl.load(mine + EXPERTS)
        for copy in range(first + pid, last, programs):
            row = received + (pe * ROWS + copy - first) * HIDDEN
            rt.put_nbi_block(ctx, returned + copy * HIDDEN, row, HIDDEN, pe)
        rt.fence_block(ctx)
        rt.signal_op_block(ctx, done + me, 1, rt.SIGNAL_ADD, pe)
    status = 0
    for pe in range(PES):
        status |= rt.signal_wait_until_block(ctx, done + pe, rt.CMP_GE, epoch * programs)
    source = rt.after(returned, status)
    lanes = tl.arange(0, HIDDEN)
    for token in range(pid, TOKENS, programs):
        total = tl.zeros((HIDDEN,), tl.float32)
        for k in tl.static_range(TOP_K):
            place = tl.load(places + token * TOP_K + k)
            total += tl.load(weights + token * TOP_K + k) * tl.load(source + place * HIDDEN + lanes).to(tl.float32)
        tl.store(out + token * HIDDEN + lanes, total.to(out.dtype.element_ty))
    rt.quiet_block(ctx)


class Moe:
    """Memory of a layer. All PEs make the same calls on one stream each."""

    def __init__(self, runtime, vectors):
        self.runtime, self.vectors, self.pes = runtime, vectors, runtime.world_size
        rows, bounds = TOKENS * TOP_K, self.pes * EXPERTS + 1
        symmetric = lambda shape, dtype="bfloat16": torch.from_dlpack(runtime.zeros(shape, dtype))
        self.x, self.returned = symmetric((TOKENS, HIDDEN)), symmetric((rows, HIDDEN))
        self.received = symmetric((self.pes * rows, HIDDEN))
        self.starts, self.all_starts = symmetric(bounds, "int32"), symmetric((self.pes, bounds), "int32")
        self.arrived, self.done = symmetric(self.pes, "uint64"), symmetric(self.pes, "uint64")
        self.epochs = torch.zeros(PROGRAMS, dtype=torch.int64, device="cuda")

    def __call__(self, chosen, weights):
        """Returns the weighted sums of the `chosen` experts' results for the tokens in `x`."""
        ctx, rows, out = self.runtime.context, TOKENS * TOP_K, torch.empty_like(self.x)
        constants = dict(PES=self.pes, HIDDEN=HIDDEN, EXPERTS=EXPERTS)
        copies, order = torch.sort(chosen.flatten())
        self.starts.copy_(torch.searchsorted(copies, torch.arange(self.pes * EXPERTS + 1, device="cuda")))
        dispatch[(PROGRAMS,)](
            ctx, self.x, order, self.starts, self.received, self.all_starts, self.arrived, self.epochs, rows,
            TOP_K=TOP_K, **constants, launch_cooperative_grid=True,
        )  # fmt: skip
        experts[(PROGRAMS,)](self.received, self.all_starts, self.vectors, self.runtime.rank, rows, **constants)
        combine[(PROGRAMS,)](
            ctx, self.received, self.all_starts, self.returned, self.done, self.epochs, torch.argsort(order), weights,
            out, TOKENS, rows, TOP_K=TOP_K, **constants, launch_cooperative_grid=True,
        )  # fmt: skip
        return out


def main():
    # The deadline includes compilation on other PEs.
    with rushmem.init("gpu", heap="1GiB", timeout="60s") as runtime:
        torch.cuda.set_device(runtime.device)
        me, pes, times = runtime.rank, runtime.world_size, []
        torch.manual_seed(0)
        vectors = torch.randn(pes * EXPERTS, HIDDEN, device="cuda").bfloat16()
        moe = Moe(runtime, vectors[me * EXPERTS : (me + 1) * EXPERTS].contiguous())
        torch.manual_seed(1 + me)
        for _ in range(20):
            moe.x.normal_()
            weights, chosen = torch.rand(TOKENS, pes * EXPERTS, device="cuda").softmax(1).topk(TOP_K)
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            runtime.barrier()
            start.record()
            out = moe(chosen, weights)
            end.record()
            torch.cuda.synchronize()
            runtime.check()
            wanted = ((moe.x[:, None] * vectors[chosen]).float() * weights[:, :, None]).sum(1)
            torch.testing.assert_close(out.float(), wanted, rtol=1e-2, atol=1e-2)
            times.append(1e3 * start.elapsed_time(end))
        time, nbytes = statistics.median(times), 2 * TOKENS * TOP_K * HIDDEN * 2
        print(
            f"PASS triton_moe_dispatch: PE {me} of {pes}: {TOKENS} tokens to {TOP_K} of {pes * EXPERTS} experts and "
            f"back: {time:.0f} us, {nbytes / time / 1e3:.1f} GB/s"
        )


if __name__ == "__main__":
    main()
