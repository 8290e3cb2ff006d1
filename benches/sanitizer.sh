#!/usr/bin/env bash
# The cost of the communication sanitizer: time and peak memory of the examples without and with it, as a table.
#
#     benches/sanitizer.sh [--release] [-n PES] [--runs N]
#
# Runs each program N times both ways, alternately, and reports the best times. CPU is the time over all cores, on which
# other work on the machine has little influence. The table is that of docs/sanitizer.md. Stops if a program fails or
# has findings.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

fail() {
    printf 'benches/sanitizer.sh: %s\n' "$*" >&2
    exit 1
}

build=(cargo build --quiet --locked -p rushmem-cli -p rushmem-examples)
profile=debug
pes=2
runs=3
while (($#)); do
    case $1 in
    --release) profile=release && build+=(--release --features rushmem-examples/sanitize) && shift ;;
    -n) pes=${2:?-n wants a number of PEs} && shift 2 ;;
    --runs) runs=${2:?--runs wants a number} && shift 2 ;;
    *) fail "unknown option $1; there are --release, -n PES and --runs N" ;;
    esac
done

[[ -x /usr/bin/time ]] || fail 'install GNU time: /usr/bin/time is not there'
(cd "$root" && "${build[@]}")
bin=${CARGO_TARGET_DIR:-$root/target}/$profile
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT

# Runs a program, and appends its seconds, CPU seconds and KiB to a file as one line.
measure() {
    local file=$1 && shift
    /usr/bin/time -q -o "$scratch/cost" -f '%e %U %S %M' "$bin/rushmem" run --threads -n "$pes" "$@" >"$scratch/log" 2>&1 || {
        cat "$scratch/log" >&2
        fail "failed: $*"
    }
    cat "$scratch/cost" >>"$file"
}

printf '| program | off | on | ratio | CPU off | on | ratio | memory off | on | ratio |\n'
printf '|---|---|---|---|---|---|---|---|---|---|\n'
while read -r program; do
    read -ra words <<<"$program"
    command=("$bin/${words[0]}" "${words[@]:1}")
    # Show the name without paths.
    if [[ ${words[0]} == stencil ]]; then
        command+=(-o "$scratch/heat.png" "$root/examples/data/chelsea.png")
    fi
    rm -f "$scratch"/{off,on}
    for ((run = 0; run < runs; run++)); do
        measure "$scratch/off" "${command[@]}"
        measure "$scratch/on" --sanitize "${command[@]}"
    done
    paste -d ' ' "$scratch/off" "$scratch/on" | awk -v program="$program" '
        { off_cpu = $2 + $3; on_cpu = $6 + $7 }
        NR == 1 || $1 < off { off = $1 }
        NR == 1 || $5 < on { on = $5 }
        NR == 1 || off_cpu < best_off { best_off = off_cpu }
        NR == 1 || on_cpu < best_on { best_on = on_cpu }
        $4 > off_kib { off_kib = $4 }
        $8 > on_kib { on_kib = $8 }
        END {
            printf "| `%s` | %.2f s | %.2f s | %.1f |", program, off, on, on / off
            printf " %.2f s | %.2f s | %.1f |", best_off, best_on, best_on / best_off
            printf " %.0f MiB | %.0f MiB | %.1f |\n", off_kib / 1024, on_kib / 1024, on_kib / off_kib
        }'
done <<'PROGRAMS'
ring --count 1048576
sort
gups
fft
jacobi --size 8
alltoall -n 512
kv
stencil --steps 20
PROGRAMS
