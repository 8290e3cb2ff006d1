"""Compiles a CuTe kernel that calls Rushmem, without a GPU, and reads what became of the calls in the PTX."""

import os

import pytest

# Read when the package is imported.
os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")
cutlass = pytest.importorskip("cutlass")

import cutlass.cute as cute

import rushmem.cute as rc


@cute.kernel
def exchange(ctx: cutlass.Int64, data: cutlass.Int64, signal: cutlass.Int64, peer: cutlass.Int32, out: cute.Pointer):
    status = rc.putmem_signal_block(ctx, data, data, 1024, signal, 1, 1, peer)
    status |= rc.signal_wait_until_block(ctx, signal, 3, 1)
    found = rc.uint64_atomic_fetch_add_block(ctx, signal, 1, peer)
    status |= rc.barrier_all_block(ctx)
    cute.make_tensor(out, cute.make_layout(1))[0] = found + cutlass.Int64(status)


@cute.jit
def launch(ctx: cutlass.Int64, data: cutlass.Int64, signal: cutlass.Int64, peer: cutlass.Int32, out: cutlass.Int64):
    at = cute.make_ptr(cutlass.Int64, out, cute.AddressSpace.gmem)
    exchange(ctx, data, signal, peer, at).launch(grid=[1, 1, 1], block=[128, 1, 1])


def test_calls_become_part_of_the_kernel():
    zero = cutlass.Int64(0)
    text = cute.compile[cute.KeepPTX](launch, zero, zero, zero, cutlass.Int32(0), zero).artifacts.PTX
    # Each call is inlined, or is one of a function in this module.
    entry = text[text.index(".entry") :]
    assert "fence.release.sys" in entry
    assert ".extern .func" not in text.replace("vprintf", "")


def test_unknown_names_are_errors():
    with pytest.raises(AttributeError, match="no device function is called putmem_cluster"):
        rc.putmem_cluster
