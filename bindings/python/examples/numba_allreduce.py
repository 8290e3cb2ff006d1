"""All-reduce in a Numba-CUDA kernel, which is linked with the machine code of the device functions.

    python -m rushmem run -n 2 numba_allreduce.py

Needs numba-cuda and GPUs that can access each other's memory. PEs that share a GPU need MPS.
"""

import statistics
from pathlib import Path

import numpy
from numba import cuda, types

import rushmem

BLOCKS, THREADS, N = 32, 256, 1 << 20
SIGNAL_SET, CMP_GE = 0, 3

# For Hopper. `rushmem_device.ptx` can be linked for other GPUs.
CUBIN = str(Path(rushmem.__file__).parent / "device/rushmem_device_sm90.cubin")


def device(name, *parameters):
    signature = types.int32(types.uint64, *parameters)
    return cuda.declare_device(f"rushmem_device_{name}", signature, link=[CUBIN], use_cooperative=True, abi="c")


my_pe = device("my_pe")
n_pes = device("n_pes")
fence_block = device("fence_block")
signal_op_block = device("signal_op_block", types.uint64, types.uint64, types.int32, types.int32)
signal_wait_until_block = device("signal_wait_until_block", types.uint64, types.int32, types.uint64)


def all_reduce(ctx, x, y, staging, peers, signals, call):
    """Adds the `x` of all PEs. `peers` are their `staging`; at `signals` is a word per PE and block."""
    # Numbers of the calls grow, so signals are never reset. Calls use the two halves of `staging` alternately: when a
    # block writes to one, every PE has signalled in the call before, and so has finished the call before that.
    half, block, blocks = call % 2, cuda.blockIdx.x, cuda.gridDim.x
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        staging[half, i] = x[i]
    status = fence_block(ctx)
    for pe in range(n_pes(ctx)):
        status |= signal_op_block(ctx, signals + 8 * (my_pe(ctx) * blocks + block), call, SIGNAL_SET, pe)
    for pe in range(n_pes(ctx)):
        status |= signal_wait_until_block(ctx, signals + 8 * (pe * blocks + block), CMP_GE, call)
    if status == 0:
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            total = numpy.float32(0)
            for peer in peers:
                total += peer[half, i]
            y[i] = total


def main():
    # The deadline includes compilation on other PEs.
    with rushmem.init("gpu", timeout="60s") as runtime:
        cuda.select_device(runtime.device)
        me, pes = runtime.rank, runtime.world_size
        kernel = cuda.jit(link=[CUBIN], lto=False)(all_reduce)
        signals, staging = runtime.zeros(pes * BLOCKS, "uint64"), runtime.zeros((2, N), "float32")
        views = [staging.peer(pe) for pe in range(pes)]
        assert None not in views, "the GPUs cannot access each other's memory"
        peers = tuple(cuda.as_cuda_array(view) for view in views)
        y, times = cuda.device_array(N, numpy.float32), []
        for call in range(1, 21):
            numbers = [numpy.random.default_rng(call * pes + pe).random(N, numpy.float32) for pe in range(pes)]
            x = cuda.to_device(numbers[me])
            start, end = cuda.event(), cuda.event()
            cuda.synchronize()
            runtime.barrier()
            start.record()
            kernel[BLOCKS, THREADS](
                numpy.uint64(runtime.context), x, y, peers[me], peers, numpy.uint64(signals.address), numpy.uint64(call)
            )
            end.record()
            cuda.synchronize()
            runtime.check()
            times.append(1e3 * cuda.event_elapsed_time(start, end))
            wanted = sum(numbers[1:], numbers[0])
            numpy.testing.assert_array_equal(y.copy_to_host(), wanted)
        time = statistics.median(times)
        bandwidth = 2 * (pes - 1) / pes * 4 * N / time / 1e3
        print(f"PASS numba_allreduce: PE {me} of {pes}: {4 * N >> 20} MiB in {time:.0f} us, {bandwidth:.1f} GB/s")


if __name__ == "__main__":
    main()
