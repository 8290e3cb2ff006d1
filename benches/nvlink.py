#!/usr/bin/env python3
"""Writes docs/performance/nvlink.md from the results of `benches/run.sh --out DIR` on a machine with several GPUs.

    benches/nvlink.py DIR > docs/performance/nvlink.md

Text that no run can produce is in `nvlink.md.in`, next to this script.
"""

import json
import math
import pathlib
import sys

BENCHES = {
    "put_bw": "put by blocks",
    "get_bw": "get by blocks",
    "put_quiet": "put and quiet",
    "p_quiet": "`p` and quiet",
    "g": "`g`",
    "fetch_add": "`fetch_add`",
    "compare_swap": "`compare_swap`",
    "p_rate": "rate of `p`",
    "g_rate": "rate of `g`",
    "add_rate": "rate of `add`",
    "fetch_add_rate": "rate of `fetch_add`",
    "signal": "signal, round trip",
    "put_signal": "put with signal, round trip",
}
CALLS = {
    "stream_reduce": "sum of f32",
    "stream_reduce_scatter": "reduce-scatter",
    "stream_broadcast": "broadcast",
    "stream_fcollect": "fcollect",
    "stream_alltoall": "alltoall",
}
# How the program ends its name that measures NCCL's device API.
DEVICE_API = " device API"
# Calls whose rows count the bytes of one PE, or of one pair of PEs.
OF_ONE_PE = {"stream_reduce_scatter", "stream_fcollect", "stream_alltoall"}


def load(path):
    """Returns the program's name and its rows, by their work."""
    file = json.loads(path.read_text())
    work = lambda row: tuple(row[name] for name in ("bench", "bytes", "blocks", "threads", "pes"))
    return file["program"], {work(row): row for row in file["rows"]}


def speed(ours, theirs):
    """Returns how many times as fast our row is."""
    is_time = ours["unit"] == "us"
    return theirs["value"] / ours["value"] if is_time else ours["value"] / theirs["value"]


def size(bytes):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if bytes < 1024 or unit == "GiB":
            return f"{bytes} {unit}"
        bytes //= 1024


def number(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def table(header, rows):
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def summary(ours, theirs):
    """One line per benchmark and number of PEs."""
    for pes in sorted({work[4] for work in theirs}):
        for bench in dict.fromkeys(work[0] for work in ours):
            found = [work for work in ours if work[0] == bench and work[4] == pes and work in theirs]
            if not found:
                continue
            speeds = [speed(ours[work], theirs[work]) for work in found]
            mean = math.exp(sum(map(math.log, speeds)) / len(speeds))
            name = BENCHES.get(bench) or CALLS.get(bench, f"`{bench}`")
            name += " on a stream" if bench in CALLS else ""
            yield name, str(pes), str(len(found)), f"{mean:.2f}", f"{min(speeds):.2f}", f"{max(speeds):.2f}"


def behind(ours, theirs):
    for work in sorted(ours, key=lambda work: (work[4], work[0], work[1], work[2])):
        if work in theirs and speed(ours[work], theirs[work]) < 0.995:
            bench, bytes, blocks, threads, pes = work
            unit = ours[work]["unit"]
            yield (
                BENCHES.get(bench) or CALLS.get(bench, f"`{bench}`"),
                str(pes),
                size(bytes) if bytes else "",
                f"{blocks} x {threads}" if blocks else "stream",
                f"{number(ours[work]['value'])} {unit}",
                f"{number(theirs[work]['value'])} {unit}",
                f"{speed(ours[work], theirs[work]):.2f}",
            )


def beside(ours, name, theirs):
    """The section on rows that another program has too."""
    if name.endswith(DEVICE_API):
        yield f"## Beside NCCL's{DEVICE_API}\n"
        yield "The API provides addresses of peers' memory, a copy and a barrier. The rest are loads, stores, atomics and fences.\n"
    else:
        yield f"## Beside {name}\n"
    yield f"How many times as fast Rushmem is as {name}: geometric mean, minimum and maximum of the rows.\n"
    yield from table(("what", "PEs", "rows", "mean", "minimum", "maximum"), summary(ours, theirs))
    rows = list(behind(ours, theirs))
    total = sum(work in theirs for work in ours)
    yield f"{len(rows)} of {total} rows are behind{':' if rows else '.'}\n"
    if rows:
        yield from table(("what", "PEs", "bytes", "grid", "Rushmem", name, "times as fast"), rows)


def streams(ours, others, pes):
    """A line per size and a column per call: our time, and how many times as fast it is as each other program."""
    whole = lambda call, bytes: bytes * pes if call in OF_ONE_PE else bytes
    for bytes in sorted({whole(*work[:2]) for work in ours if work[0] in CALLS and work[4] == pes}):
        cells = [size(bytes)]
        for call in CALLS:
            work = (call, bytes // pes if call in OF_ONE_PE else bytes, 0, 0, pes)
            if work not in ours:
                cells.append("")
                continue
            speeds = [f"{speed(ours[work], rows[work]):.2f}" if work in rows else "–" for _, rows in others]
            cells.append(f"{number(ours[work]['value'])} ({', '.join(speeds)})")
        yield cells


def main():
    out = pathlib.Path(sys.argv[1])
    fixed = (pathlib.Path(__file__).parent / "nvlink.md.in").read_text().split("<!-- tables -->\n")
    ours = {}
    for path in sorted(out.glob("rushmem-[0-9].json")):
        ours |= load(path)[1]
    others = {}
    for path in sorted(out.glob("nvshmem-*-[0-9].json")) + sorted(out.glob("nccl-*-[0-9].json")):
        program, rows = load(path)
        others.setdefault(program, {}).update(rows)
    newest = max((program for program in others if program.startswith("NVSHMEM")), default=None)
    device = next((program for program in others if program.endswith(DEVICE_API)), None)
    if not ours or newest is None:
        sys.exit(f"{out} has no results of Rushmem and NVSHMEM")

    print(fixed[0].replace("MACHINE", (out / "machine.txt").read_text().strip()), end="")
    for name in filter(None, (newest, device)):
        print("\n".join(beside(ours, name, others[name])))

    rest = ((program, rows) for program, rows in others.items() if program != device)
    compared = [(program, rows) for program, rows in rest if program == newest or "NCCL" in program]
    names = ", ".join(program for program, _ in compared)
    for pes in sorted({work[4] for work in ours if work[0] in CALLS}):
        print(f"## Collective calls on streams, {pes} PEs\n")
        print("Microseconds, and how many times as fast Rushmem is as")
        print(f"{names}. Bytes are those of the longer of source and destination on one PE.\n")
        print("\n".join(table(("bytes", *CALLS.values()), streams(ours, compared, pes))))
    print(fixed[1], end="")


if __name__ == "__main__":
    main()
