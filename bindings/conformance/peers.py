"""Measures the calls of `latency.py` in Numba and Triton, beside NVSHMEM's by nvshmem4py and by its LLVM bitcode.

    python -m rushmem run -n 2 bindings/conformance/peers.py --library DIR

Needs two PEs, CuPy, PyTorch, numba-cuda and nvshmem4py. NVSHMEM finds its PEs through Rushmem.
"""

import argparse
import tempfile
from pathlib import Path

import latency
import rushmem
from languages import Functions, Numba, imported

# The calls of a round in Numba: ours, and NVSHMEM's.
LOOPS = {
    "fetch_add": (
        ["total += uint64_atomic_fetch_add(ctx, word, 1, peer)"],
        ["total += nvshmem.atomic_fetch_add(word, 1, peer)"],
    ),
    "g": (["total += uint64_g(ctx, word, peer)"], ["total += nvshmem.g(word, peer)"]),
    "p_quiet": (
        ["uint64_p(ctx, word, 1, peer)", "quiet(ctx)"],
        ["nvshmem.p(word, 1, peer)", "quiet()"],
    ),
    "put_quiet_1KiB": (
        ["putmem_nbi_block(ctx, word, word, 1024, peer)", "quiet_block(ctx)"],
        ["nvshmem.put_nbi_block(word, word, peer)", "cuda.syncthreads()", "quiet_once()", "cuda.syncthreads()"],
    ),
    "barrier_all": (["barrier_all_block(ctx)"], ["nvshmem.barrier_all_block()"]),
}  # fmt: skip
OURS = [
    "uint64_atomic_fetch_add", "uint64_g", "uint64_p", "quiet", "putmem_nbi_block", "quiet_block", "barrier_all_block",
]  # fmt: skip

# The same in functions over NVSHMEM's bitcode. They return a value, because Triton has no calls without one.
BITCODE = {
    "fetch_add": ["%r = call i64 @nvshmem_uint64_atomic_fetch_add(ptr %p, i64 1, i32 %pe)"],
    "g": ["%r = call i64 @nvshmem_uint64_g(ptr %p, i32 %pe)"],
    "p_quiet": ["call void @nvshmem_uint64_p(ptr %p, i64 1, i32 %pe)", "call void @nvshmem_quiet()"],
    "put_quiet_1KiB": [
        "call void @nvshmemx_putmem_nbi_block(ptr %p, ptr %p, i64 1024, i32 %pe)", "call void @nvshmem_quiet()",
    ],
    "barrier_all": ["call void @nvshmemx_barrier_all_block()"],
}  # fmt: skip
DECLARED = """target triple = "nvptx64-nvidia-cuda"
declare i64 @nvshmem_uint64_atomic_fetch_add(ptr, i64, i32)
declare i64 @nvshmem_uint64_g(ptr, i32)
declare void @nvshmem_uint64_p(ptr, i64, i32)
declare void @nvshmem_quiet()
declare void @nvshmemx_putmem_nbi_block(ptr, ptr, i64, i32)
declare void @nvshmemx_barrier_all_block()
"""
TRITON = """import triton
import triton.language as tl
from triton.language import core

@core.extern
def {name}(word, pe, _semantic=None):
    types = {{(core.int64, core.int32): ("peer_{name}", core.int64)}}
    return core.extern_elementwise("", "", [word, pe], types, is_pure=False, _semantic=_semantic)

@triton.jit(do_not_specialize=["word", "peer", "rounds", "out"])
def kernel_{name}(word, peer, rounds, out):
    total = tl.cast(0, tl.int64)
    for i in range(rounds):
        total += {name}(word, peer)
    tl.store(tl.cast(out, tl.int64).to(tl.pointer_type(tl.int64)), total)

"""


def numba_kernels(which, space, **options):
    """Returns a kernel for each loop, in which names are those of `space`."""
    from numba import cuda

    for name, loops in LOOPS.items():
        lines = [f"def {name}(ctx, word, peer, rounds, out):", " total = 0", " for i in range(rounds):"]
        lines += [f"  {line}" for line in loops[which]] + [" out[cuda.threadIdx.x] = total"]
        exec("\n".join(lines), space)
    return {name: cuda.jit(**options)(space[name]) for name in LOOPS}


class OurNumba:
    name = "Rushmem, Numba"

    def __init__(self, folder, library):
        from numba import cuda

        functions = Functions(library / "functions.json")
        numba = Numba(OURS, functions, library / "rushmem_device_sm90.ll", None, folder, "sm_90")
        names = {name: numba.declared(name) for name in OURS}
        self.kernels = numba_kernels(0, names | {"cuda": cuda}, link=[numba.link], lto=False)

    def has(self, name):
        return name in LOOPS

    def launch(self, name, ctx, word, peer, rounds, out):
        import numpy

        self.kernels[name][1, latency.LOOPS[name].threads](numpy.uint64(ctx), numpy.uint64(word), peer, rounds, out)


