#!/usr/bin/env bash
# Jobs that drive the software ConnectX through libibverbs and libmlx5, on a GPU machine without cargo.
#
#     tests/gpu_rdma.sh build DIR [--rdma-core LIB]
#                                        builds here (Debian 12), and puts stripped programs, RDMA libraries and this
#                                        script into DIR; LIB is the folder with the libraries of rdma-core 54 or newer,
#                                        for data direct
#     tests/gpu_rdma.sh run DIR [--pes N] [--limit S]
#                                        runs them there, with N PEs (2), in S seconds at most (540)
#
# The other machine needs a GPU, but no network and no RDMA libraries. Every command has a deadline. A row passes if the
# program has verified its results and its job says that its queues are where the row has them. The logs are in
# DIR/logs. The exit code is 0 if every row that this machine can run has passed.
set -euo pipefail

usage() {
    sed -n '2,13s/^# \{0,1\}//p' "$0"
    exit 2
}

examples=(ring alltoall stencil)

build() {
    local dir=$1 new=${2:-} root target name
    root=$(cd "$(dirname "$0")/.." && pwd)
    target=${CARGO_TARGET_DIR:-$root/target}
    mkdir -p "$dir/lib"
    dir=$(cd "$dir" && pwd)
    [[ -z $new ]] || new=$(cd "$new" && pwd)
    cd "$root"
    cargo build --locked --release -p rushmem-cli -p rushmem-examples --features rushmem-cli/rdma,rushmem-examples/rdma
    for name in rushmem rushmem-preload "${examples[@]}"; do
        strip -o "$dir/$name" "$target/release/$name"
    done
    bash tests/rdma_libraries.sh "$dir/lib"
    if [[ -n $new ]]; then
        mkdir -p "$dir/lib-data-direct"
        cp -L "$dir"/lib/libnl-*.so.200 "$dir/lib-data-direct/"
        for name in libibverbs.so.1 libmlx5.so.1; do
            strip -o "$dir/lib-data-direct/$name" "$new/$name"
        done
    fi
    cp examples/data/chelsea.png tests/gpu_rdma.sh "$dir/"
    du -sh "$dir"
}

limit_all=540
rows=()
passed=0
failed=0
left_out=0

# Adds a row to the table: name, verdict, seconds, note.
row() {
    rows+=("$(printf '%-64s %-8s %4s  %s' "$1" "$2" "$3" "$4")")
}

