"""Compiles Triton kernels that call Rushmem, without a GPU, and reads what became of the calls in the PTX."""

import re

import pytest

triton = pytest.importorskip("triton")

import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import rushmem.triton as rt


def ptx(kernel, signature, constants=None, capability=90, **options):
    """Returns the PTX of a kernel."""
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants or {})
    options |= rt.compile_options(capability)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options).asm["ptx"]


def entry(text):
    """Returns the lines of the kernel itself, without functions that it calls."""
    return text[text.index(".visible .entry") :]


@rt.jit
def every_call(ctx, data, words, counts, signal, out, n, pe, team):
    status = rt.putmem_block(ctx, data, data, n, pe)
    status += rt.putmem_nbi_block(ctx, data, data, n, pe)
    status += rt.getmem_block(ctx, data, data, n, pe)
    status += rt.getmem_nbi_block(ctx, data, data, n, pe)
    status += rt.put_block(ctx, data, data, n, pe)
    status += rt.put_nbi_block(ctx, data, data, n, pe)
    status += rt.get_block(ctx, data, data, n, pe)
    status += rt.get_nbi_block(ctx, data, data, n, pe)
    status += rt.putmem_signal_block(ctx, data, data, n, signal, 1, rt.SIGNAL_SET, pe)
    status += rt.putmem_signal_nbi_block(ctx, data, data, n, signal, 1, rt.SIGNAL_ADD, pe)
    status += rt.put_signal_block(ctx, data, data, n, signal, 1, rt.SIGNAL_SET, pe)
    status += rt.put_signal_nbi_block(ctx, data, data, n, signal, 1, rt.SIGNAL_ADD, pe)
    status += rt.signal_op_block(ctx, signal, 1, rt.SIGNAL_ADD, pe)
    status += rt.signal_wait_until_block(ctx, signal, rt.CMP_GE, 1)
    status += rt.signal_wait_until_from_block(ctx, signal, rt.CMP_GE, 1, pe)
    status += rt.wait_until_block(ctx, words, rt.CMP_NE, 0)
    status += rt.wait_until_from_block(ctx, words, rt.CMP_NE, 0, pe)
    status += rt.is_lost_block(ctx, pe)
    status += rt.test_block(ctx, words, rt.CMP_NE, 0)
    status += rt.atomic_set_block(ctx, words, 1, pe)
    status += rt.atomic_add_block(ctx, words, 1, pe)
    status += rt.atomic_and_block(ctx, words, 1, pe)
    status += rt.atomic_or_block(ctx, words, 1, pe)
    status += rt.atomic_xor_block(ctx, words, 1, pe)
    status += rt.fence_block(ctx)
    status += rt.quiet_block(ctx)
    tl.store(out, status)
    found = rt.atomic_fetch_block(ctx, counts, pe)
    found += rt.atomic_swap_block(ctx, counts, 1, pe)
    found += rt.atomic_compare_swap_block(ctx, counts, 0, 1, pe)
    found += rt.atomic_fetch_add_block(ctx, counts, 1, pe)
    found += rt.atomic_fetch_and_block(ctx, counts, 1, pe)
    found += rt.atomic_fetch_or_block(ctx, counts, 1, pe)
    found += rt.atomic_fetch_xor_block(ctx, counts, 1, pe)
    found += rt.signal_fetch_block(ctx, signal).to(tl.int64)
    tl.store(out + 1, found.to(tl.int32))
    lanes = tl.arange(0, 128)
    rt.p(ctx, data + lanes, lanes.to(tl.float32), pe)
    tl.store(data + lanes, rt.g(ctx, data + lanes, pe))
    tl.store(rt.peer_ptr(ctx, data, pe), 1.0)
    members = rt.team_my_pe(ctx, team) + rt.team_n_pes(ctx, team) + rt.team_translate_pe(ctx, team, 0, rt.TEAM_WORLD)
    tl.store(out + 2, members + rt.my_pe(ctx) + rt.n_pes(ctx))


@rt.jit
def every_collective(ctx, data, out, n, team):
    status = rt.broadcast_block(ctx, team, data, data, n, 0)
    status += rt.fcollect_block(ctx, team, data, data, n)
    status += rt.alltoall_block(ctx, team, data, data, n)
    status += rt.reduce_block(ctx, team, data, data, n, rt.SUM)
    status += rt.reduce_scatter_block(ctx, team, data, data, n, rt.MAX)
    status += rt.barrier_all_block(ctx) + rt.sync_all_block(ctx)
    status += rt.barrier_block(ctx, team) + rt.team_sync_block(ctx, rt.TEAM_WORLD)
    tl.store(out, status)


CALLS = {
    "ctx": "i64", "data": "*fp32", "words": "*i32", "counts": "*i64", "signal": "*u64", "out": "*i32",
    "n": "i32", "pe": "i32", "team": "i64",
}  # fmt: skip
COLLECTIVES = {"ctx": "i64", "data": "*bf16", "out": "*i32", "n": "i32", "team": "i64"}


