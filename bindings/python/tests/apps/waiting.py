"""Waits for a signal that nobody sends, until it is interrupted."""

import signal

import rushmem

# A shell starts programs in the background with SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

try:
    with rushmem.init(timeout="300s") as rt:
        word = rt.zeros(1, "uint64")
        print("WAITS", flush=True)
        rt.wait_until(word, "==", 1)
except KeyboardInterrupt:
    print("INTERRUPTED", flush=True)
