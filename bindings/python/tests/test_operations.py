"""Operations and collective calls of one PE, and invalid arguments."""

import sys
import threading
import time
import types

import numpy
import pytest

import rushmem


def test_puts_and_gets_copy(rt):
    a, b = rt.zeros(8, "int64"), rt.zeros(8, "int64")
    numpy.from_dlpack(a)[:] = range(8)
    rt.put(b[4:], a[:4], 0)
    rt.fence()
    rt.get(b[:4], a[4:], 0)
    rt.quiet()
    assert numpy.from_dlpack(b).tolist() == [4, 5, 6, 7, 0, 1, 2, 3]


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize(("cmp", "value"), [("==", 7), ("!=", 6), (">", 6), (">=", 7), ("<", 8), ("<=", 7)])
def test_waits_compare(rt, dtype, cmp, value):
    word = rt.zeros(1, dtype)
    numpy.from_dlpack(word)[0] = 7
    rt.wait_until(word, cmp, value)


def test_signals_set_and_add(rt):
    signal, data = rt.zeros(1, "uint64"), rt.zeros(4)
    rt.signal(signal, 5, 0)
    rt.put_signal(data, data, signal, 2, 0, op="add")
    rt.wait_until(signal, "==", 7)


def test_collective_calls_of_one_pe_copy(rt):
    src, dst = rt.zeros(4, "float32"), rt.zeros(4, "float32")
    for call in (rt.broadcast, rt.all_gather, rt.all_to_all, rt.all_reduce, rt.reduce_scatter):
        numpy.from_dlpack(src)[:] = numpy.random.default_rng(1).random(4)
        numpy.from_dlpack(dst)[:] = 0
        call(dst, src)
        assert (numpy.from_dlpack(dst) == numpy.from_dlpack(src)).all(), call


def test_invalid_arguments_are_value_errors(rt):
    a, b, c = rt.zeros(4), rt.zeros(5), rt.zeros(4, "int32")
    for call in (
        lambda: rt.put(a, b, 0),
        lambda: rt.put(a, c, 0),
        lambda: rt.put(a, a, 1),
        lambda: rt.wait_until(a, "==", 0),
        lambda: rt.wait_until(c, "==", 0),
        lambda: rt.wait_until(c[0], "=", 0),
        lambda: rt.signal(c[0], 0, 0),
        lambda: rt.all_reduce(a, a, "mean"),
        lambda: rt.all_gather(b, a),
        lambda: rushmem.init(no_such_setting=1),
        lambda: rushmem.init(id="00", rank=0, world_size=1),
    ):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(rushmem.MisuseError) as error:
        rt.put(a, a, 7)
    assert error.value.kind == "invalid_value" and ".rs" not in str(error.value)


def test_bitwise_reductions_of_floats_are_refused(rt):
    a, b = rt.zeros(4), rt.zeros(4)
    with pytest.raises(rushmem.Error):
        rt.all_reduce(a, b, "xor")


def test_streams_need_a_gpu(rt):
    class Stream:
        cuda_stream = 1

    with pytest.raises(rushmem.Error) as error:
        rt.barrier(stream=Stream())
    assert error.value.kind == "not_supported"
    with pytest.raises(TypeError, match="cuda_stream"):
        rt.barrier(stream="main")


def test_deadlines_are_timeouts():
    with rushmem.init(timeout="200ms") as rt:
        with pytest.raises(TimeoutError) as error:
            rt.wait_until(rt.zeros(1, "uint64"), "==", 1)
        assert isinstance(error.value, rushmem.DeadlineError) and isinstance(error.value, rushmem.Error)


def test_waits_release_the_gil(rt):
    word = rt.zeros(1, "uint64")
    waiter = threading.Thread(target=rt.wait_until, args=(word, ">=", 3))
    waiter.start()
    for _ in range(3):
        time.sleep(0.05)
        rt.signal(word, 1, 0, op="add")
    waiter.join(10)
    assert not waiter.is_alive()


def test_runtime_describes_itself(rt):
    assert (rt.rank, rt.my_pe, rt.world_size, rt.n_pes) == (0, 0, 1, 1)
    assert not rt.is_gpu and rt.device is None and rt.machine in repr(rt)
    context = rt.context
    assert context > 0 and rt.context == context
    rt.check()


def test_a_process_has_one_runtime_at_a_time(rt):
    with pytest.raises(rushmem.MisuseError, match="already been initialized"):
        rushmem.init()


def test_finalized_runtimes_are_refused():
    rt = rushmem.init()
    array = rt.zeros(4)
    rt.finalize()
    rt.finalize()
    for call in (rt.barrier, array.free, lambda: rt.zeros(1), lambda: rt.context):
        with pytest.raises(rushmem.MisuseError, match="finalized"):
            call()


def test_teams_of_one_pe(rt):
    assert (rt.world.rank, rt.world.size, rt.world.pes) == (0, 1, [0])
    with rt.world.split_strided(0, 1, 1) as team:
        rt.barrier(team)
        rt.sync(team=team)
    with pytest.raises(rushmem.Error):
        rt.barrier(team)
    with pytest.raises(rushmem.MisuseError):
        rt.world.destroy()


def test_an_exception_aborts_and_propagates():
    with pytest.raises(KeyError, match="lost key"):
        with rushmem.init():
            raise KeyError("lost key")
    with rushmem.init() as rt:
        rt.barrier()


def test_a_group_of_torch_starts_a_job(monkeypatch):
    group, sent = object(), []
    dist = types.ModuleType("torch.distributed")
    dist.get_rank = dist.get_global_rank = lambda *_: 0
    dist.get_world_size = lambda _: 1
    dist.broadcast_object_list = lambda ids, src, group: sent.append((ids[0], src, group))
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    monkeypatch.setitem(sys.modules, "torch.distributed", dist)
    sys.modules["torch"].distributed = dist
    with rushmem.init(group=group) as rt:
        rt.barrier()
    [(id, src, given)] = sent
    assert len(id) == 128 and src == 0 and given is group
    with pytest.raises(ValueError, match="only one"):
        rushmem.init(group=group, id=id)


def test_settings_and_ids_start_a_job():
    id = rushmem.unique_id()
    with rushmem.init("cpu", id=id, rank=0, world_size=1, heap="1MiB", connect="eager") as rt:
        rt.barrier()
        with pytest.raises(rushmem.Error):
            rt.zeros(2 << 20, "uint8")
    with pytest.raises(rushmem.MisuseError, match="together"):
        rushmem.init(id=id)
