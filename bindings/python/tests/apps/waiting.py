"""Waits for a signal that nobody sends, until it is interrupted."""

import rushmem

try:
    with rushmem.init(timeout="300s") as rt:
        word = rt.zeros(1, "uint64")
        print("WAITS", flush=True)
        rt.wait_until(word, "==", 1)
except KeyboardInterrupt:
    print("INTERRUPTED", flush=True)
