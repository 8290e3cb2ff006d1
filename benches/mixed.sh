#!/usr/bin/env bash
# Operations within a node: compares a job of one node with a mixed job of two nodes, with two PEs per node on one
# machine.
#
#     benches/mixed.sh [--most RATIO] [COMMAND...]
#
# COMMAND is `rushmem`, or a launcher in front of it: `rushmem run -n 4 rushmem`. Prints the microseconds of both jobs
# and their ratio. With --most, a larger ratio in any row is a failure.
set -euo pipefail

most=0
if [[ ${1:-} == --most ]]; then
    most=${2:?--most wants a ratio}
    shift 2
fi
command=("${@:-rushmem}")
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# measure NAME SETTING...: measures the rows within a node with these settings.
measure() {
    local name=$1
    shift
    env RUSHMEM_PEER_PATH=p2p "$@" "${command[@]}" perf signal put_signal barrier_node sync_node \
        --json "$out/$name.json" >"$out/$name.log" 2>&1 || { cat "$out/$name.log" >&2 && exit 1; }
}

measure one RUSHMEM_PES=2
measure mixed RUSHMEM_PES=4 RUSHMEM_P2P_GROUP=2 RUSHMEM_P2P_ATOMICS=node
python3 - "$out" "$most" <<'PY'
import json, sys

out, most = sys.argv[1], float(sys.argv[2])
rows = lambda name: {(row["bench"], row["bytes"]): row["value"] for row in json.load(open(f"{out}/{name}.json"))["rows"]}
one, mixed = rows("one"), rows("mixed")
worst = 0
print(f"{'benchmark':<14}{'bytes':>8}{'one node':>11}{'mixed':>11}{'ratio':>8}")
for (bench, size), time in one.items():
    ratio = mixed[bench, size] / time
    worst = max(worst, ratio)
    print(f"{bench:<14}{size:>8}{time:>8.2f} us{mixed[bench, size]:>8.2f} us{ratio:>8.2f}")
if most and worst > most:
    sys.exit(f"benches/mixed.sh: a ratio of {worst:.2f} is larger than {most}")
PY
