"""Symmetric arrays of one PE, and their views."""

import gc

import numpy
import pytest

import rushmem

NUMPY_TYPES = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
def test_numpy_shares_memory_of_every_type(rt, dtype):
    array = rt.zeros((3, 4), dtype)
    assert (array.shape, array.dtype, array.ndim, array.size) == ((3, 4), dtype, 2, 12)
    assert array.nbytes == 12 * numpy.dtype(dtype).itemsize
    view, other = numpy.from_dlpack(array), numpy.asarray(array)
    assert view.dtype == other.dtype == numpy.dtype(dtype) and view.shape == (3, 4)
    assert not view.any()
    view[2, 1] = 7
    assert other[2, 1] == 7 and view.ctypes.data == other.ctypes.data == array.address


@pytest.mark.parametrize("dtype", [numpy.float32, numpy.dtype("float32"), "float32", "torch.float32"])
def test_types_have_several_spellings(rt, dtype):
    assert rt.empty(2, dtype).dtype == "float32"


def test_python_types_are_those_of_numpy(rt):
    assert rt.zeros(1, float).dtype == "float64" and rt.zeros(1, int).dtype == "int64"


def test_bfloat16_exists_by_name(rt):
    array = rt.zeros(8, "bfloat16")
    assert array.nbytes == 16
    assert not hasattr(array, "__array_interface__")


@pytest.mark.parametrize("dtype", ["float31", "complex64", numpy.dtype(">f4")])
def test_unknown_types_are_refused(rt, dtype):
    with pytest.raises((TypeError, ValueError), match="float31|complex64|byte order"):
        rt.zeros(1, dtype)


def test_parts_share_memory(rt):
    array = rt.zeros((4, 3), "int32")
    numpy.from_dlpack(array)[:] = numpy.arange(12).reshape(4, 3)
    assert array[1:3].shape == (2, 3) and array[-1].shape == (3,) and array[1][2].shape == ()
    assert numpy.from_dlpack(array[1:3]).tolist() == [[3, 4, 5], [6, 7, 8]]
    assert numpy.from_dlpack(array[-1]).tolist() == [9, 10, 11]
    assert numpy.from_dlpack(array[1][2]).item() == 5
    assert array[4:].shape == (0, 3) and len(array) == 4


@pytest.mark.parametrize(("index", "error"), [(4, IndexError), (-5, IndexError), (slice(0, 4, 2), ValueError), ("a", TypeError)])
def test_other_indices_are_refused(rt, index, error):
    with pytest.raises(error):
        rt.zeros(4)[index]


def test_empty_arrays_work(rt):
    array = rt.zeros((0, 5), "float64")
    assert array.nbytes == 0 and numpy.from_dlpack(array).shape == (0, 5)
    array.free()


def test_freeing_an_array_with_views_names_them(rt):
    array = rt.zeros(4, "float32")
    views = [numpy.from_dlpack(array), numpy.asarray(array[1:])[1:]]
    with pytest.raises(rushmem.MisuseError, match=r"DLPack, shape \(4,\), float32, array interface, shape \(3,\), float32"):
        array.free()
    views.clear()
    gc.collect()
    array.free()
    with pytest.raises(rushmem.MisuseError, match="has been freed"):
        numpy.from_dlpack(array)
    with pytest.raises(rushmem.MisuseError, match="has been freed"):
        rt.put(array, array, 0)


def test_freed_memory_can_be_allocated_again(rt):
    for _ in range(4):
        rt.zeros(12 << 20, "uint8").free()
    with pytest.raises(rushmem.Error, match="no room") as error:
        rt.zeros(1 << 30, "uint8")
    assert error.value.kind == "out_of_memory"


def test_parts_are_not_freed(rt):
    array = rt.zeros(4)
    with pytest.raises(rushmem.MisuseError, match="free the whole array"):
        array[1:].free()


def test_views_outlive_the_runtime():
    with rushmem.init() as rt:
        array = rt.zeros(1 << 20, "float32")
        view = numpy.from_dlpack(array)
        view[:] = 3
    del array, rt
    gc.collect()
    assert view.sum() == 3 << 20
    with rushmem.init() as rt:
        assert not numpy.from_dlpack(rt.zeros(1 << 20, "float32")).any()
    assert view[-1] == 3


def test_unused_capsules_release_their_view(rt):
    array = rt.zeros(4)
    array.__dlpack__()
    array.__dlpack__(max_version=(1, 1))
    array.free()


def test_dlpack_refuses_copies_and_other_devices(rt):
    array = rt.zeros(4)
    assert array.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError):
        array.__dlpack__(copy=True)
    with pytest.raises(BufferError):
        array.__dlpack__(dl_device=(2, 0))


def test_windows_use_the_memory_of_numpy(rt):
    mine = numpy.arange(16.0).reshape(4, 4)
    window = rt.register(mine)
    assert isinstance(window, rushmem.Array) and window.shape == (4, 4) and window.address == mine.ctypes.data
    copy = rt.zeros((4, 4), "float64")
    rt.put(copy, window, 0)
    rt.quiet()
    assert (numpy.from_dlpack(copy) == mine).all()
    rt.put(window[0], copy[3], 0)
    rt.quiet()
    assert mine[0].tolist() == [12, 13, 14, 15]
    view = numpy.from_dlpack(window)
    with pytest.raises(rushmem.MisuseError, match="views"):
        window.unregister()
    with pytest.raises(rushmem.MisuseError, match="unregister"):
        window.free()
    del view
    window.unregister()
    with pytest.raises(rushmem.MisuseError):
        window.unregister()
    rt.register(mine).unregister()


def test_views_of_windows_keep_their_memory():
    with rushmem.init() as rt:
        view = numpy.from_dlpack(rt.register(numpy.full(1 << 16, 5.0)))
    gc.collect()
    assert (view == 5.0).all()


def test_unsuitable_memory_is_refused(rt):
    with pytest.raises(rushmem.MisuseError, match="row-major"):
        rt.register(numpy.zeros((4, 4)).T[:2])
    with pytest.raises(TypeError, match="__dlpack__"):
        rt.register([1, 2])
    with pytest.raises(rushmem.MisuseError):
        rt.register(numpy.zeros(4, "complex64"))