# check NAME LIBRARIES FAULTS WORDS COMMAND...: runs a command below the software ConnectX, which must say these words.
check() {
    local name=$1 libraries=$2 faults=$3 words=$4 limit=$((limit_all - SECONDS)) start=$SECONDS log code=0 note verdict=ok
    shift 4
    if [[ ! -d $libraries ]]; then
        left_out=$((left_out + 1))
        row "$name" absent '' 'no libraries of rdma-core 54'
        return
    elif ((limit < 15)); then
        failed=$((failed + 1))
        row "$name" 'NOT RUN' '' 'no time left'
        return
    fi
    log=$logs/$(tr -c 'A-Za-z0-9\n' _ <<<"$name").log
    LD_LIBRARY_PATH=$PWD/$libraries timeout --kill-after=5 $((limit < 90 ? limit : 90)) \
        ./rushmem softnic --devices 2 ${faults:+--fault "$faults"} -- "$@" >"$log" 2>&1 </dev/null || code=$?
    note=$(grep -h -o -E 'PASS .*' "$log" | head -1 | cut -c1-110 || true)
    if ((code != 0)); then
        verdict=FAILED note="exit code $code: $(grep -m 1 -i -E 'error' "$log" | cut -c1-240 || tail -1 "$log")"
    elif [[ -z $note ]]; then
        verdict=FAILED note='no PASS'
    elif ! grep -q -F "$words" "$log"; then
        verdict=FAILED note="the job did not say: $words"
    fi
    if [[ $verdict == ok ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
    row "$name" "$verdict" $((SECONDS - start)) "$note"
}

run() {
    local pes=2 logs queues memory name program ring place
    cd "$1"
    shift
    while (($#)); do
        case $1 in
        --pes) pes=${2:?--pes wants a number} && shift 2 ;;
        --limit) limit_all=${2:?--limit wants seconds} && shift 2 ;;
        *) usage ;;
        esac
    done
    logs=$PWD/logs
    mkdir -p "$logs"
    # Every job loads the same PTX, so compile it once. Kernels that wait for each other need separate hardware queues.
    export RUST_BACKTRACE=0 CUDA_CACHE_MAXSIZE=$((4 << 30)) CUDA_CACHE_PATH=$PWD/cache
    export CUDA_DEVICE_MAX_CONNECTIONS=32 CUDA_MODULE_LOADING=EAGER
    nvidia-smi -L 2>/dev/null || printf 'no GPU: what follows fails\n'
    # RUSHMEM_DEVICE=native tries the script itself.
    export RUSHMEM_DEVICE=${RUSHMEM_DEVICE:-gpu} RUSHMEM_PEER_PATH=nic RUSHMEM_LOG=info
    LD_LIBRARY_PATH=$PWD/lib timeout 60 ./rushmem softnic -- ./rushmem doctor >"$logs/doctor.log" 2>&1 || true
    grep -E ' (G[0-9]|P[0-9]) ' "$logs/doctor.log" | cut -c1-200 || true

    ring=(./ring --pes "$pes")
    # Native kernels refuse `device`.
    local locations=(host device)
    [[ $RUSHMEM_DEVICE == gpu ]] || locations=(host prefer_device)
    for queues in "${locations[@]}"; do
        place=GPU
        [[ $queues != host ]] || place=host
        # The software ConnectX of a process has no rate.
        memory="(RoCE 400 Gb/s, queues in $place memory"
        for name in "${examples[@]}"; do
            program=("./$name" --pes "$pes")
            [[ $name != stencil ]] || program+=(chelsea.png --steps 100 -o "$logs/heat.png")
            check "$name, queues $queues" lib '' "$memory" env RUSHMEM_QUEUES=$queues "${program[@]}"
        done
        check "ring, queues $queues, heap host" lib '' "$memory" env RUSHMEM_QUEUES=$queues RUSHMEM_HEAP=host "${ring[@]}"
        check "ring, queues $queues, doorbells by a CPU thread" lib '' "$memory" \
            env RUSHMEM_QUEUES=$queues RUSHMEM_DOORBELL=cpu "${ring[@]}"
        check "ring, queues $queues, collapsed CQs, two QPs" lib '' "$memory" \
            env RUSHMEM_QUEUES=$queues RUSHMEM_CQ=collapsed RUSHMEM_QPS_PER_PEER=2 "${ring[@]}"
        check "ring, queues $queues, as processes" lib '' "$memory" \
            ./rushmem run -n "$pes" env RUSHMEM_QUEUES=$queues ./ring
    done
    if [[ $RUSHMEM_DEVICE == gpu ]]; then
        check 'ring, queues by dma-buf' lib '' 'putting queues into GPU memory: by dma-buf' \
            env RUSHMEM_QUEUES=device "${ring[@]}"
        check 'ring, queues by address' lib dmabuf 'putting queues into GPU memory: by address' \
            env RUSHMEM_QUEUES=device "${ring[@]}"
        check 'ring, data direct' lib-data-direct data-direct 'registering GPU memory for peers: by data direct' \
            env RUSHMEM_DATA_DIRECT=on RUSHMEM_HEAP=device "${ring[@]}"
        check 'ring, data direct refused' lib-data-direct data-direct,data-direct-memory \
            'peers access GPU memory through the NIC itself' env RUSHMEM_DATA_DIRECT=on RUSHMEM_HEAP=device "${ring[@]}"
    fi
    check 'ring, libmlx5 without data direct' lib data-direct 'traffic goes through mlx5_0' \
        env RUSHMEM_DATA_DIRECT=on "${ring[@]}"

    printf '\n%-64s %-8s %4s  %s\n' what verdict s note
    printf '%s\n' "${rows[@]}"
    printf '%d passed, %d failed, %d absent, %d s in all\n' "$passed" "$failed" "$left_out" "$SECONDS"
    ((failed == 0))
}

(($# >= 2)) || usage
case $1 in
build)
    case ${3:-} in
    '') build "$2" ;;
    --rdma-core) build "$2" "${4:?--rdma-core wants a folder}" ;;
    *) usage ;;
    esac
    ;;
run) shift && run "$@" ;;
*) usage ;;
esac
