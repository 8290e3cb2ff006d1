#!/usr/bin/env python3
"""Counts the machine instructions of the outlined functions of a kernel.

    benches/instructions.py FILE.ptx KERNEL [--arch sm_90]

Prints a row for each function of the kernel, as ptxas compiles it: all instructions, loads and stores of global memory, atomics,
fences, and invalidations of the L1 cache. The posting path and the completion path are among these functions. It needs `ptxas`
and `nvdisasm` on the PATH (packages nvidia-cuda-nvcc and nvidia-cuda-nvdisasm of PyPI), and `c++filt` of binutils.
"""

import argparse
import collections
import re
import subprocess
import sys
import tempfile

COLUMNS = ["all", "loads", "stores", "atomics", "fences", "invalidations"]
KINDS = {
    "LD": "loads",
    "LDG": "loads",
    "ST": "stores",
    "STG": "stores",
    "ATOM": "atomics",
    "ATOMG": "atomics",
    "RED": "atomics",
    "REDG": "atomics",
    "MEMBAR": "fences",
    "CCTL": "invalidations",
}


def disassembly(ptx, arch):
    """Compiles a PTX file and returns the lines of its machine code."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        subprocess.run(["ptxas", f"-arch={arch}", "-o", cubin.name, ptx], check=True)
        run = subprocess.run(["nvdisasm", "-c", cubin.name], check=True, capture_output=True, text=True)
    return run.stdout.splitlines()


def functions(lines, kernel):
    """Returns the instruction counts of each function of a kernel, by name, starting with the kernel itself."""
    counts, current = {}, None
    for line in lines:
        if section := re.match(r"\.text\.(\S+):", line):
            current = counts.setdefault(kernel, collections.Counter()) if section[1] == kernel else None
        elif current is None:
            continue
        elif label := re.match(rf"\${re.escape(kernel)}\$(\S+):", line):
            current = counts.setdefault(readable(label[1]), collections.Counter())
        elif instruction := re.search(r"/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+ +)?([A-Z][A-Z0-9]*)", line):
            current["all"] += 1
            current[KINDS.get(instruction[1], "other")] += 1
    return counts


def readable(mangled):
    """Demangles the name of a Rust function to its path, without crate and types."""
    run = subprocess.run(["c++filt", mangled], check=True, capture_output=True, text=True)
    path = re.sub(r"::<.*", "", run.stdout.strip())
    return "::".join(path.split("::")[1:]) or path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ptx")
    parser.add_argument("kernel")
    parser.add_argument("--arch", default="sm_90")
    arguments = parser.parse_args()
    counts = functions(disassembly(arguments.ptx, arguments.arch), arguments.kernel)
    if not counts:
        sys.exit(f"{arguments.ptx} has no kernel {arguments.kernel}")
    print("| function | " + " | ".join(COLUMNS) + " |")
    print("|---|" + "---|" * len(COLUMNS))
    for name, count in counts.items():
        print(f"| `{name}` | " + " | ".join(str(count[column]) for column in COLUMNS) + " |")


main()
