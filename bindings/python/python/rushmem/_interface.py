"""The array interface of NumPy for symmetric memory."""

import ctypes


def array_interface(address, nbytes, shape, typestr, lease):
    """Describe memory to NumPy. The lease is dropped with the last array that uses the memory."""
    # NumPy keeps the object in `data` alive, but not the dictionary. An instance of ctypes can carry the lease.
    memory = (ctypes.c_char * nbytes).from_address(address)
    memory._lease = lease
    return {"version": 3, "shape": shape, "typestr": typestr, "data": memory}
