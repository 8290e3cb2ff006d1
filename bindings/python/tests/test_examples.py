"""Compiles the kernels of the Triton and Numba examples, without a GPU, and reads what became of them."""

import importlib.util
import re
import subprocess
import sys
from types import ModuleType

import pytest
from conftest import EXAMPLES


def example(name, monkeypatch):
    """Returns an example as a module. Only its host code needs PyTorch."""
    if importlib.util.find_spec("torch") is None:
        monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled(kernel, types, constants, capability=90, **options):
    """Returns a kernel compiled for parameters of these types, with aligned pointers and sizes."""
    triton = pytest.importorskip("triton")
    import rushmem.triton as rt

    signature = {name: "constexpr" if name in constants else types[name] for name in kernel.arg_names}
    even = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(signature) if name != "ctx"}
    aligned = {at: value for at, value in even.items() if kernel.arg_names[at[0]] not in constants}
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    options |= rt.compile_options(capability)
    target = triton.backends.compiler.GPUTarget("cuda", capability, 32)
    return triton.compile(source, target=target, options=options)


def loads_only_vectors(ptx):
    """Returns whether 16-bit numbers are loaded 16 bytes at a time."""
    return "ld.global.v4.b32" in ptx and not re.search(r"ld\.global\S*\.b16", ptx)


@pytest.mark.parametrize("two_shot", [False, True])
def test_all_reduce_reads_the_peers_by_vectors_after_the_waits(two_shot, monkeypatch):
    pytest.importorskip("triton")
    kernel = example("triton_allreduce", monkeypatch).all_reduce
    types = {
        "ctx": "i64", "x": "*bf16", "y": "*bf16", "n": "i32", "staging": "*bf16", "capacity": "i32",
        "signals": "*u64", "epochs": "*i64",
    }  # fmt: skip
    constants = {"PES": 2, "TWO_SHOT": two_shot, "BLOCK": 4096}
    asm = compiled(kernel, types, constants, num_warps=8).asm
    assert loads_only_vectors(asm["ptx"])
    calls = re.findall(r"tt\.load .*bf16|signal_wait_until_block", asm["ttir"])
    assert calls[1] == "signal_wait_until_block", "only `x` is loaded before the wait"


@pytest.mark.parametrize("capability, product", [(80, "mma.sync"), (90, "wgmma.mma_async"), (100, "tcgen05.mma")])
def test_all_gather_gemm_is_pipelined_behind_its_waits(capability, product, monkeypatch, tmp_path):
    triton = pytest.importorskip("triton")
    kernel = example("triton_allgather_gemm", monkeypatch).all_gather_gemm
    types = {
        "ctx": "i64", "a": "*fp16", "gathered": "*fp16", "b": "*fp16", "c": "*fp16", "signals": "*u64",
        "epochs": "*i64", "M": "i32", "N": "i32", "K": "i32",
    }  # fmt: skip
    constants = {"PES": 2, "SENDERS": 16, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
    asm = compiled(kernel, types, constants, capability, num_warps=8, num_stages=3).asm
    assert product in asm["ptx"]
    assert re.search(r"cp\.async\.cg\.shared\.global \S.*, 0x10", asm["ptx"]), "copies are not of 16 bytes"
    copies = [at.start() for at in re.finditer("async_copy_global_to_local", asm["ttgir"])]
    assert len(copies) >= 6, "two matrices are not copied ahead of the loop and in it"
    assert asm["ttgir"].index("rushmem_device_signal_wait_until_block") < copies[0]
    # Swizzled tiles are in dynamic shared memory, which comes after the static words of block calls.
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(asm["cubin"])
    usage = subprocess.check_output([triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", cubin], text=True)
    assert int(re.search(r"SHARED:(\d+)", usage)[1]) % 1024 == 0, usage


@pytest.mark.parametrize("name", ["dispatch", "experts", "combine"])
def test_moe_kernels_compile(name, monkeypatch):
    pytest.importorskip("triton")
    kernel = getattr(example("triton_moe_dispatch", monkeypatch), name)
    pointers = {
        "bf16": ("x", "received", "returned", "out", "vectors"), "i64": ("order", "places", "epochs"),
        "i32": ("starts", "all_starts"), "u64": ("arrived", "done"), "fp32": ("weights",),
    }  # fmt: skip
    types = {each: f"*{element}" for element, names in pointers.items() for each in names}
    types |= {"ctx": "i64", "me": "i32", "ROWS": "i32", "TOKENS": "i32"}
    constants = {"PES": 2, "TOP_K": 4, "HIDDEN": 2048, "EXPERTS": 8}
    asm = compiled(kernel, types, {key: constants[key] for key in constants if key in kernel.arg_names}).asm
    assert name == "dispatch" or loads_only_vectors(asm["ptx"])


@pytest.mark.parametrize("name", ["send", "fetch"])
def test_kv_kernels_compile(name, monkeypatch):
    pytest.importorskip("triton")
    kernel = getattr(example("kv_torch", monkeypatch), name)
    types = {
        "ctx": "i64", "layer": "*bf16", "here": "*i32", "there": "*i32", "pages": "i32", "arrived": "*u64",
        "peer": "i32", "status": "*i32",
    }  # fmt: skip
    asm = compiled(kernel, types, {"PAGE": 32768}, num_warps=8).asm
    assert ("putmem_nbi_block" if name == "send" else "getmem_nbi_block") in asm["ttir"]


def test_numba_all_reduce_links(monkeypatch):
    cuda = pytest.importorskip("numba.cuda")
    core = pytest.importorskip("cuda.core")
    from numba import types

    module = example("numba_allreduce", monkeypatch)
    vector, matrix = types.float32[::1], types.float32[:, ::1]
    word = types.uint64
    signature = types.void(word, vector, vector, matrix, types.UniTuple(matrix, 2), word, word)
    ptx, _ = cuda.compile(module.all_reduce, signature, cc=(9, 0), abi="numba")
    kernel = core.ObjectCode.from_ptx(ptx.encode())
    library = core.ObjectCode.from_cubin(open(module.CUBIN, "rb").read())
    linked = core.Linker(kernel, library, options=core.LinkerOptions(arch="sm_90")).link("cubin")
    assert len(linked.code) > 0
