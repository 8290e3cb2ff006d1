"""Rushmem calls for Triton kernels.

Decorate a kernel with :func:`jit` and pass it ``Runtime.context`` as an argument. Names follow NVSHMEM: ``_block``
functions are calls of the whole program, whatever its number of warps.

>>> @rushmem.triton.jit
... def send(ctx, dst, src, n, signal, pe):
...     rushmem.triton.put_signal_block(ctx, dst, src, n, signal, 1, rushmem.triton.SIGNAL_SET, pe)

Triton runs a scalar call once in every thread, and an elementwise call once for every element and sometimes several
times. So every call with an effect is a block call that takes scalars: one thread acts and all get its result. The
elementwise calls, :func:`p`, :func:`g` and :func:`peer_ptr`, do no harm if repeated.

Block calls return a status: 0, or the same error code in all threads. All but waits begin with a barrier of the program.
A block call must be reached by the whole program, which has one CTA, so one in a warp-specialized loop is a compile-time
error; in a helper function, only if the loop is the first place that calls it. Until the program's next block call, an elementwise call may still be repeated.

Triton's pipeliner moves loads above earlier waits. Pass every pointer to received data through :func:`after`.
"""

import functools
import sys

import triton
import triton.language as tl
from triton.language import core

from rushmem import _device

__all__ = [
    "CMP_EQ", "CMP_GE", "CMP_GT", "CMP_LE", "CMP_LT", "CMP_NE", "CMP_REACHED",
    "MAX", "MIN", "PROD", "SUM", "SIGNAL_ADD", "SIGNAL_SET", "TEAM_WORLD",
    "after", "alltoall_block", "atomic_add_block", "atomic_and_block", "atomic_compare_swap_block",
    "atomic_fetch_add_block", "atomic_fetch_and_block", "atomic_fetch_block", "atomic_fetch_or_block",
    "atomic_fetch_xor_block", "atomic_or_block", "atomic_set_block", "atomic_swap_block", "atomic_xor_block",
    "barrier_all_block", "barrier_block", "broadcast_block", "fcollect_block", "fence_block", "g", "get_block",
    "get_nbi_block", "getmem_block", "getmem_nbi_block", "is_lost_block", "jit", "library", "my_pe", "n_pes", "p",
    "peer_ptr", "put_block", "put_nbi_block", "put_signal_block", "put_signal_nbi_block", "putmem_block", "putmem_nbi_block",
    "putmem_signal_block", "putmem_signal_nbi_block", "quiet_block", "reduce_block", "reduce_scatter_block",
    "signal_fetch_block", "signal_op_block", "signal_wait_until_block", "signal_wait_until_from_block",
    "sync_all_block", "team_my_pe", "team_n_pes", "team_sync_block", "team_translate_pe", "test_block",
    "wait_until_block", "wait_until_from_block",
]  # fmt: skip

CMP_EQ = tl.constexpr(0)
CMP_NE = tl.constexpr(1)
CMP_GT = tl.constexpr(2)
CMP_GE = tl.constexpr(3)
CMP_LT = tl.constexpr(4)
CMP_LE = tl.constexpr(5)
CMP_REACHED = tl.constexpr(6)
SIGNAL_SET = tl.constexpr(0)
SIGNAL_ADD = tl.constexpr(1)
SUM = tl.constexpr(0)
PROD = tl.constexpr(1)
MIN = tl.constexpr(2)
MAX = tl.constexpr(3)
TEAM_WORLD = tl.constexpr(1 << 32)

# Registers of a multiprocessor.
_REGISTERS = 65536

# Names of element types in the functions of the C ABI, and their numbers in reductions.
_WORDS = {
    "int32": "uint32", "uint32": "uint32", "int64": "uint64", "uint64": "uint64", "fp32": "float", "fp64": "double",
}  # fmt: skip
_CELLS = _WORDS | {"int8": "uint8", "uint8": "uint8", "int1": "uint8", "int16": "uint16", "uint16": "uint16"}
_ELEMENTS = {
    "uint8": 0, "int8": 1, "uint16": 2, "int16": 3, "uint32": 4, "int32": 5, "uint64": 6, "int64": 7,
    "fp16": 8, "bf16": 9, "fp32": 10, "fp64": 11,
}  # fmt: skip
_TYPES = {
    "i8": core.uint8, "i16": core.uint16, "i32": core.int32, "i64": core.int64,
    "float": core.float32, "double": core.float64,
}  # fmt: skip


