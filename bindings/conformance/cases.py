"""The conformance suite: calls of the device API and what they must do, for every kernel language.

Every PE runs each case at the same time, in one block. A case makes one call in all threads of the block. Its
arguments are numbers, expressions of ``me``, ``next``, ``previous`` and ``n``, or places in the arena of symmetric
memory, which holds ``WORDS`` words of 64 bits. Before a case, word ``i`` of PE ``p`` is ``word(p, i)`` in the first
half, the source, and 0 in the second half. Afterwards the host completes all operations and compares the results of the
threads and the second half.
"""

import struct
from dataclasses import dataclass, field

# Threads of the block, unless a case has its own number.
THREADS = 128
HALF = 512
WORDS = 2 * HALF

# First word of the second half, where all cases write.
OUT = HALF

WORLD = 1 << 32
EQ, NE, GT, GE, LT, LE = range(6)
SET, ADD = 0, 1
UINT32, INT32, UINT64, INT64, FLOAT, DOUBLE = 4, 5, 6, 7, 10, 11
SUM, PROD, MIN, MAX, AND, OR, XOR = range(7)
OUT_OF_RANGE, BAD_PE, WAIT_TIMEOUT, BAD_CONSTANT, BAD_REDUCTION = 7, 6, 11, 22, 19


def word(pe, i):
    """Returns the initial value of a word of the source."""
    return (pe + 1) << 32 | i + 1


def bits(name, value):
    """Returns the bits of a floating-point number of type ``name``."""
    number, word = ("<f", "<I") if name == "float" else ("<d", "<Q")
    return struct.unpack(word, struct.pack(number, value))[0]


@dataclass
class At:
    """The address of a word in the arena."""

    index: int


@dataclass
class Case:
    """A call, its result in each thread, and the words of the second half that it changes on each PE."""

    call: str
    arguments: tuple
    # The result of every thread, or a function that returns it from the PE's number and the number of PEs, or an address.
    returns: object = 0
    # Values by index of the word, relative to OUT, from the PE's number and the number of PEs.
    changes: object = field(default=lambda me, n: {})
    # Whether the call must fail, with its name in the error record.
    fails: bool = False
    # The results of all callers in any order, if they differ: of threads, of warps, or of the block.
    each: list = None
    # Words of the second half that the host sets before the call, and while it waits.
    before: dict = field(default_factory=dict)
    later: dict = field(default_factory=dict)
    threads: int = THREADS

    @property
    def name(self):
        return self.call.removeprefix("rushmem_device_")


def copied(count, source=0):
    """The words that a put of ``count`` words from the previous PE leaves."""
    return lambda me, n: {i: word((me - 1) % n, source + i) for i in range(count)}


def fetched(count):
    return lambda me, n: {i: word((me + 1) % n, i) for i in range(count)}


