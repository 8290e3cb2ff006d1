"""Every PE sends a tensor to the next one from a Triton kernel, and adds 1 to what it receives.

    python -m rushmem run -n 2 triton_ring.py

Needs PyTorch, Triton and a GPU. PEs that share a GPU need MPS.
"""

import torch
import triton.language as tl

import rushmem
import rushmem.triton as rt

N = tl.constexpr(1 << 20)


@rt.jit
def shift(ctx, inbox, outbox, result, signal, status, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    # Each program sends and receives its own part.
    part = tl.program_id(0) * (N // PROGRAMS)
    next_pe = (rt.my_pe(ctx) + 1) % rt.n_pes(ctx)
    mine = signal + tl.program_id(0)
    count: tl.constexpr = N // PROGRAMS
    sent = rt.put_signal_nbi_block(ctx, inbox + part, outbox + part, count, mine, 1, rt.SIGNAL_SET, next_pe)
    received = rt.signal_wait_until_block(ctx, mine, rt.CMP_EQ, 1)
    source = rt.after(inbox + part, received)
    for i in range(0, count, BLOCK):
        lanes = i + tl.arange(0, BLOCK)
        tl.store(result + part + lanes, tl.load(source + lanes) + 1)
    done = rt.quiet_block(ctx)
    # A status is 0, or the number of an error that `check` explains.
    tl.store(status + tl.program_id(0), tl.maximum(tl.maximum(sent, received), done))


def main():
    with rushmem.init("gpu") as runtime:
        torch.cuda.set_device(runtime.device)
        programs, n = 16, N.value
        inbox, outbox = runtime.zeros(n, "float32"), runtime.zeros(n, "float32")
        signals = runtime.zeros(programs, "uint64")
        torch.from_dlpack(outbox).copy_(torch.arange(n, device="cuda") + runtime.rank * n)
        result = torch.empty(n, device="cuda")
        status = torch.empty(programs, dtype=torch.int32, device="cuda")
        torch.cuda.synchronize()
        runtime.barrier()
        views = [torch.from_dlpack(array) for array in (inbox, outbox, signals)]
        shift[(programs,)](
            runtime.context, views[0], views[1], result, views[2], status, BLOCK=1024, PROGRAMS=programs,
            launch_cooperative_grid=True,
        )
        torch.cuda.synchronize()
        runtime.check()
        previous = (runtime.rank - 1) % runtime.world_size
        wanted = torch.arange(n, device="cuda", dtype=torch.float32) + previous * n + 1
        assert status.abs().max().item() == 0 and torch.equal(result, wanted)
        print(f"PE {runtime.rank} of {runtime.world_size} received {n} numbers from PE {previous}")


main()