@functools.cache
def _functions():
    """Returns result type and parameter types of every device function, as the library exports them."""
    types = lambda values: tuple(_TYPES[value["llvm"]] for value in values)
    table = _device.functions().values()
    return {each["name"]: (types([each["returns"]])[0], types(each["parameters"])) for each in table}


def library(capability=None):
    """Returns the path of the device functions for GPUs of a compute capability, such as 90; by default the current GPU's."""
    return _device.library(_capability() if capability is None else capability, "ll")


def compile_options(capability=None):
    """Returns the options with which ``triton.compile`` links a kernel with the device functions.

    ``capability`` is as in ``library``. Kernels of ``jit`` have these options already.
    """
    if capability is None:
        capability = _capability()
    options = {"extern_libs": {"rushmem": library(capability)}}
    # At its highest level, ptxas of CUDA 12.9 and 13.0 crashes on large kernels with calls for GPUs before Hopper.
    if capability < 90 and not triton.knobs.nvidia.disable_ptxas_opt:
        options["ptx_options"] = _joined("--opt-level 2", getattr(triton.knobs.nvidia, "ptxas_options", None))
    return options


def _joined(*options):
    """Joins options of ptxas, of which later ones replace earlier ones."""
    return " ".join(filter(None, options))


def _capability():
    return triton.runtime.driver.active.get_current_target().arch


