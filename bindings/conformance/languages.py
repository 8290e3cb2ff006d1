"""Kernels that make one call each, in every kernel language. A kernel stores the result of each thread in ``out``."""

import importlib.util
import json
import subprocess
from pathlib import Path


TYPES = {"i8": "uint8", "i16": "uint16", "i32": "int32", "i64": "uint64", "float": "float32", "double": "float64"}


class Functions:
    """The table of device functions."""

    def __init__(self, path):
        self.by_name = {each["name"].removeprefix("rushmem_device_"): each for each in json.loads(path.read_text())}

    def parameters(self, name):
        return self.by_name[name]["parameters"][1:]

    def result(self, name):
        return self.by_name[name]["returns"]


def as_word(value, llvm):
    """Returns an argument as a NumPy scalar of the parameter's type."""
    import numpy

    wrapped = value & 2**64 - 1 if llvm == "i64" else value
    return getattr(numpy, TYPES[llvm])(wrapped)


def linked_cubin(text, library, include, folder, arch):
    """Compiles CUDA C++, and links it with the machine code of the device functions beside ``library``."""
    source, object_, cubin = (folder / f"kernels.{suffix}" for suffix in ("cu", "o", "cubin"))
    source.write_text(text)
    subprocess.run(["nvcc", f"-arch={arch}", "-dc", f"-I{include}", "-o", object_, source], check=True)
    linked = ["nvcc", f"-arch={arch}", "-dlink", "-cubin", "-o", cubin, object_, library.with_suffix(".cubin")]
    subprocess.run(linked, check=True)
    return cubin


def imported(text, folder):
    """Returns a module with this text. Triton needs the file of a kernel."""
    path = folder / "kernels.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("kernels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Rust:
    """Kernels in Rust, which `cargo run -p rushmem-ptx -- conformance DIR ARCH` has compiled."""

    name = "Rust"

    def __init__(self, calls, functions, library, include, folder, arch):
        import cupy

        self.cupy, self.functions = cupy, functions
        name = library.stem.replace("rushmem_device", "rushmem_conformance")
        self.module = cupy.RawModule(path=str(library.with_name(f"{name}.cubin")))

    def has(self, call):
        return True

    def run(self, call, ctx, arguments, threads, out):
        words = [as_word(value, p["llvm"]) for value, p in zip(arguments, self.functions.parameters(call))]
        kernel = self.module.get_function(f"rushmem_kernel_{call}")
        kernel((1,), (threads,), (self.cupy.uint64(ctx), *words, self.cupy.uint64(out)))
        self.cupy.cuda.get_current_stream().synchronize()


class CudaCpp:
    """Kernels in CUDA C++, compiled by nvcc and linked with the machine code of the device functions."""

    name = "CUDA C++"

    def __init__(self, calls, functions, library, include, folder, arch):
        import cupy

        self.cupy, self.functions = cupy, functions
        lines = ['#include "rushmem_device.h"']
        for call in calls:
            names = [f"a{i}" for i in range(len(functions.parameters(call)))]
            typed = "".join(f", unsigned long long {name}" for name in names)
            casts = ["ctx"] + [f"({p['c']})a{i}" for i, p in enumerate(functions.parameters(call))]
            lines.append(
                f'extern "C" __global__ void k_{call}(rushmem_ctx ctx{typed}, long long *out) {{\n'
                f"    out[threadIdx.x] = (long long)rushmem_device_{call}({', '.join(casts)});\n}}"
            )
        self.module = cupy.RawModule(path=str(linked_cubin("\n".join(lines) + "\n", library, include, folder, arch)))

    def has(self, call):
        return True

    def run(self, call, ctx, arguments, threads, out):
        words = [self.cupy.uint64(argument & 2**64 - 1) for argument in arguments]
        self.module.get_function(f"k_{call}")((1,), (threads,), (self.cupy.uint64(ctx), *words, self.cupy.uint64(out)))
        self.cupy.cuda.get_current_stream().synchronize()


