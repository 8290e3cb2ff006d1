#!/usr/bin/env python3
"""Boots virtual machines in which Linux's own mlx5 drivers bind to the software ConnectX, and runs programs there.

QEMU emulates the processor, so neither KVM nor privileges are needed. Packages are fetched by apt into target/driver.
"""

import argparse
import os
import re
import shutil
import sys
import time

import machine
import sets
from packages import ROOT, WORK, Missing, Packages

DOCS = ROOT / "docs" / "softnic.md"
# Lines around the tables of commands, one for each link layer.
MARKERS = ("<!-- commands of the driver, {} -->\n", "<!-- end of the commands, {} -->\n")


def failures(log):
    """Prints the steps of a guest's log. Returns those that failed."""
    text = log.read_text(errors="replace").replace("\r", "")
    found = re.findall(r"^== (.*): (\d+)$", text, re.MULTILINE)
    if not any(step == "end" for step, _ in found):
        found.append(("end", "missing"))
    for skipped in re.findall(r"^SKIPPED .*$", text, re.MULTILINE):
        print(f"  {skipped}")
    for step, result in found:
        print(f"  {'PASS' if result == '0' else 'FAIL'} {step}")
    return [step for step, result in found if result != "0"]


def table(counts):
    """Returns the table of commands of each kernel, for the documentation."""
    kernels = list(counts)
    lines = ["| command | " + " | ".join(f"Linux {kernel}" for kernel in kernels) + " |"]
    lines.append("|---" * (len(kernels) + 1) + "|")

    def cell(count):
        match count:
            case None:
                return "-"
            case (_, 0):
                return "executed"
            case (0, _):
                return "refused"
            case _:
                return "executed, some refused"

    for name in sorted({name for kernel in kernels for name in counts[kernel]}):
        lines.append(f"| {name} | " + " | ".join(cell(counts[kernel].get(name)) for kernel in kernels) + " |")
    return "".join(line + "\n" for line in lines)


def write_docs(link, counts):
    """Replaces the table of commands of a link layer in the documentation."""
    start, end = (marker.format(link) for marker in MARKERS)
    before, rest = DOCS.read_text().split(start)
    DOCS.write_text(before + start + "\n" + table(counts) + "\n" + end + rest.split(end)[1])


def skip(reason):
    """Reports that the test cannot run on this machine, which CI_REQUIRE_ALL makes an error."""
    if "CI_REQUIRE_ALL" in os.environ:
        sys.exit(f"driver cannot run, and CI_REQUIRE_ALL is set: {reason}")
    print(f"SKIPPED driver: {reason}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rushmem", default=str(ROOT / "target/debug/rushmem"), help="the command to test")
    parser.add_argument("--suites", default=",".join(machine.SUITES), help=f"Debian suites whose kernels to test, or {machine.CHECKED}: a kernel built with checks")
    parser.add_argument("--sets", default=",".join(sets.names()), help="sets of programs: files of tests/driver/sets")
    parser.add_argument("--minutes", type=int, default=10, help="time for each set")
    parser.add_argument("--update-docs", action="store_true", help="write the tables of commands to docs/softnic.md")
    args = parser.parse_args()
    try:
        execute(args)
    except Missing as error:
        skip(error)


def execute(args):
    for tool in ("apt-get", "cargo", "cc", "cpio", "depmod", "dpkg-deb", "modprobe", "strip", "xz", args.rushmem):
        if not shutil.which(tool):
            raise Missing(f"no {tool}")
    chosen = [sets.Set(name) for name in args.sets.split(",")]
    WORK.mkdir(parents=True, exist_ok=True)
    qemu = machine.Qemu()
    kernels = [machine.Kernel(suite) for suite in args.suites.split(",")]
    for one in chosen:
        Packages(machine.PROGRAM_SUITE).unpack([*machine.PROGRAMS, *one.packages])
    failed, counts = [], {}
    for kernel in kernels:
        for one in chosen:
            start = time.monotonic()
            sent = counts.setdefault(one.link, {}).setdefault(kernel.release, {})
            logs, commands = machine.boot(qemu, kernel, args.rushmem, one, args.minutes)
            for role, log in logs.items():
                print(f"kernel {kernel.version}, {one.name}, {role}")
                failed += [f"{kernel.release} {one.name} {role}: {step}" for step in failures(log)]
            for name, (done, refused) in commands.items():
                before = sent.get(name, (0, 0))
                sent[name] = (before[0] + done, before[1] + refused)
            print(f"{(time.monotonic() - start) / 60:.1f} minutes", flush=True)
    for link, of_link in counts.items():
        (WORK / f"commands-{link}.md").write_text(table(of_link))
        if args.update_docs:
            write_docs(link, of_link)
    if failed:
        sys.exit("failed:\n" + "\n".join(failed) + f"\nlogs are in {os.path.relpath(WORK)}")


if __name__ == "__main__":
    main()
