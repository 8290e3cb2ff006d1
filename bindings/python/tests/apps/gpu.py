"""Arrays, streams, graphs and windows on GPUs, with PyTorch. Prints PASS."""

import torch

import rushmem


def operations(rt, following, previous):
    """Check operations that are queued on a stream."""
    n = 100_000
    inbox, message, arrived = rt.zeros(n), rt.zeros(n), rt.zeros(1, "uint64")
    received, sent = torch.from_dlpack(inbox), torch.from_dlpack(message)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for step in range(1, 20):
            sent.copy_(torch.arange(n, device="cuda") + rt.rank + step)
            rt.put_signal(inbox, message, arrived, 1, following, op="add", stream=stream)
            rt.wait_until(arrived, ">=", step, stream=stream)
            doubled = received * 2
            rt.barrier(stream=stream)
        rt.get(message, inbox, following, stream=stream)
    rt.synchronize(stream)
    wanted = torch.arange(n, device="cuda", dtype=torch.float32)
    assert torch.equal(doubled, (wanted + previous + 19) * 2)
    assert torch.equal(sent, wanted + rt.rank + 19), "the following PE has what this one sent"
    # Views are released before the arrays are.
    del received, sent
    for array in (inbox, message, arrived):
        array.free()


def collectives(rt, stream):
    """Check collective calls on a stream, and in a graph that is replayed."""
    n, pes = 4096, rt.world_size
    src, dst, gathered = rt.zeros(n), rt.zeros(n), rt.zeros((pes, n))
    mine, total, rows = map(torch.from_dlpack, (src, dst, gathered))
    mine.fill_(rt.rank + 1)
    torch.cuda.synchronize()
    rt.barrier()

    def exchange():
        rt.all_reduce(dst, src, stream=stream)
        rt.all_gather(gathered, dst, stream=stream)

    exchange()
    rt.synchronize(stream)
    everyone = pes * (pes + 1) / 2
    assert (total == everyone).all() and (rows == everyone).all()

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        exchange()
        mine.add_(1)
    for replay in range(1, 4):
        graph.replay()
        torch.cuda.synchronize()
        assert (total == everyone + (replay - 1) * pes).all() and (rows == total[0]).all(), replay
    rt.check()
    rt.barrier()


def windows(rt, following, previous):
    """Check a window over memory that PyTorch has allocated."""
    theirs = torch.full((1 << 20,), -1.0, device="cuda")
    torch.cuda.synchronize()
    window = rt.register(theirs)
    message = rt.zeros(1 << 20)
    torch.from_dlpack(message).fill_(rt.rank)
    torch.cuda.synchronize()
    rt.put(window, message, following)
    rt.barrier()
    assert (theirs == previous).all()
    rt.barrier()
    window.unregister()


with rushmem.init("gpu") as rt:
    torch.cuda.set_device(rt.device)
    following, previous = (rt.rank + 1) % rt.world_size, (rt.rank - 1) % rt.world_size
    array = rt.zeros((2, 3), "float16")
    assert torch.from_dlpack(array).data_ptr() == array.address == array.__cuda_array_interface__["data"][0]
    operations(rt, following, previous)
    collectives(rt, torch.cuda.Stream())
    windows(rt, following, previous)
print("PASS")
