"""Measures the latency of calls in Rust, CUDA C++ and Triton, in microseconds per call. Needs two PEs.

"No library" is what a call must cost that is not inlined: functions in CUDA C++ which load two addresses from a context
in memory, and then only store, load or fence.

    python -m rushmem run -n 2 bindings/conformance/latency.py --library DIR

``DIR`` holds what `cargo run -p rushmem-ptx -- library DIR` and `... conformance DIR sm_90` have written.

Each kernel makes its call in a loop. The time of a call is the difference between two numbers of rounds.
"""

import argparse
import tempfile
from pathlib import Path
from typing import NamedTuple

import rushmem
from languages import imported, linked_cubin

HERE = Path(__file__).resolve().parent


class Loop(NamedTuple):
    """The calls of a round in each language that has them, the threads of the block, and whether both PEs make them."""

    rust: str
    cpp: str
    triton: str | None
    threads: int = 1
    both: bool = False
    bare: str | None = None


LOOPS = {
    # What remains of a call that does nothing.
    "my_pe": Loop("loop_my_pe", "rushmem_device_my_pe(ctx)", None, bare="nothing(&table)"),
    "fetch_add": Loop("loop_fetch_add", "rushmem_device_uint64_atomic_fetch_add(ctx, word, 1, peer)", None),
    "fetch_add_block": Loop(
        "loop_fetch_add_block", "rushmem_device_uint64_atomic_fetch_add_block(ctx, word, 1, peer)",
        "rt.atomic_fetch_add_block(ctx, word, 1, peer)", 32,
    ),
    "g": Loop("loop_g", "rushmem_device_uint64_g(ctx, word, peer)", "rt.g(ctx, word, peer)", 32, bare="g(&table)"),
    "p_quiet": Loop("loop_p_quiet", "rushmem_device_uint64_p(ctx, word, 1, peer) + rushmem_device_quiet(ctx)", None),
    "p_quiet_block": Loop(
        "loop_p_quiet_block", "rushmem_device_uint64_p(ctx, word, 1, peer) + rushmem_device_quiet_block(ctx)",
        "rt.p(ctx, word, 1, peer).to(tl.int64) + rt.quiet_block(ctx).to(tl.int64)", 32, bare="p(&table, 1) + quiet(&table)",
    ),
    "put_quiet_1KiB": Loop(
        "loop_put_quiet",
        "rushmem_device_putmem_nbi_block(ctx, word, word, 1024, peer) + rushmem_device_quiet_block(ctx)",
        "rt.putmem_nbi_block(ctx, word, word, 1024, peer).to(tl.int64) + rt.quiet_block(ctx).to(tl.int64)", 128,
        bare="put(&table, 1024) + quiet(&table)",
    ),
    "barrier_all": Loop(
        "loop_barrier_all", "rushmem_device_barrier_all_block(ctx)", "rt.barrier_all_block(ctx).to(tl.int64)", 128, True,
    ),
}  # fmt: skip
ROUNDS = (200, 1200)


# Functions that make an access of one call each, without checks and without a library.
BARE = """
struct Context {
  uint64_t *own, *peer;
};
__device__ Context table;
extern "C" __global__ void fill(rushmem_ctx ctx, uint64_t *word, int peer) {
  table = {word, (uint64_t *)rushmem_device_ptr(ctx, word, peer)};
}
__device__ __forceinline__ Context load(const Context *at) {
  Context context;
  asm("ld.global.nc.v2.b64 {%0, %1}, [%2];" : "=l"(context.own), "=l"(context.peer) : "l"(at));
  return context;
}
__device__ __noinline__ uint64_t nothing(const Context *at) { return (uint64_t)load(at).own; }
__device__ __noinline__ uint64_t g(const Context *at) { return *load(at).peer; }
__device__ __noinline__ int p(const Context *at, uint64_t value) {
  *(volatile uint64_t *)load(at).peer = value;
  return 0;
}
__device__ __noinline__ int put(const Context *at, size_t bytes) {
  Context context = load(at);
  __syncthreads();
  for (size_t i = threadIdx.x; i < bytes / 16; i += blockDim.x) ((int4 *)context.peer)[i] = ((int4 *)context.own)[i];
  __syncthreads();
  return 0;
}
__device__ __noinline__ int quiet(const Context *at) {
  int result = load(at).own == nullptr;
  __syncthreads();
  if (threadIdx.x == 0) asm volatile("fence.release.sys;" ::: "memory");
  __syncthreads();
  return result;
}
"""


