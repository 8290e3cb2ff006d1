"""Operations between PEs. Prints PASS."""

import numpy

import rushmem

with rushmem.init() as rt:
    me, n = rt.rank, rt.world_size
    following, previous = (me + 1) % n, (me - 1) % n
    inbox, message = rt.zeros((2, 1000), "float64"), rt.zeros(1000, "float64")
    numpy.from_dlpack(message)[:] = numpy.arange(1000) + me
    rt.put(inbox[1], message, following)
    rt.barrier()
    assert (numpy.from_dlpack(inbox)[1] == numpy.arange(1000) + previous).all()

    rt.get(inbox[0], message, following)
    assert (numpy.from_dlpack(inbox)[0] == numpy.arange(1000) + following).all()

    arrived = rt.zeros(1, "uint64")
    for step in range(1, 20):
        numpy.from_dlpack(message)[:] = step
        rt.put_signal(inbox[0], message, arrived, 1, following, op="add")
        rt.wait_until(arrived, ">=", step)
        assert (numpy.from_dlpack(inbox)[0] == step).all()
        rt.barrier()

    peer = inbox.peer(following)
    is_mapped = peer is not None
    if is_mapped:
        numpy.from_dlpack(peer)[0, :] = 100 + me
        rt.barrier()
        assert (numpy.from_dlpack(inbox)[0] == 100 + previous).all()
        try:
            rt.put(peer, inbox, following)
            raise SystemExit("a peer's copy was accepted")
        except rushmem.MisuseError:
            pass
    assert inbox.peer(me).address == inbox.address and inbox.peer(n) is None

    # Other processes cannot map the memory of a window, and with `peer_path=p2p` they would have to.
    if not is_mapped:
        mine = numpy.zeros(1000)
        window = rt.register(mine)
        rt.put(window, message, following)
        rt.barrier()
        assert (mine == 19).all()
        window.unregister()
    mapped = None if peer is None else numpy.from_dlpack(peer)

if mapped is not None:
    assert mapped.shape == (2, 1000) and mapped[0, 0] >= 100
print("PASS")