class Numba:
    """Kernels in Numba-CUDA, linked with the machine code of the device functions."""

    name = "Numba"

    def __init__(self, calls, functions, library, include, folder, arch):
        from numba import cuda, types

        self.cuda, self.functions, self.kernels = cuda, functions, {}
        numbers = {llvm: getattr(types, name) for llvm, name in TYPES.items()}
        self.link = str(library.with_suffix(".cubin"))
        self.numbers = numbers

    def has(self, call):
        return True

    def declared(self, call):
        """Returns a device function, for kernels that link it."""
        parameters, result = self.functions.parameters(call), self.functions.result(call)
        signature = self.numbers[result["llvm"]](self.numbers["i64"], *[self.numbers[p["llvm"]] for p in parameters])
        return self.cuda.declare_device(f"rushmem_device_{call}", signature, link=[self.link], abi="c")

    def kernel(self, call):
        if call not in self.kernels:
            parameters = self.functions.parameters(call)
            declared = self.declared(call)
            names = "".join(f", a{i}" for i in range(len(parameters)))
            text = (
                f"def kernel(ctx{names}, out):\n"
                f"    out[cuda.threadIdx.x] = function(ctx{names})\n"
            )
            space = {"cuda": self.cuda, "function": declared}
            exec(text, space)
            self.kernels[call] = self.cuda.jit(link=[self.link], lto=False)(space["kernel"])
        return self.kernels[call]

    def run(self, call, ctx, arguments, threads, out):
        import numpy

        words = [as_word(value, p["llvm"]) for value, p in zip(arguments, self.functions.parameters(call))]
        results = self.cuda.device_array(threads, dtype=numpy.int64)
        self.kernel(call)[1, threads](numpy.uint64(ctx), *words, results)
        self.cuda.synchronize()
        return results.copy_to_host().tolist()


class Triton:
    """Kernels in Triton, which inlines the device functions. Its calls are block calls, and elementwise ones."""

    name = "Triton"
    ELEMENTWISE = ("my_pe", "n_pes", "team_my_pe", "team_n_pes", "team_translate_pe")
    POINTERS = {
        "void *": "uint8", "const void *": "uint8", "uint8_t *": "uint8", "uint16_t *": "uint16",
        "uint32_t *": "uint32", "uint64_t *": "uint64", "int32_t *": "int32", "int64_t *": "int64",
        "float *": "float32", "double *": "float64",
    }  # fmt: skip

    def __init__(self, calls, functions, library, include, folder, arch):
        self.functions = functions
        lines = ["import triton", "import triton.language as tl", "import rushmem.triton as rt", ""]
        for call in filter(self.has, calls):
            self.source(lines, call)
        self.module = imported("\n".join(lines) + "\n", folder)

    def has(self, call):
        if call.endswith("_block"):
            return not call.endswith("inc_block")
        return call in self.ELEMENTWISE or call.endswith(("_p", "_g"))

    def source(self, lines, call):
        parameters = self.functions.parameters(call)
        names = [f"a{i}" for i in range(len(parameters))]
        lines += ["@rt.jit", f"def k_{call}({', '.join(['ctx', *names, 'out'])}, WARPS: tl.constexpr):"]
        arguments = ["ctx"]
        for name, parameter in zip(names, parameters):
            pointer = self.POINTERS.get(parameter["c"].removeprefix("const ")) or self.POINTERS.get(parameter["c"])
            arguments.append(f"tl.cast({name}, tl.int64).to(tl.pointer_type(tl.{pointer}))" if pointer else name)
        word, _, rest = call.partition("_")
        if word in ("uint8", "uint16", "uint32", "uint64", "int32", "int64", "float", "double"):
            call = rest
        if call.endswith("mem_block") and not call.startswith(("put", "get")):
            call = call.replace("mem_block", "_block")
        if call.startswith("reduce"):
            # The type of the pointers says what the elements are.
            kind = arguments.pop(5)
            arguments[2:4] = [f"tl.cast(a{i}, tl.int64).to(tl.pointer_type(ELEMENT))" for i in (1, 2)]
            lines[-1] = lines[-1].replace(", out,", ", out, ELEMENT: tl.constexpr,")
            arguments[4] = "a3 // (ELEMENT.primitive_bitwidth // 8)"
        lines += [
            f"    status = rt.{call}({', '.join(arguments)})",
            "    lanes = tl.arange(0, 32 * WARPS)",
            "    at = out.to(tl.pointer_type(tl.int64)) + lanes",
            f"    tl.store(at, tl.zeros_like(lanes).to(tl.int64) + status.to(tl.int64))",
            "",
        ]

    def run(self, call, ctx, arguments, threads, out):
        import triton.language as tl

        options = {"WARPS": threads // 32}
        if call.startswith("reduce"):
            options["ELEMENT"] = {6: tl.uint64, 7: tl.int64, 10: tl.float32}[arguments[4]]
        kernel = getattr(self.module, f"k_{call}")
        signed = [value - 2**64 if value >= 2**63 else value for value in arguments]
        kernel[(1,)](ctx, *signed, out, num_warps=threads // 32, **options)
        import torch

        torch.cuda.synchronize()