@pytest.mark.parametrize("capability, warps", [(80, 4), (90, 1), (90, 8), (100, 4)])
def test_every_call_compiles(capability, warps):
    text = ptx(every_call, CALLS, capability=capability, num_warps=warps)
    text += ptx(every_collective, COLLECTIVES, capability=capability, num_warps=warps)
    remaining = re.findall(r"^\.(?:visible )?\.?func\s+(?:\([^)]*\)\s*)?(rushmem_\w+)", text, re.MULTILINE)
    assert remaining == [], "a call was not inlined"


def test_every_function_of_the_module_is_compiled_above():
    names = (every_call.src + every_collective.src, rt.__all__)
    missing = [name for name in names[1] if name.islower() and f"rt.{name}(" not in names[0]]
    assert missing == ["after", "jit", "library"]


def test_the_target_decides_the_fences():
    assert "fence.acquire" not in ptx(every_call, CALLS, capability=80)
    assert "fence.acquire" in ptx(every_call, CALLS, capability=90)


@rt.jit
def add_to_many(ctx, words, out, pe):
    tl.store(out, rt.atomic_add_block(ctx, words + tl.arange(0, 32), 1, pe))


@rt.jit
def wrong_type(ctx, words, out, pe):
    tl.store(out, rt.atomic_add_block(ctx, words, 1, pe))


@rt.jit
def float_for_a_pe(ctx, words, out, pe):
    tl.store(out, rt.atomic_add_block(ctx, words, 1, 1.0))


def test_tensors_and_other_types_are_refused():
    signature = {"ctx": "i64", "words": "*i32", "out": "*i32", "pe": "i32"}
    with pytest.raises(Exception, match="takes scalars, not a tensor of shape"):
        ptx(add_to_many, signature)
    with pytest.raises(Exception, match="has no form for elements of type bf16"):
        ptx(wrong_type, signature | {"words": "*bf16"})
    with pytest.raises(Exception, match="a parameter of type int32 cannot be fp32"):
        ptx(float_for_a_pe, signature)


@triton.jit
def wait(ctx, signal):
    return rt.signal_wait_until_block(ctx, signal, rt.CMP_EQ, 1)


@rt.jit
def wait_in_loop(ctx, signal, out, k, SPECIALIZED: tl.constexpr, NESTED: tl.constexpr):
    total = 0
    for i in tl.range(k, warp_specialize=SPECIALIZED):
        if NESTED:
            total += wait(ctx, signal + i)
        else:
            total += rt.signal_wait_until_block(ctx, signal + i, rt.CMP_EQ, 1)
    tl.store(out, total)


@pytest.mark.parametrize("nested", [False, True])
def test_block_calls_in_warp_specialized_loops_are_refused(nested):
    signature = {
        "ctx": "i64", "signal": "*u64", "out": "*i32", "k": "i32", "SPECIALIZED": "constexpr", "NESTED": "constexpr",
    }  # fmt: skip
    ptx(wait_in_loop, signature, {"SPECIALIZED": False, "NESTED": nested})
    with pytest.raises(triton.CompilationError) as error:
        ptx(wait_in_loop, signature, {"SPECIALIZED": True, "NESTED": nested})
    causes = [error.value]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    assert any("cannot be in a warp-specialized loop" in str(cause) for cause in causes)


@rt.jit
def consume(ctx, signal, received, weights, out, k, ORDERED: tl.constexpr):
    lanes = tl.arange(0, 64)
    total = tl.zeros((64, 64), dtype=tl.float32)
    for i in range(k):
        status = rt.signal_wait_until_block(ctx, signal + i, rt.CMP_EQ, 1)
        at = received + i * 4096
        if ORDERED:
            at = rt.after(at, status)
        block = tl.load(at + lanes[:, None] * 64 + lanes[None, :])
        other = tl.load(weights + i * 4096 + lanes[:, None] * 64 + lanes[None, :])
        total = tl.dot(block, other, total)
    tl.store(out + lanes[:, None] * 64 + lanes[None, :], total)


def test_no_load_of_received_data_precedes_its_wait(capfd):
    signature = {
        "ctx": "i64", "signal": "*u64", "received": "*fp16", "weights": "*fp16", "out": "*fp32", "k": "i32",
        "ORDERED": "constexpr",
    }  # fmt: skip
    aligned = {(index,): [["tt.divisibility", 16]] for index in range(2, 5)}
    early = {}
    for ordered in (False, True):
        source = ASTSource(fn=consume, signature=signature, constexprs={"ORDERED": ordered}, attrs=aligned)
        options = {"num_stages": 3} | rt.compile_options(90)
        try:
            ir = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ttgir"]
        except RuntimeError:
            # Before 3.7, Triton cannot pipeline a loop with waits on which loads depend, and says so.
            assert ordered and "doesn't know how to predicate this op" in capfd.readouterr().err
            return
        assert "async_copy_global_to_local" in ir, "the loop is not pipelined"
        early[ordered] = ir[: ir.index("rushmem_device_signal_wait_until_block")].count("async_copy_global_to_local")
    assert early[True] == 0 < early[False], early


def test_kernels_for_gpus_before_hopper_are_optimized_less(monkeypatch):
    assert rt.compile_options(80)["ptx_options"].split() == ["--opt-level", "2"]
    assert "ptx_options" not in rt.compile_options(90)
    monkeypatch.setattr(triton.knobs.nvidia, "disable_ptxas_opt", True)
    assert "ptx_options" not in rt.compile_options(80)