class NvshmemNumba:
    name = "NVSHMEM, Numba"

    def __init__(self, folder, library):
        import nvshmem.core.device.numba
        from numba import cuda
        from nvshmem.bindings.device.numba import quiet

        @cuda.jit(device=True)
        def quiet_once():
            if cuda.threadIdx.x == 0:
                quiet()

        names = {"nvshmem": nvshmem.core.device.numba, "quiet": quiet, "quiet_once": quiet_once, "cuda": cuda}
        self.kernels = numba_kernels(1, names)

    def has(self, name):
        return name in LOOPS

    def launch(self, name, ctx, word, peer, rounds, out):
        self.kernels[name][1, latency.LOOPS[name].threads](0, word[:128], peer, rounds, out)


class NvshmemTriton:
    """Functions without `_block` are called in every thread, as in PyTorch's binding."""

    name = "NVSHMEM, Triton"

    def __init__(self, folder, library):
        import nvshmem.core

        self.module = imported("".join(TRITON.format(name=name) for name in BITCODE), folder)
        bodies = [
            f"define i64 @peer_{name}(i64 %word, i32 %pe) {{\n%p = inttoptr i64 %word to ptr\n"
            + "\n".join(calls)
            + f"\nret i64 {'%r' if '%r' in calls[0] else '0'}\n}}\n"
            for name, calls in BITCODE.items()
        ]
        (folder / "peer.ll").write_text(DECLARED + "".join(bodies))
        self.libraries = {"peer": str(folder / "peer.ll"), "nvshmem": nvshmem.core.find_device_bitcode_library()}
        self.initialised = set()

    def has(self, name):
        return name in BITCODE

    def launch(self, name, ctx, word, peer, rounds, out):
        import nvshmem.bindings

        kernel, arguments = getattr(self.module, f"kernel_{name}"), (word.data.ptr, peer, rounds, out.data.ptr)
        options = {"num_warps": max(latency.LOOPS[name].threads // 32, 1), "extern_libs": self.libraries}
        if name not in self.initialised:
            compiled = kernel.warmup(*arguments, grid=(1,), **options)
            compiled._init_handles()
            nvshmem.bindings.cumodule_init(compiled.module)
            self.initialised.add(name)
        kernel[(1,)](*arguments, **options)


def start_nvshmem(runtime):
    """Initialises NVSHMEM on the PEs of `runtime`."""
    import cupy
    import numpy
    import nvshmem.core
    from cuda.core import Device

    device = Device(runtime.device)
    device.set_current()
    id = nvshmem.core.get_unique_id(empty=runtime.my_pe != 0)
    text = numpy.asarray(id._data).view("uint8").reshape(-1)
    sent, received = runtime.zeros(text.size, "uint8"), runtime.zeros(text.size, "uint8")
    cupy.from_dlpack(sent).set(text)
    cupy.cuda.runtime.deviceSynchronize()
    runtime.broadcast(received, sent)
    text[:] = cupy.from_dlpack(received).get()
    nvshmem.core.init(device, id, runtime.my_pe, runtime.n_pes, initializer_method="uid")
    return nvshmem.core.array((256,), dtype="uint64")


def report(runtime, languages, word, options):
    for make in languages:
        with tempfile.TemporaryDirectory() as folder:
            language = make(Path(folder), options.library)
            for name in filter(language.has, latency.LOOPS):
                taken = latency.measure(runtime, language, name, word)
                if runtime.my_pe == 0:
                    print(f"{language.name:15} {name:15} {taken:7.3f} us", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=Path, required=True)
    options = parser.parse_args()
    # The deadline includes compilation on the other PE.
    with rushmem.init("gpu", timeout="60s") as runtime:
        import cupy
        import nvshmem.core
        import torch
        from numba import cuda

        cupy.cuda.Device(runtime.device).use()
        torch.cuda.set_device(runtime.device)
        cuda.select_device(runtime.device)
        array = runtime.zeros(256, "uint64")
        report(runtime, (latency.Rust, latency.CudaCpp, latency.Triton, OurNumba), array.address, options)
        words = start_nvshmem(runtime)
        report(runtime, (NvshmemNumba, NvshmemTriton), words, options)
        nvshmem.core.free_array(words)
        nvshmem.core.finalize()


if __name__ == "__main__":
    main()
