"""Device functions for kernels in CuTe DSL.

Every function of the C ABI under its name there, without ``rushmem_device_``. As in CUDA C++, those without a suffix are
called by single threads, those with ``_warp`` or ``_block`` by all threads of a warp or block. Addresses are integers: a
symmetric array's ``address``, or a pointer's ``toint()``.

    import cutlass, cutlass.cute as cute
    import rushmem.cute as rc

    @cute.kernel
    def send(ctx: cutlass.Int64, word: cutlass.Int64, peer: cutlass.Int32):
        rc.uint64_atomic_fetch_add_block(ctx, word, 1, peer)
        rc.quiet_block(ctx)

CuTe compiles the functions into the kernel, for ``CUTE_DSL_ARCH`` or else the GPU of this machine.
"""

import functools
import inspect

import cutlass
from cutlass.base_dsl.env_manager import detect_gpu_arch
from cutlass.cute import BitCode, extern

from rushmem import _device

_PREFIX = "rushmem_device_"
_TYPES = {
    "i8": cutlass.Int8, "i16": cutlass.Int16, "i32": cutlass.Int32, "i64": cutlass.Int64,
    "float": cutlass.Float32, "double": cutlass.Float64,
}  # fmt: skip


def library(capability=None):
    """Returns the path of the device functions for GPUs of a compute capability, such as 90; by default CuTe's target."""
    if capability is None:
        capability = int("".join(filter(str.isdigit, detect_gpu_arch("CUTE_DSL"))))
    return _device.library(capability, "bc")


@functools.cache
def _declared(name):
    entry = _device.functions()[_PREFIX + name]
    types = {each["name"]: _TYPES[each["llvm"]] for each in entry["parameters"]}
    parameters = [inspect.Parameter(each, inspect.Parameter.POSITIONAL_ONLY, annotation=types[each]) for each in types]

    def prototype(*arguments): ...

    prototype.__signature__ = inspect.Signature(parameters, return_annotation=_TYPES[entry["returns"]["llvm"]])
    external = extern(name=_PREFIX + name, source=BitCode(library()))(prototype)

    def call(*arguments):
        if len(arguments) != len(types):
            raise TypeError(f"{name} takes {', '.join(types)}")
        # CuTe would choose the types of Python's numbers.
        typed = [to(each) if isinstance(each, (int, float)) else each for to, each in zip(types.values(), arguments)]
        return external(*typed)

    call.__name__, call.__doc__, call.__signature__ = name, entry["doc"], prototype.__signature__
    return call


def __getattr__(name):
    if _PREFIX + name not in _device.functions():
        raise AttributeError(f"no device function is called {name}")
    return _declared(name)


def __dir__():
    return [*globals(), *(name.removeprefix(_PREFIX) for name in _device.functions())]
