#!/usr/bin/env python3
"""Start time, processor time and memory of jobs with many PEs, as threads and as processes.

    cargo build --release && python3 benches/start.py
    python3 benches/start.py --rushmem old/rushmem --rushmem new/rushmem --programs hello --rounds 5

Prints a Markdown table. Times are medians over the rounds, and memory is the maximum, because samples may miss a peak. With
several commands `rushmem`, the rounds alternate between them. `time` is from the start to the exit of the launcher. `CPU` is
the CPU time of all processes including the launcher. `memory` is the peak of the memory that the job has touched, without
programs and libraries, divided by the number of PEs.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path


def touched(launcher: int) -> int:
    """Returns the bytes of memory that a launcher and its PEs have touched, without the files they have mapped."""
    total = 0
    try:
        pes = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    for pid in [str(launcher), *pes]:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # The process has exited.
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        total += sum(int(fields.get(name, "0 kB").split()[0]) for name in ("RssAnon", "RssShmem"))
    return total << 10


def run(rushmem: str, program: str, pes: int, mode: str) -> tuple[float, float, float]:
    """Runs a job. Returns its time, CPU time, and peak memory per PE."""
    command = [rushmem, "run", "-n", str(pes), *(["--threads"] if mode == "threads" else []), program]
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    peak = 0

    def watch() -> None:
        nonlocal peak
        while job.poll() is None:
            begun = time.monotonic()
            peak = max(peak, touched(job.pid))
            # This interval keeps the sampling below a tenth of a core.
            time.sleep(max(0.005, 9 * (time.monotonic() - begun)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    output = job.communicate()[0]
    took = time.monotonic() - begin
    watcher.join()
    if job.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with code {job.returncode}:\n{output}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took, cpu, peak / pes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).parent.parent / "target/release/rushmem"
    parser.add_argument("--rushmem", action="append", help=f"command to measure, repeatable (default: {default})")
    parser.add_argument("--programs", default="hello,ring,alltoall", help="programs, separated by commas")
    parser.add_argument("--pes", default="16,64,128,256", help="numbers of PEs")
    parser.add_argument("--modes", default="threads,processes")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    commands = args.rushmem or [str(default)]
    named = len(commands) > 1
    print("| program | PEs | as |" + " command |" * named + " time | CPU | memory of a PE |")
    print("|---|---|---|" + "---|" * named + "---|---|---|")
    for program in args.programs.split(","):
        for pes in map(int, args.pes.split(",")):
            for mode in args.modes.split(","):
                runs = {command: [] for command in commands}
                for _ in range(args.rounds):
                    for command in commands:
                        runs[command].append(run(command, program, pes, mode))
                for command in commands:
                    took, cpu, memory = zip(*runs[command])
                    took, cpu, memory = statistics.median(took), statistics.median(cpu), max(memory)
                    name = f" {command} |" if named else ""
                    cells = f"{took:.2f} s | {cpu:.2f} s | {memory / 1e6:.1f} MB"
                    print(f"| {program} | {pes} | {mode} |{name} {cells} |", flush=True)


if __name__ == "__main__":
    main()
