"""All-reduce of tensors by one Triton kernel, beside `Runtime.all_reduce`.

    python -m rushmem run -n 2 triton_allreduce.py             # or torchrun --nproc-per-node 2

One shot for small tensors: each PE reads the inputs of all PEs. Two shots for large ones: each PE adds a share of the
inputs, and then reads the other sums.

Needs PyTorch, Triton, and GPUs that can access each other's memory. PEs that share a GPU need MPS.
"""

import statistics

import torch
import triton
import triton.language as tl

import rushmem
import rushmem.triton as rt

PROGRAMS, BLOCK, MAX_BYTES, ONE_SHOT_BYTES = 64, 4096, 64 << 20, 256 << 10


@triton.jit
def meet(ctx, signals, epoch):
    """Publishes what this program has stored to the program of the same number on every PE, and waits for theirs."""
    me, n = rt.my_pe(ctx), rt.n_pes(ctx)
    mine = signals + tl.program_id(0)
    status = rt.fence_block(ctx)
    for pe in range(n):
        status |= rt.signal_op_block(ctx, mine + me * tl.num_programs(0), epoch, rt.SIGNAL_SET, pe)
    for pe in range(n):
        status |= rt.signal_wait_until_block(ctx, mine + pe * tl.num_programs(0), rt.CMP_GE, epoch)
    return status


@triton.jit
def add(ctx, inputs, at, mask, status, PES: tl.constexpr, BLOCK: tl.constexpr):
    """Returns the sum of a block of all PEs' inputs."""
    total = tl.zeros((BLOCK,), tl.float32)
    for pe in tl.static_range(PES):
        source = rt.after(rt.peer_ptr(ctx, inputs, pe), status)
        total += tl.load(source + at, mask=mask).to(tl.float32)
    return total


@rt.jit
def all_reduce(
    ctx, x, y, n, staging, capacity, signals, epochs, PES: tl.constexpr, TWO_SHOT: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    # Numbers of the calls grow, so signals are never reset. Calls use the two halves of `staging` alternately: when a
    # program writes to one, every PE has signalled in the call before, and so has finished the call before that.
    pid, programs = tl.program_id(0), tl.num_programs(0)
    epoch = tl.load(epochs + pid) + 1
    inputs = staging + (epoch % 2) * 2 * capacity
    sums = inputs + capacity
    lanes = tl.arange(0, BLOCK)
    for start in range(pid * BLOCK, n, programs * BLOCK):
        at = start + lanes
        tl.store(inputs + at, tl.load(x + at, mask=at < n), mask=at < n)
    status = meet(ctx, signals, epoch)
    if TWO_SHOT:
        # The owner of a program's i-th block is PE i modulo PES.
        for start in range((rt.my_pe(ctx) * programs + pid) * BLOCK, n, PES * programs * BLOCK):
            at = start + lanes
            total = add(ctx, inputs, at, at < n, status, PES, BLOCK)
            tl.store(sums + at, total.to(y.dtype.element_ty), mask=at < n)
        status = meet(ctx, signals + PES * programs, epoch)
        for first in range(pid * BLOCK, n, PES * programs * BLOCK):
            for pe in tl.static_range(PES):
                at = first + pe * programs * BLOCK + lanes
                source = rt.after(rt.peer_ptr(ctx, sums, pe), status)
                tl.store(y + at, tl.load(source + at, mask=at < n), mask=at < n)
    else:
        for start in range(pid * BLOCK, n, programs * BLOCK):
            at = start + lanes
            tl.store(y + at, add(ctx, inputs, at, at < n, status, PES, BLOCK).to(y.dtype.element_ty), mask=at < n)
    tl.store(epochs + pid, epoch)


class AllReduce:
    """Memory of calls with up to `MAX_BYTES` bytes. All PEs make the same calls on one stream each."""

    def __init__(self, runtime):
        self.runtime = runtime
        staging = runtime.empty(4 * MAX_BYTES, "uint8")
        mapped = [staging.peer(pe) is not None for pe in range(runtime.world_size)]
        assert all(mapped), "the GPUs cannot access each other's memory"
        self.staging = torch.from_dlpack(staging)
        self.signals = torch.from_dlpack(runtime.zeros(2 * runtime.world_size * PROGRAMS, "uint64"))
        self.epochs = torch.zeros(PROGRAMS, dtype=torch.int64, device="cuda")

    def __call__(self, x, y):
        assert x.is_contiguous() and y.is_contiguous() and x.nbytes <= MAX_BYTES
        all_reduce[(PROGRAMS,)](
            self.runtime.context, x, y, x.numel(), self.staging.view(x.dtype), MAX_BYTES // x.itemsize, self.signals,
            self.epochs, PES=self.runtime.world_size, TWO_SHOT=x.nbytes > ONE_SHOT_BYTES, BLOCK=BLOCK, num_warps=8,
            launch_cooperative_grid=True,
        )  # fmt: skip


def median_us(runtime, call, rounds=20):
    """Returns the median time of a call, in CUDA graphs of 10 calls."""
    stream, graph, times = torch.cuda.Stream(), torch.cuda.CUDAGraph(), []
    with torch.cuda.stream(stream):
        call()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        for _ in range(10):
            call()
    for _ in range(rounds):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        runtime.barrier()
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1e3 * start.elapsed_time(end) / 10)
    return statistics.median(times)


def inputs(pe, n, dtype, seed):
    generator = torch.Generator("cuda").manual_seed(1000 * seed + pe)
    return torch.randn(n, generator=generator, device="cuda").to(dtype)


def main():
    # The deadline includes compilation on other PEs.
    with rushmem.init("gpu", heap="1GiB", timeout="60s") as runtime:
        torch.cuda.set_device(runtime.device)
        fused, me, pes = AllReduce(runtime), runtime.rank, runtime.world_size
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for n in (16, 48_000, 1 << 20, 10_000_000):
                for seed in range(4):
                    x, wanted = inputs(me, n, dtype, seed), torch.zeros(n, device="cuda")
                    for pe in range(pes):
                        wanted += inputs(pe, n, dtype, seed).float()
                    y = torch.empty_like(x)
                    fused(x, y)
                    torch.cuda.synchronize()
                    runtime.check()
                    assert torch.equal(y, wanted.to(dtype)), f"PE {me}: wrong sum of {n} numbers of {dtype}"
        for nbytes in (8 << 10, 256 << 10, 1 << 20, 64 << 20):
            dst, src = (runtime.zeros(nbytes // 2, "bfloat16") for _ in range(2))
            y, x = torch.from_dlpack(dst), torch.from_dlpack(src)
            time = median_us(runtime, lambda: fused(x, y))
            own = median_us(runtime, lambda: runtime.all_reduce(dst, src, stream=torch.cuda.current_stream()))
            if me == 0:
                speed = 2 * (pes - 1) / pes * nbytes / time / 1e3
                print(f"{nbytes >> 10:6} KiB: {time:7.1f} us, {speed:5.1f} GB/s; Runtime.all_reduce: {own:7.1f} us")
        runtime.check()
        print(f"PASS triton_allreduce: PE {me} of {pes}")


if __name__ == "__main__":
    main()