class _Kernel(triton.runtime.JITFunction):
    """A Triton kernel that is linked with the device functions."""

    def run(self, *args, **options):
        if options.get("num_ctas", 1) != 1:
            raise ValueError("a block call is one of all threads of a CTA, so a program can have only one: num_ctas=1")
        needed = compile_options()
        libraries = dict(options.get("extern_libs", {})) | needed["extern_libs"]
        if "ptx_options" in needed:
            needed["ptx_options"] = _joined(needed["ptx_options"], options.pop("ptx_options", None))
        options = needed | options | {"extern_libs": libraries}
        # Otherwise ptxas saves registers for more programs at a time, and spills around the rare calls of functions.
        # Triton adds warps for warp-specialized loops.
        if "warp_specialize" not in self.src:
            options.setdefault("maxnreg", min(255, _REGISTERS // (32 * options.get("num_warps", 4))))
        return super().run(*args, **options)


def jit(fn=None, **options):
    """Like ``triton.jit``, for kernels that call this module.

    Kernels whose programs wait for other programs of the same launch also need ``launch_cooperative_grid=True`` where
    they are launched.
    """
    if fn is None:
        return functools.partial(jit, **options)
    return _Kernel(fn, **options)


def _scalar(call, value, semantic):
    value = core._unwrap_if_constexpr(value)
    tensor = semantic.to_tensor(value)
    if tensor.type.is_block():
        raise ValueError(f"{call} is a call of the whole program and takes scalars, not a tensor of shape {tensor.shape}")
    return tensor


def _typed(value, dtype, semantic):
    """Converts a tensor to the type of a parameter. Bits of unsigned and signed integers stay the same."""
    tensor = semantic.to_tensor(core._unwrap_if_constexpr(value))
    found = tensor.type.scalar
    if found == dtype:
        return tensor
    if found.is_ptr():
        return semantic.cast(tensor, dtype)
    if found.is_floating() != dtype.is_floating():
        raise TypeError(f"a parameter of type {dtype} cannot be {found}")
    same_size = found.primitive_bitwidth == dtype.primitive_bitwidth
    return semantic.bitcast(tensor, dtype) if same_size else semantic.cast(tensor, dtype)


def _extern(name, args, semantic, pure=False):
    result, parameters = _functions()[name]
    if len(args) != len(parameters):
        raise TypeError(f"{name} takes {len(parameters)} arguments, not {len(args)}")
    args = [_typed(arg, dtype, semantic) for arg, dtype in zip(args, parameters)]
    return core.extern_elementwise(
        "", "", args, {parameters: (name, result)}, is_pure=pure, _semantic=semantic
    )


def _refuse_specialized_loop(call):
    """Raises if Triton is generating code of a warp-specialized loop, where only some warps would reach the call.

    Only the stack of Triton's code generator shows the loops around a call, including those around a function that makes
    it. Triton generates such a function once, so the first place that calls it decides.
    """
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "visit_For" and frame.f_locals.get("warp_specialize"):
            raise ValueError(f"{call} is a call of the whole program, and cannot be in a warp-specialized loop")
        frame = frame.f_back


def _block(name, args, semantic):
    """Emits a block call, whose arguments must be scalars."""
    _refuse_specialized_loop(name)
    args = [_scalar(name, arg, semantic) for arg in args]
    return _extern(f"rushmem_device_{name}", args, semantic)


def _element(call, pointer, semantic):
    """Returns the element type of a pointer."""
    pointer = semantic.to_tensor(core._unwrap_if_constexpr(pointer))
    if not pointer.type.scalar.is_ptr():
        raise TypeError(f"{call} needs a pointer, to know the type of the elements")
    return pointer.type.scalar.element_ty


def _prefix(call, pointer, names, semantic):
    element = _element(call, pointer, semantic)
    if element.name not in names:
        raise TypeError(f"{call} has no form for elements of type {element.name}: use {', '.join(names)}")
    return names[element.name]


def _bytes(call, pointer, n, semantic):
    size = max(_element(call, pointer, semantic).primitive_bitwidth // 8, 1)
    n = _typed(_scalar(call, n, semantic), core.int64, semantic)
    return semantic.mul(n, semantic.to_tensor(size), True)


@core.extern
def my_pe(ctx, _semantic=None):
    """Returns this PE's number."""
    return _extern("rushmem_device_my_pe", [ctx], _semantic, pure=True)


@core.extern
def n_pes(ctx, _semantic=None):
    """Returns the number of PEs of the job."""
    return _extern("rushmem_device_n_pes", [ctx], _semantic, pure=True)


@core.extern
def is_lost_block(ctx, pe, _semantic=None):
    """Returns 1 if ``pe`` was lost, and 0 if not. Only in jobs with live membership."""
    return _block("is_lost_block", [ctx, pe], _semantic)


@core.extern
def peer_ptr(ctx, pointer, pe, _semantic=None):
    """Returns where this PE can access ``pointer`` of ``pe`` by loads and stores, or null. Elementwise."""
    pointer = _semantic.to_tensor(pointer)
    there = _extern("rushmem_device_ptr", [ctx, pointer, pe], _semantic, pure=True)
    return _semantic.cast(there, pointer.type.scalar)


@core.extern
def team_my_pe(ctx, team, _semantic=None):
    """Returns this PE's number in a team, or -1 if it is not a member."""
    return _extern("rushmem_device_team_my_pe", [ctx, team], _semantic, pure=True)


@core.extern
def team_n_pes(ctx, team, _semantic=None):
    """Returns the number of members of a team, or -1 if this PE is not one of them."""
    return _extern("rushmem_device_team_n_pes", [ctx, team], _semantic, pure=True)


@core.extern
def team_translate_pe(ctx, source, pe, target, _semantic=None):
    """Returns the number in team ``target`` of the PE that has the number ``pe`` in ``source``, or -1."""
    return _extern("rushmem_device_team_translate_pe", [ctx, source, pe, target], _semantic, pure=True)


@core.extern
def p(ctx, dst, value, pe, _semantic=None):
    """Stores ``value`` in ``dst`` on ``pe``. Elementwise."""
    name = _prefix("p", dst, _CELLS, _semantic)
    value = _semantic.cast(_semantic.to_tensor(core._unwrap_if_constexpr(value)), _element("p", dst, _semantic))
    return _extern(f"rushmem_device_{name}_p", [ctx, dst, value, pe], _semantic)


@core.extern
def g(ctx, src, pe, _semantic=None):
    """Returns the value of ``src`` on ``pe``. Elementwise."""
    name = _prefix("g", src, _CELLS, _semantic)
    found = _extern(f"rushmem_device_{name}_g", [ctx, src, pe], _semantic)
    return _typed(found, _element("g", src, _semantic), _semantic)


@core.extern
def putmem_block(ctx, dst, src, nbytes, pe, _semantic=None):
    """Copies bytes from ``src`` to ``dst`` on ``pe``. ``src`` may change afterwards."""
    return _block("putmem_block", [ctx, dst, src, nbytes, pe], _semantic)


@core.extern
def putmem_nbi_block(ctx, dst, src, nbytes, pe, _semantic=None):
    """Starts copying bytes from ``src`` to ``dst`` on ``pe``. ``src`` must not change before ``quiet_block``."""
    return _block("putmem_nbi_block", [ctx, dst, src, nbytes, pe], _semantic)


@core.extern
def getmem_block(ctx, dst, src, nbytes, pe, _semantic=None):
    """Copies bytes from ``src`` on ``pe`` to ``dst``, and waits for them."""
    return _block("getmem_block", [ctx, dst, src, nbytes, pe], _semantic)


@core.extern
def getmem_nbi_block(ctx, dst, src, nbytes, pe, _semantic=None):
    """Starts copying bytes from ``src`` on ``pe`` to ``dst``, which is complete after ``quiet_block``."""
    return _block("getmem_nbi_block", [ctx, dst, src, nbytes, pe], _semantic)


@core.extern
def put_block(ctx, dst, src, n, pe, _semantic=None):
    """Like ``putmem_block``, for ``n`` elements of the pointers' type."""
    return _block("putmem_block", [ctx, dst, src, _bytes("put_block", src, n, _semantic), pe], _semantic)


@core.extern
def put_nbi_block(ctx, dst, src, n, pe, _semantic=None):
    """Like ``putmem_nbi_block``, for ``n`` elements of the pointers' type."""
    return _block("putmem_nbi_block", [ctx, dst, src, _bytes("put_nbi_block", src, n, _semantic), pe], _semantic)


@core.extern
def get_block(ctx, dst, src, n, pe, _semantic=None):
    """Like ``getmem_block``, for ``n`` elements of the pointers' type."""
    return _block("getmem_block", [ctx, dst, src, _bytes("get_block", dst, n, _semantic), pe], _semantic)


@core.extern
def get_nbi_block(ctx, dst, src, n, pe, _semantic=None):
    """Like ``getmem_nbi_block``, for ``n`` elements of the pointers' type."""
    return _block("getmem_nbi_block", [ctx, dst, src, _bytes("get_nbi_block", dst, n, _semantic), pe], _semantic)


@core.extern
def putmem_signal_block(ctx, dst, src, nbytes, signal, value, op, pe, _semantic=None):
    """Copies bytes from ``src`` to ``dst`` on ``pe``, and then applies ``value`` to ``signal`` there."""
    return _block("putmem_signal_block", [ctx, dst, src, nbytes, signal, value, op, pe], _semantic)


@core.extern
def putmem_signal_nbi_block(ctx, dst, src, nbytes, signal, value, op, pe, _semantic=None):
    """Like ``putmem_signal_block``, but ``src`` must not change before ``quiet_block``."""
    return _block("putmem_signal_nbi_block", [ctx, dst, src, nbytes, signal, value, op, pe], _semantic)


@core.extern
def put_signal_block(ctx, dst, src, n, signal, value, op, pe, _semantic=None):
    """Like ``putmem_signal_block``, for ``n`` elements of the pointers' type."""
    nbytes = _bytes("put_signal_block", src, n, _semantic)
    return _block("putmem_signal_block", [ctx, dst, src, nbytes, signal, value, op, pe], _semantic)


@core.extern
def put_signal_nbi_block(ctx, dst, src, n, signal, value, op, pe, _semantic=None):
    """Like ``putmem_signal_nbi_block``, for ``n`` elements of the pointers' type."""
    nbytes = _bytes("put_signal_nbi_block", src, n, _semantic)
    return _block("putmem_signal_nbi_block", [ctx, dst, src, nbytes, signal, value, op, pe], _semantic)


@core.extern
def signal_op_block(ctx, signal, value, op, pe, _semantic=None):
    """Applies ``value`` to ``signal`` on ``pe`` once. To announce data, call ``fence_block`` first."""
    return _block("signal_op_block", [ctx, signal, value, op, pe], _semantic)


@core.extern
def signal_fetch_block(ctx, signal, _semantic=None):
    """Returns the value of a signal on this PE."""
    return _block("signal_fetch_block", [ctx, signal], _semantic)


@core.extern
def signal_wait_until_block(ctx, signal, cmp, value, _semantic=None):
    """Waits for a signal on this PE. Pass pointers to the data that it announced through ``after`` with the status."""
    return _block("signal_wait_until_block", [ctx, signal, cmp, value], _semantic)


@core.extern
def signal_wait_until_from_block(ctx, signal, cmp, value, pe, _semantic=None):
    """Like ``signal_wait_until_block``, for a signal that ``pe`` updates. Fails if ``pe`` is lost."""
    return _block("signal_wait_until_from_block", [ctx, signal, cmp, value, pe], _semantic)


def _compare(call, args, semantic):
    """Emits a call that compares a word of this PE with a value."""
    ctx, word, cmp, value, *pe = args
    name = _prefix(call, word, {each: each for each in ("int32", "uint32", "int64", "uint64")}, semantic)
    value = semantic.cast(_scalar(call, value, semantic), _element(call, word, semantic))
    return _block(f"{name}_{call}", [ctx, word, cmp, value, *pe], semantic)


@core.extern
def wait_until_block(ctx, word, cmp, value, _semantic=None):
    """Waits until an integer on this PE compares with ``value`` as ``cmp`` says."""
    return _compare("wait_until_block", [ctx, word, cmp, value], _semantic)


@core.extern
def wait_until_from_block(ctx, word, cmp, value, pe, _semantic=None):
    """Like ``wait_until_block``, for a word that ``pe`` updates. Fails if ``pe`` is lost."""
    return _compare("wait_until_from_block", [ctx, word, cmp, value, pe], _semantic)


@core.extern
def test_block(ctx, word, cmp, value, _semantic=None):
    """Returns 1 if an integer on this PE compares with ``value`` as ``cmp`` says, and 0 if not."""
    return _compare("test_block", [ctx, word, cmp, value], _semantic)


def _atomic(call, args, semantic):
    """Emits an atomic call. ``args`` are the context, the word, the values and the PE."""
    ctx, word, *values, pe = args
    name, element = _prefix(call, word, _WORDS, semantic), _element(call, word, semantic)
    values = [semantic.cast(_scalar(call, value, semantic), element) for value in values]
    found = _block(f"{name}_{call}", [ctx, word, *values, pe], semantic)
    fetches = "fetch" in call or "swap" in call
    return _typed(found, element, semantic) if fetches else found


@core.extern
def atomic_fetch_block(ctx, word, pe, _semantic=None):
    """Returns the value of ``word`` on ``pe``."""
    return _atomic("atomic_fetch_block", [ctx, word, pe], _semantic)


@core.extern
def atomic_set_block(ctx, word, value, pe, _semantic=None):
    """Sets ``word`` on ``pe``."""
    return _atomic("atomic_set_block", [ctx, word, value, pe], _semantic)


@core.extern
def atomic_swap_block(ctx, word, value, pe, _semantic=None):
    """Sets ``word`` on ``pe`` once, and returns its old value."""
    return _atomic("atomic_swap_block", [ctx, word, value, pe], _semantic)


@core.extern
def atomic_compare_swap_block(ctx, word, compare, value, pe, _semantic=None):
    """Sets ``word`` on ``pe`` if it is equal to ``compare``. Returns its old value."""
    return _atomic("atomic_compare_swap_block", [ctx, word, compare, value, pe], _semantic)


@core.extern
def atomic_add_block(ctx, word, value, pe, _semantic=None):
    """Adds ``value`` to ``word`` on ``pe`` once."""
    return _atomic("atomic_add_block", [ctx, word, value, pe], _semantic)


@core.extern
def atomic_fetch_add_block(ctx, word, value, pe, _semantic=None):
    """Adds ``value`` to ``word`` on ``pe`` once, and returns its old value."""
    return _atomic("atomic_fetch_add_block", [ctx, word, value, pe], _semantic)


@core.extern
def atomic_and_block(ctx, word, value, pe, _semantic=None):
    """Sets ``word`` on ``pe`` to its bitwise and with ``value``."""
    return _atomic("atomic_and_block", [ctx, word, value, pe], _semantic)


@core.extern
def atomic_fetch_and_block(ctx, word, value, pe, _semantic=None):
    """Sets ``word`` on ``pe`` to its bitwise and with ``value``, and returns its old value."""
    return _atomic("atomic_fetch_and_block", [ctx, word, value, pe], _semantic)


@core.extern
def atomic_or_block(ctx, word, value, pe, _semantic=None):
    """Sets ``word`` on ``pe`` to its bitwise or with ``value``."""
    return _atomic("atomic_or_block", [ctx, word, value, pe], _semantic)


@core.extern
def atomic_fetch_or_block(ctx, word, value, pe, _semantic=None):
    """Sets ``word`` on ``pe`` to its bitwise or with ``value``, and returns its old value."""
    return _atomic("atomic_fetch_or_block", [ctx, word, value, pe], _semantic)


@core.extern
def atomic_xor_block(ctx, word, value, pe, _semantic=None):
    """Sets ``word`` on ``pe`` to its bitwise exclusive or with ``value``."""
    return _atomic("atomic_xor_block", [ctx, word, value, pe], _semantic)


@core.extern
def atomic_fetch_xor_block(ctx, word, value, pe, _semantic=None):
    """Sets ``word`` on ``pe`` to its bitwise exclusive or with ``value``, and returns its old value."""
    return _atomic("atomic_fetch_xor_block", [ctx, word, value, pe], _semantic)


@core.extern
def fence_block(ctx, _semantic=None):
    """Orders the program's earlier puts, signals and atomics to each PE before its later ones."""
    return _block("fence_block", [ctx], _semantic)


@core.extern
def quiet_block(ctx, _semantic=None):
    """Waits until all operations that the program has posted are complete."""
    return _block("quiet_block", [ctx], _semantic)


@core.extern
def barrier_all_block(ctx, _semantic=None):
    """Completes the program's operations, and waits until all PEs have made the call."""
    return _block("barrier_all_block", [ctx], _semantic)


@core.extern
def sync_all_block(ctx, _semantic=None):
    """Waits until all PEs have made the call, without completing operations."""
    return _block("sync_all_block", [ctx], _semantic)


@core.extern
def barrier_block(ctx, team, _semantic=None):
    """Completes the program's operations, and waits until all members of a team have made the call."""
    return _block("barrier_block", [ctx, team], _semantic)


@core.extern
def team_sync_block(ctx, team, _semantic=None):
    """Waits until all members of a team have made the call, without completing operations."""
    return _block("team_sync_block", [ctx, team], _semantic)


@core.extern
def broadcast_block(ctx, team, dst, src, n, root, _semantic=None):
    """Copies ``n`` elements from ``src`` of the member ``root`` to ``dst`` of every member."""
    nbytes = _bytes("broadcast_block", src, n, _semantic)
    return _block("broadcastmem_block", [ctx, team, dst, src, nbytes, root], _semantic)


@core.extern
def fcollect_block(ctx, team, dst, src, n, _semantic=None):
    """Concatenates ``n`` elements of every member in ``dst``, in team order."""
    nbytes = _bytes("fcollect_block", src, n, _semantic)
    return _block("fcollectmem_block", [ctx, team, dst, src, nbytes], _semantic)


@core.extern
def alltoall_block(ctx, team, dst, src, n, _semantic=None):
    """Sends the ``i``-th ``n`` elements of ``src`` to member ``i``."""
    nbytes = _bytes("alltoall_block", src, n, _semantic)
    return _block("alltoallmem_block", [ctx, team, dst, src, nbytes], _semantic)


@core.extern
def reduce_block(ctx, team, dst, src, n, op, _semantic=None):
    """Combines ``n`` elements of ``src`` of all members by ``op``, and stores the result in ``dst`` of each."""
    kind, nbytes = _prefix("reduce_block", src, _ELEMENTS, _semantic), _bytes("reduce_block", src, n, _semantic)
    return _block("reduce_block", [ctx, team, dst, src, nbytes, kind, op], _semantic)


@core.extern
def reduce_scatter_block(ctx, team, dst, src, n, op, _semantic=None):
    """Combines ``src`` of all members by ``op``. Each member receives its ``n`` elements of the result in ``dst``."""
    kind = _prefix("reduce_scatter_block", src, _ELEMENTS, _semantic)
    nbytes = _bytes("reduce_scatter_block", src, n, _semantic)
    return _block("reduce_scatter_block", [ctx, team, dst, src, nbytes, kind, op], _semantic)


@triton.jit
def after(pointer, status, align: tl.constexpr = 16):
    """Returns ``pointer`` for loads that must follow the call that returned ``status``.

    Triton moves loads out of the order of the source, above waits as well. A load from the returned pointer depends on
    the status, so it stays below the call. ``align`` is the alignment of the pointer in bytes, which Triton needs to
    load vectors and to pipeline.
    """
    zero = tl.inline_asm_elementwise("mov.b32 $0, 0;", "=r,r", [status], dtype=tl.int32, is_pure=True, pack=1)
    return tl.multiple_of(pointer + zero, align)
