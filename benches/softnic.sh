#!/usr/bin/env bash
# Compares two processes on the software ConnectX with TCP loopback: shared memory, UDP and TCP alternate.
#
#   benches/softnic.sh [ROUNDS]
#
# Needs perftest and qperf, and `cargo build --release -p rushmem-cli`. Each figure is the best of all rounds, because
# other load on the machine can only make it worse. BEFORE names a folder with another build of `rushmem` and
# `rushmem-preload`, which is measured as "before".
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${1:-5}
now=target/release
port=$((20000 + RANDOM % 20000))
work=$(mktemp -d)
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; rm -r "$work"' EXIT

for program in ib_write_lat ib_write_bw qperf ss; do
    command -v "$program" >/dev/null || { echo "softnic.sh: $program is missing (perftest, qperf, iproute2)" >&2; exit 1; }
done
[[ -x $now/rushmem ]] || { echo "softnic.sh: no $now/rushmem; build it first" >&2; exit 1; }

# Waits until a server listens on port $1.
await() {
    for _ in $(seq 500); do
        ss -Hltn "sport = :$1" | grep -q . && return
        sleep 0.02
    done
    echo "softnic.sh: nothing listens on port $1" >&2
    exit 1
}

# Runs a perftest tool on both sides: FOLDER OPTIONS COLUMN TOOL... Prints a column of the client's report.
perftest() {
    local folder=$1 options=$2 column=$3
    shift 3
    port=$((port + 1))
    # The options are words.
    # shellcheck disable=SC2086
    timeout 120 "$folder/rushmem" softnic $options -- "$@" -F -p "$port" >"$work/server" 2>&1 &
    local server=$!
    await "$port"
    # shellcheck disable=SC2086
    timeout 120 "$folder/rushmem" softnic $options -- "$@" -F -p "$port" 127.0.0.1 >"$work/client" 2>&1
    wait "$server"
    awk -v column="$column" '/^ *[0-9]+ +[0-9]+ +[0-9.]/ { print $column }' "$work/client"
}

# Prints what qperf measures, in microseconds or GB/s.
tcp() {
    qperf -t 2 127.0.0.1 "$@" >"$work/tcp"
    awk '$1 == "latency" { print $3 * ($4 == "ns" ? 0.001 : $4 == "ms" ? 1000 : 1) }
         $1 == "bw" { print $3 * ($4 ~ /^MB/ ? 0.001 : $4 ~ /^KB/ ? 0.000001 : 1) }' "$work/tcp"
}

# One round of one transport: WAY FOLDER OPTIONS. Appends the figures to the files of the transport.
round() {
    local way=$1 folder=$2 options=$3
    perftest "$folder" "$options" 5 ib_write_lat -s 8 -n 5000 >>"$work/$way.latency"
    for size in 65536 1048576; do
        # Decimal gigabytes, as qperf reports them.
        perftest "$folder" "$options" 4 ib_write_bw -s "$size" -n $((2000000000 / size / 2)) --report_gbits |
            awk '{ print $1 / 8 }' >>"$work/$way.$size"
    done
    perftest "$folder" "$options" 5 ib_write_bw -s 8 -n 200000 >>"$work/$way.rate"
}

qperf >/dev/null 2>&1 &
pids+=($!)
for _ in $(seq "$rounds"); do
    tcp -m 1 tcp_lat >>"$work/tcp.latency"
    for size in 65536 1048576; do
        tcp -m "$size" tcp_bw >>"$work/tcp.$size"
    done
    round shared "$now" ""
    round udp "$now" "--shared-memory off"
    [[ -z ${BEFORE:-} ]] || round before "$BEFORE" ""
done

# Prints the best figure in a file: the minimum for latencies, otherwise the maximum.
best() {
    [[ -s $work/$1 ]] || { echo -; return; }
    case $1 in
        *.latency) sort -g "$work/$1" | head -1 ;;
        *) sort -g "$work/$1" | tail -1 ;;
    esac
}

printf '%-22s %10s %10s %10s %10s\n' "best of $rounds" TCP shared UDP before
for row in "latency, 8 B (us):latency" "64 KiB (GB/s):65536" "1 MiB (GB/s):1048576" "8 B (M/s):rate"; do
    printf '%-22s' "${row%%:*}"
    for way in tcp shared udp before; do
        printf ' %10s' "$(best "$way.${row##*:}")"
    done
    echo
done
uptime