def all_cases():
    cases = [
        Case("my_pe", (), returns=lambda me, n: me),
        Case("n_pes", (), returns=lambda me, n: n),
        Case("team_my_pe", (WORLD,), returns=lambda me, n: me),
        Case("team_n_pes", (WORLD,), returns=lambda me, n: n),
        Case("team_n_pes", (7 << 32 | 40,), returns=-1),
        Case("ptr", (At(3), "me"), returns=At(3)),
        Case("team_translate_pe", (WORLD, "next", WORLD), returns=lambda me, n: (me + 1) % n),
    ]
    for scope in ("", "_warp", "_block"):
        # Threads write the same words with the same values; warps and blocks share the work.
        for count in (1, 37, 300):
            size = 8 * count
            cases += [
                Case(f"putmem{scope}", (At(OUT), At(0), size, "next"), changes=copied(count)),
                Case(f"putmem_nbi{scope}", (At(OUT), At(0), size, "next"), changes=copied(count)),
                Case(f"getmem{scope}", (At(OUT), At(0), size, "next"), changes=fetched(count)),
                Case(f"getmem_nbi{scope}", (At(OUT), At(0), size, "next"), changes=fetched(count)),
            ]
        callers = {"": THREADS, "_warp": THREADS // 32, "_block": 1}[scope]
        # The first caller finds another value than all others.
        one = lambda first, others, c=callers: [first] + [others] * (c - 1)
        for nbi in ("", "_nbi"):
            for op, value in ((SET, 9), (ADD, 9 * callers)):
                signal = lambda me, n, value=value: copied(50)(me, n) | {100: value}
                arguments = (At(OUT), At(0), 400, At(OUT + 100), 9, op, "next")
                cases.append(Case(f"putmem_signal{nbi}{scope}", arguments, changes=signal))
        cases += [
            Case(f"signal_op{scope}", (At(OUT + 5), 3, ADD, "next"), changes=lambda me, n, c=callers: {5: 3 * c}),
            Case(f"signal_op{scope}", (At(OUT + 5), 3, SET, "next"), changes=lambda me, n: {5: 3}),
            Case(f"signal_fetch{scope}", (At(7),), returns=lambda me, n: word(me, 7)),
            Case(f"is_lost{scope}", ("next",)),
            Case(f"signal_wait_until{scope}", (At(7), GE, 1)),
            Case(f"signal_wait_until_from{scope}", (At(7), GE, 1, "next")),
            Case(f"uint64_wait_until_from{scope}", (At(7), NE, 1, "next")),
            Case(f"int64_wait_until_from{scope}", (At(7), GT, -5, "next")),
            Case(f"uint32_wait_until_from{scope}", (At(7), EQ, 8, "next")),
            Case(f"int32_wait_until_from{scope}", (At(7), LE, 8, "next")),
            Case(f"uint64_wait_until{scope}", (At(7), NE, 1)),
            Case(f"int64_wait_until{scope}", (At(7), GT, -5)),
            Case(f"uint32_wait_until{scope}", (At(7), EQ, 8)),
            Case(f"int32_wait_until{scope}", (At(7), LE, 8)),
            Case(
                f"signal_wait_until{scope}", (At(OUT), EQ, 5), later={0: 5}, changes=lambda me, n: {0: 5},
            ),
            Case(
                f"int64_wait_until{scope}", (At(OUT), LT, 0), later={0: 2**64 - 1}, changes=lambda me, n: {0: 2**64 - 1},
            ),
            Case(f"uint64_test{scope}", (At(7), EQ, 1), returns=0),
            Case(f"int64_test{scope}", (At(7), LT, -1), returns=0),
            Case(f"uint32_test{scope}", (At(7), GE, 8), returns=1),
            Case(f"int32_test{scope}", (At(7), GT, -1), returns=1),
            Case(f"fence{scope}", ()),
            Case(f"quiet{scope}", ()),
        ]
        for name, mask in (("uint32", 0xFFFFFFFF), ("uint64", 2**64 - 1)):
            cases += [
                Case(f"{name}_atomic_add{scope}", (At(OUT), 5, "next"), changes=lambda me, n, c=callers: {0: 5 * c}),
                Case(f"{name}_atomic_inc{scope}", (At(OUT), "next"), changes=lambda me, n, c=callers: {0: c}),
                Case(f"{name}_atomic_set{scope}", (At(OUT), 5, "next"), changes=lambda me, n: {0: 5}),
                Case(f"{name}_atomic_or{scope}", (At(OUT), 6, "next"), changes=lambda me, n: {0: 14}, before={0: 12}),
                Case(f"{name}_atomic_and{scope}", (At(OUT), 6, "next"), changes=lambda me, n: {0: 4}, before={0: 12}),
                Case(
                    f"{name}_atomic_xor{scope}", (At(OUT), 6, "next"),
                    changes=lambda me, n, c=callers: {0: 12 ^ 6 if c % 2 else 12}, before={0: 12},
                ),
                Case(
                    f"{name}_atomic_fetch{scope}", (At(3), "next"),
                    returns=lambda me, n, mask=mask: word((me + 1) % n, 3) & mask,
                ),
                Case(
                    f"{name}_atomic_fetch_add{scope}", (At(OUT), 5, "next"), each=[5 * k for k in range(callers)],
                    changes=lambda me, n, c=callers: {0: 5 * c},
                ),
                Case(
                    f"{name}_atomic_fetch_inc{scope}", (At(OUT), "next"), each=list(range(callers)),
                    changes=lambda me, n, c=callers: {0: c},
                ),
                Case(
                    f"{name}_atomic_fetch_or{scope}", (At(OUT), 6, "next"), each=one(12, 14),
                    changes=lambda me, n: {0: 14}, before={0: 12},
                ),
                Case(
                    f"{name}_atomic_fetch_and{scope}", (At(OUT), 6, "next"), each=one(12, 4),
                    changes=lambda me, n: {0: 4}, before={0: 12},
                ),
                Case(
                    f"{name}_atomic_fetch_xor{scope}", (At(OUT), 6, "next"), each=[10 if k % 2 else 12 for k in range(callers)],
                    changes=lambda me, n, c=callers: {0: 12 ^ 6 if c % 2 else 12}, before={0: 12},
                ),
                Case(
                    f"{name}_atomic_swap{scope}", (At(OUT), 7, "next"), each=one(12, 7),
                    changes=lambda me, n: {0: 7}, before={0: 12},
                ),
                Case(
                    f"{name}_atomic_compare_swap{scope}", (At(OUT), 12, 7, "next"), each=one(12, 7),
                    changes=lambda me, n: {0: 7}, before={0: 12},
                ),
            ]
        for name in ("float", "double"):
            twelve = {0: bits(name, 12)}
            sum_of = lambda me, n, c=callers, name=name: {0: bits(name, 5 * c)}
            seven = lambda me, n, name=name: {0: bits(name, 7)}
            cases += [
                Case(f"{name}_atomic_add{scope}", (At(OUT), 5, "next"), changes=sum_of),
                Case(
                    f"{name}_atomic_fetch_add{scope}", (At(OUT), 5, "next"),
                    each=[5 * k for k in range(callers)], changes=sum_of,
                ),
                Case(f"{name}_atomic_set{scope}", (At(OUT), 7, "next"), changes=seven),
                Case(f"{name}_atomic_fetch{scope}", (At(OUT), "next"), returns=12, before=twelve),
                Case(f"{name}_atomic_swap{scope}", (At(OUT), 7, "next"), each=one(12, 7), changes=seven, before=twelve),
            ]
        # A PE makes a collective call once.
        threads = {"": 1, "_warp": 32, "_block": THREADS}[scope]
        cases += [
            Case(f"barrier_all{scope}", (), threads=threads),
            Case(f"sync_all{scope}", (), threads=threads),
            Case(f"barrier{scope}", (WORLD,), threads=threads),
            Case(f"team_sync{scope}", (WORLD,), threads=threads),
        ]
    for scope, threads in (("_warp", 32), ("_block", THREADS)):
        cases += [
            Case(
                f"broadcastmem{scope}", (WORLD, At(OUT), At(0), 800, 0), threads=threads,
                changes=lambda me, n: {i: word(0, i) for i in range(100)},
            ),
            Case(
                f"fcollectmem{scope}", (WORLD, At(OUT), At(0), 80), threads=threads,
                changes=lambda me, n: {10 * p + i: word(p, i) for p in range(n) for i in range(10)},
            ),
            Case(
                f"alltoallmem{scope}", (WORLD, At(OUT), At(0), 80), threads=threads,
                changes=lambda me, n: {10 * p + i: word(p, 10 * me + i) for p in range(n) for i in range(10)},
            ),
            Case(
                f"reduce{scope}", (WORLD, At(OUT), At(0), 800, UINT64, SUM), threads=threads,
                changes=lambda me, n: {i: sum(word(p, i) for p in range(n)) for i in range(100)},
            ),
            Case(
                f"reduce{scope}", (WORLD, At(OUT), At(0), 800, INT64, MAX), threads=threads,
                changes=lambda me, n: {i: word(n - 1, i) for i in range(100)},
            ),
            Case(
                f"reduce_scatter{scope}", (WORLD, At(OUT), At(0), 80, UINT64, SUM), threads=threads,
                changes=lambda me, n: {i: sum(word(p, 10 * me + i) for p in range(n)) for i in range(10)},
            ),
        ]
    for name, size in (("uint8", 1), ("uint16", 2), ("uint32", 4), ("uint64", 8)):
        mask = (1 << 8 * size) - 1
        cases += [
            Case(f"{name}_p", (At(OUT + 3), 201, "next"), changes=lambda me, n: {3: 201}),
            Case(f"{name}_g", (At(3), "next"), returns=lambda me, n, mask=mask: word((me + 1) % n, 3) & mask),
        ]
    for name in ("float", "double"):
        cases += [
            Case(f"{name}_p", (At(OUT + 3), 201, "next"), changes=lambda me, n, name=name: {3: bits(name, 201)}),
            Case(f"{name}_g", (At(OUT), "next"), returns=12, before={0: bits(name, 12)}),
        ]
    return cases + [
        Case("putmem_block", (4096, At(0), 8, "next"), returns=OUT_OF_RANGE, fails=True),
        Case("putmem_nbi_warp", (At(OUT), At(0), 1 << 44, "next"), returns=OUT_OF_RANGE, fails=True),
        Case("getmem_block", (At(OUT), At(0), 8, 1000), returns=BAD_PE, fails=True),
        Case("uint64_atomic_fetch_add_block", (At(OUT), 1, -1), returns=0, fails=True),
        Case("signal_wait_until_block", (At(OUT), 99, 0), returns=BAD_CONSTANT, fails=True),
        Case("signal_wait_until_block", (At(OUT), EQ, 5), returns=WAIT_TIMEOUT, fails=True),
        Case("signal_op_block", (At(OUT), 1, 2, "next"), returns=BAD_CONSTANT, fails=True),
        Case("reduce_block", (WORLD, At(OUT), At(0), 80, FLOAT, XOR), returns=BAD_REDUCTION, fails=True),
    ]