class MachineCode:
    """Loops that were compiled ahead of time."""

    def __init__(self, path):
        import cupy

        self.cupy, self.module = cupy, cupy.RawModule(path=str(path))

    def has(self, name):
        return True

    def launch(self, name, ctx, word, peer, rounds, out):
        arguments = (self.cupy.uint64(ctx), self.cupy.uint64(word), self.cupy.int32(peer), self.cupy.int32(rounds), out)
        self.module.get_function(self.kernel(name))((1,), (LOOPS[name].threads,), arguments)


class Rust(MachineCode):
    name = "Rust"

    def __init__(self, folder, library):
        super().__init__(library / "rushmem_conformance_sm90.cubin")

    def kernel(self, name):
        return LOOPS[name].rust


class CudaCpp(MachineCode):
    name = "CUDA C++"
    prelude = ""

    def __init__(self, folder, library):
        kernels = [
            f'extern "C" __global__ void {name}(rushmem_ctx ctx, uint64_t *word, int peer, int rounds, long long *out) {{\n'
            f"  long long sum = 0;\n  for (int i = 0; i < rounds; i++) sum += {self.call(name)};\n"
            "  out[threadIdx.x] = sum;\n}\n"
            for name in filter(self.has, LOOPS)
        ]
        text = '#include "rushmem_device.h"\n' + self.prelude + "".join(kernels)
        device, include = library / "rushmem_device_sm90", HERE.parent / "c/include"
        super().__init__(linked_cubin(text, device, include, folder, "sm_90"))

    def call(self, name):
        return LOOPS[name].cpp

    def kernel(self, name):
        return name


class NoLibrary(CudaCpp):
    name = "No library"
    prelude = BARE

    def has(self, name):
        return LOOPS[name].bare is not None

    def call(self, name):
        return LOOPS[name].bare

    def launch(self, name, ctx, word, peer, rounds, out):
        fill = self.module.get_function("fill")
        fill((1,), (1,), (self.cupy.uint64(ctx), self.cupy.uint64(word), self.cupy.int32(peer)))
        super().launch(name, ctx, word, peer, rounds, out)


class Triton:
    name = "Triton"

    def __init__(self, folder, library):
        lines = ["import triton.language as tl", "import rushmem.triton as rt", ""]
        for name, loop in LOOPS.items():
            if loop.triton is None:
                continue
            lines += [
                "@rt.jit",
                f"def {name}(ctx, word, peer, rounds, out):",
                "    word = tl.cast(word, tl.int64).to(tl.pointer_type(tl.uint64))",
                "    total = tl.cast(0, tl.int64)",
                "    for i in range(rounds):",
                f"        total += tl.cast({loop.triton}, tl.int64)",
                "    tl.store(tl.cast(out, tl.int64).to(tl.pointer_type(tl.int64)), total)",
                "",
            ]
        self.module = imported("\n".join(lines) + "\n", folder)

    def has(self, name):
        return LOOPS[name].triton is not None

    def launch(self, name, ctx, word, peer, rounds, out):
        warps = LOOPS[name].threads // 32
        getattr(self.module, name)[(1,)](ctx, word, peer, rounds, out.data.ptr, num_warps=warps)


def measure(runtime, language, name, word):
    """Returns the median time of a call on this PE."""
    import cupy

    out = cupy.zeros(128, cupy.int64)
    peer, both = 1 - runtime.my_pe, LOOPS[name].both
    stream = cupy.cuda.Stream.null

    def time(rounds):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        runtime.barrier()
        if runtime.my_pe == 0 or both:
            start.record(stream)
            language.launch(name, runtime.context, word, peer, rounds, out)
            end.record(stream)
            end.synchronize()
        runtime.barrier()
        return cupy.cuda.get_elapsed_time(start, end) if runtime.my_pe == 0 or both else 0.0

    for rounds in ROUNDS:
        time(rounds)
    fewer, more = (sorted(time(rounds) for _ in range(9))[4] for rounds in ROUNDS)
    runtime.check()
    return 1e3 * (more - fewer) / (ROUNDS[1] - ROUNDS[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=Path, required=True)
    options = parser.parse_args()
    # The deadline includes compilation on the other PE.
    with rushmem.init("gpu", timeout="60s") as runtime, tempfile.TemporaryDirectory() as folder:
        import cupy
        import torch

        cupy.cuda.Device(runtime.device).use()
        torch.cuda.set_device(runtime.device)
        array = runtime.zeros(256, "uint64")
        for make in (Rust, CudaCpp, NoLibrary, Triton):
            own = Path(folder, make.__name__)
            own.mkdir()
            language = make(own, options.library)
            for name in filter(language.has, LOOPS):
                taken = measure(runtime, language, name, array.address)
                if runtime.my_pe == 0:
                    print(f"{language.name:10} {name:15} {taken:7.3f} us", flush=True)


if __name__ == "__main__":
    main()
