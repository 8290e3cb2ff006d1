#!/usr/bin/env python3
"""Prints Rushmem's dispatch and combine beside those of other libraries, as a Markdown table.

    for tokens in 1 8 32 128; do rushmem run -n 2 rushmem-ep-bench --tokens $tokens; done >ours.txt
    python3 benches/ep/compare.py ours.txt theirs.jsonl

`theirs.jsonl` has the rows of nccl_ep.py and deepep.py. Times are microseconds. Passing new routing to a handle counts
as dispatch, because Rushmem's dispatch contains that. Elastic rows stand beside Rushmem's faster form.
"""

import argparse
import json
import re
from pathlib import Path

HEAD = re.compile(r"PASS rushmem-ep-bench: (\w+), (\w+), (\d+) tokens x (\d+), (\d+) experts, top (\d+), Uniform")
PES = re.compile(r" (\d+) PEs \(")
STEP = re.compile(r"  (dispatch|combine) +([\d.]+) us ")
FORMS = {"LowLatency": "low-latency", "Throughput": "throughput"}
DTYPES = {"Bf16": "bf16", "E4m3": "fp8"}


def read_ours(text: str) -> dict[tuple, dict[str, float]]:
    """Returns the times of each measurement in the output of rushmem-ep-bench."""
    rows: dict[tuple, dict[str, float]] = {}
    for part in re.split(r"(?=PASS rushmem-ep-bench)", text):
        head, pes = HEAD.search(part), PES.search(part)
        if head and pes:
            form, dtype, *shape = head.groups()
            key = (FORMS[form], DTYPES[dtype], int(pes[1]), *map(int, shape))
            rows[key] = {step: float(us) for step, us in STEP.findall(part)}
    return rows


def line(theirs: dict, ours: dict[tuple, dict[str, float]]) -> str | None:
    """Returns the table's line for a row of another library, or nothing if Rushmem has not measured the same."""
    modes = FORMS.values() if theirs["mode"] == "elastic" else [theirs["mode"]]
    shape = [theirs[name] for name in ("dtype", "ranks", "tokens", "hidden", "experts", "top")]
    found = [(mode, ours[mode, *shape]) for mode in modes if (mode, *shape) in ours]
    if not found:
        return None
    mode, mine = min(found, key=lambda row: sum(row[1].values()))
    dispatch, combine = theirs["dispatch_us"] + theirs.get("update_us", 0), theirs["combine_us"]
    cells = [
        f"{theirs['library']}, {theirs['mode']}",
        *map(str, shape[:3]),
        f"{mine['dispatch']:.1f} + {mine['combine']:.1f} ({mode})",
        f"{dispatch:.1f} + {combine:.1f}",
        f"{(dispatch + combine) / sum(mine.values()):.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ours", type=Path, help="output of rushmem-ep-bench")
    parser.add_argument("theirs", type=Path, help="rows of the other libraries")
    args = parser.parse_args()
    ours = read_ours(args.ours.read_text())
    rows = [json.loads(text) for text in args.theirs.read_text().splitlines() if text.startswith("{")]
    lines = [text for text in (line(row, ours) for row in rows) if text]
    if not lines:
        parser.error("the two files have no measurement in common")
    print("| library | rows | ranks | tokens | Rushmem | library | library / Rushmem |")
    print("|---|---|---|---|---|---|---|", *lines, sep="\n")


if __name__ == "__main__":
    main()
