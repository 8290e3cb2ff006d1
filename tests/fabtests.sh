#!/usr/bin/env bash
# Runs libfabric's tests on the software ConnectX repeatedly. Each run is a server and a client, or a single program.
#
#     tests/fabtests.sh BIN [RUNS] [JOBS] [DIR]
#
# BIN is the folder of the programs (fi_msg, ...). No registry packages them: run `./configure && make install` in the
# folder `fabtests` of libfabric's source. RUNS is the number of runs (500), of which JOBS (4) run at a time to keep the
# machine busy. Each failure prints a line with the program and the reason. Its logs, and the stacks of its core files
# if there is gdb, stay in DIR or in a new temporary folder. The exit code is 0 if no run has failed. RUSHMEM names a
# `rushmem` to use instead of the one that this script builds.
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
bin=$(cd "${1:?the folder of the programs of fabtests}" && pwd)
runs=${2:-500}
jobs=${3:-4}
dir=${4:-$(mktemp -d)}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

# libfabric ignores the port of a loopback address.
address=$(hostname -I | cut -d ' ' -f 1)
[[ -n $address ]] || exit 1

# Provider, and program with its options. `alone` needs no second process. Excluded are programs that meet over TCP on a
# fixed port, and fi_cq_test, which opens as many CQs as the device reports: 131,072.
#
# Without real-time priority for the adapter, programs over ofi_rxm 1.17 occasionally fail at the end: when a peer has
# disconnected, ofi_rxm closes its endpoint before it reads the last completion. They then hang (exit code 124), or
# libfabric reports that request as flushed (125) although the adapter has completed it.
tests=(
    'verbs fi_msg'
    'verbs fi_msg_epoll'
    'verbs fi_cm_data'
    'verbs fi_cq_data -e msg'
    'verbs fi_shared_ctx -e msg'
    'verbs fi_shared_ctx -e msg --no-tx-shared-ctx'
    'verbs fi_bw -e msg -v -T 1'
    'verbs fi_multi_mr -e msg -V'
    'verbs fi_msg_pingpong -I 5 -v'
    'verbs fi_msg_bw -I 5 -v'
    'verbs fi_rma_bw -e msg -o write -I 5'
    'verbs fi_rma_bw -e msg -o read -I 5'
    'verbs fi_rma_bw -e msg -o writedata -I 5'
    'verbs;ofi_rxm fi_rdm'
    'verbs;ofi_rxm fi_rdm -U'
    'verbs;ofi_rxm fi_cq_data -e rdm'
    'verbs;ofi_rxm fi_poll -t queue'
    'verbs;ofi_rxm fi_poll -t counter'
    'verbs;ofi_rxm fi_rdm_tagged_peek'
    'verbs;ofi_rxm fi_rdm_shared_av'
    'verbs;ofi_rxm fi_multi_mr -e rdm -V'
    'verbs;ofi_rxm fi_recv_cancel -e rdm -V'
    'verbs;ofi_rxm fi_rdm_multi_client -C 10 -I 5'
    'verbs;ofi_rxm fi_rma_bw -e rdm -o write -I 5'
    'verbs;ofi_rxm fi_rma_bw -e rdm -o read -I 5'
    'verbs;ofi_rxm fi_rdm_atomic -I 5 -o all'
    'verbs;ofi_rxm fi_rdm_cntr_pingpong -I 5'
    'verbs;ofi_rxm fi_rdm_pingpong -I 5 -v'
    'verbs;ofi_rxm fi_rdm_tagged_pingpong -I 5 -v'
    'verbs;ofi_rxm fi_rdm_tagged_bw -I 5 -v'
    'alone fi_eq_test'
    'alone fi_dom_test -n 2'
    'alone fi_mr_test'
    'alone fi_cntr_test'
)

# await_listener PORT PROCESS: waits until a process listens on a port of rdma_cm, or the given process has exited.
await_listener() {
    local left=600
    while ((left-- > 0)) && kill -0 "$2" 2>/dev/null; do
        ! grep -q "rushmem-rdmacm/listen/0106/$1/" /proc/net/unix || return 0
        sleep 0.05
    done
}

# program FOLDER NAME COMMAND...: runs it on the software ConnectX for at most two minutes. A hang also leaves a core
# file.
program() {
    local folder=$1 name=$2
    shift 2
    cd "$folder" && exec timeout --signal=ABRT --kill-after=5 120 "$rushmem" softnic -- "$@" >"$name.log" 2>&1 </dev/null
}

# Describes the exit code of a program. 61 (ENODATA) and 38 (ENOSYS) mean that a provider lacks a feature.
judge() {
    case $1 in
    0) ;;
    61 | 38) echo "skipped" ;;
    *) echo "exit code $1" ;;
    esac
}

run() {
    local number=$1 provider test folder port server verdict='' code=0
    read -r provider test <<<"${tests[number % ${#tests[@]}]}"
    folder=$dir/$number
    port=$((20000 + number % 20000))
    mkdir -p "$folder"
    local words
    read -ra words <<<"$test"
    words[0]=$bin/${words[0]}
    if [[ $provider == alone ]]; then
        (program "$folder" alone "${words[@]}" -p verbs) || code=$?
        verdict=$(judge "$code")
    else
        (program "$folder" server "${words[@]}" -p "$provider" -s "$address" -B "$port") &
        server=$!
        await_listener "$port" "$server"
        (program "$folder" client "${words[@]}" -p "$provider" -P "$port" "$address") || code=$?
        verdict=$(judge "$code")
        code=0
        wait "$server" || code=$?
        [[ -n $verdict ]] || verdict=$(judge "$code")
    fi
    if [[ -z $verdict || $verdict == skipped ]]; then
        rm -rf "$folder"
        echo "${verdict:-passed} $provider $test" >>"$dir/results"
        return
    fi
    for core in "$folder"/core*; do
        [[ -f $core ]] && command -v gdb >/dev/null || continue
        gdb -batch -ex 'thread apply all bt' "${words[0]}" "$core" >"$core.stacks" 2>&1
    done
    echo "failed $provider $test" >>"$dir/results"
    echo "FAIL  $provider $test: $verdict; see $folder"
}

rushmem=${RUSHMEM:-}
if [[ -z $rushmem ]]; then
    cargo build -q --locked --release --manifest-path "$root/Cargo.toml" -p rushmem-cli || exit 1
    rushmem=${CARGO_TARGET_DIR:-$root/target}/release/rushmem
fi
ulimit -c unlimited
: >"$dir/results"
for ((number = 0; number < runs; number++)); do
    while (($(jobs -rp | wc -l) >= jobs)); do
        wait -n
    done
    run "$number" &
done
wait
count() {
    grep -c "^$1 " "$dir/results"
}
echo "$(count passed) passed, $(count skipped) skipped, $(count failed) failed; logs: $dir"
(($(count failed) == 0))
