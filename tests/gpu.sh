#!/usr/bin/env bash
# The test suites on a GPU machine without cargo.
#
#     tests/gpu.sh build DIR             builds here, and puts stripped programs and this script into DIR; with
#                                        RUSHMEM_PTX_CUBIN=sm_90 they start without compiling PTX first
#     tests/gpu.sh deaths DIR TIMES PES      kills a random PE of TIMES jobs
#     tests/gpu.sh losses DIR FIRST LAST PES [ROUNDS]
#                                        kills a PE of jobs that go on without it, at a moment that the seeds from FIRST
#                                        to LAST choose
#     tests/gpu.sh replacements DIR KILLS PES [ROUNDS [SETTING...]]
#                                        kills random processes of a job that starts others in their place
#     tests/gpu.sh cuts DIR SECONDS PES  lets the ports of software NICs go down and up
#     tests/gpu.sh run DIR [--pes N] [--limit S]
#                                        runs them there, with N PEs for the examples (2), in S seconds at most (540)
#                                        with RUSHMEM_GPU_ARCH=sm_80 by the PTX of GPUs older than Hopper, which the
#                                        driver compiles; a build with RUSHMEM_PTX_CUBIN=sm_80:sm_90 has it compiled
#
# Every command has a deadline. At the end a table shows what passed, failed and did not run. The exit code is 0 if
# nothing failed and everything that this machine can run was run.
set -euo pipefail

usage() {
    sed -n '2,20s/^# \{0,1\}//p' "$0"
    exit 2
}

# Self-contained test programs: package and target.
suites=('rushmem-tests api' 'rushmem-litmus litmus' 'rushmem-ep exchange')
examples=(ring alltoall gups sort fft kv stencil jacobi)

build() {
    local dir=$1 root target name package program
    root=$(cd "$(dirname "$0")/.." && pwd)
    target=${CARGO_TARGET_DIR:-$root/target}
    # The PTX of tests is built only on request and needs a PTX compiler. Without one, the build fails and names the
    # remedy.
    export RUSHMEM_PTX=${RUSHMEM_PTX:-all}
    [[ $RUSHMEM_PTX == all || $RUSHMEM_PTX == build ]] ||
        printf 'RUSHMEM_PTX=%s: the test kernels run natively only\n' "$RUSHMEM_PTX"
    mkdir -p "$dir"
    cd "$root"
    [[ $dir == /* ]] || dir=$OLDPWD/$dir
    cargo build --locked --release -p rushmem-cli -p rushmem-examples -p rushmem-litmus -p rushmem-ep
    for name in rushmem litmus rushmem-ep-bench "${examples[@]}"; do
        strip -o "$dir/$name" "$target/release/$name"
    done
    for name in "${suites[@]}"; do
        package=${name% *} name=${name#* }
        program=$(RUSHMEM_PTX_DC=1 cargo test --locked --release -p "$package" --test "$name" --no-run --message-format=json |
            sed -n 's/.*"name":"'"$name"'".*"executable":"\([^"]*\)".*/\1/p' | tail -1)
        [[ -x $program ]] || { printf 'no test program %s\n' "$name" >&2 && exit 1; }
        strip -o "$dir/suite-$name" "$program"
    done
    RUSHMEM_PTX_FAILOVER=1 cargo build --locked --release -p rushmem-tests -p rushmem-examples --bin suite_pe --bin survive
    for name in suite_pe survive; do
        strip -o "$dir/$name" "$target/release/$name"
    done
    cp examples/data/chelsea.png tests/gpu.sh "$dir/"
    du -sh "$dir"
}

passed=0
failed=0
absent=0
skipped=0
rows=()
limit_all=540

# Prints the seconds that a command may take: what it asks for, limited to what is left. Fails if nothing is left.
allowed() {
    local left=$((limit_all - SECONDS))
    ((left > 5)) || return 1
    printf '%d' $((left < $1 ? left : $1))
}

not_run() {
    skipped=$((skipped + 1))
    row "$1" 'NOT RUN' '' '' '' ''
}

row() {
    rows+=("$(printf '%-58s %-8s %8s %8s %8s %6s' "$1" "$2" "$3" "$4" "$5" "$6")")
}

# check NAME SECONDS COMMAND...: a command that passes or fails.
check() {
    local name=$1 limit start=$SECONDS verdict=ok
    limit=$(allowed "$2") || { not_run "$name" && return; }
    shift 2
    if ! timeout --kill-after=10 "$limit" "$@" >"$log" 2>&1; then
        verdict=FAILED
        failed=$((failed + 1))
        printf -- '---- %s: exit code or deadline (%s s)\n' "$name" "$limit"
        tail -40 "$log"
    else
        passed=$((passed + 1))
    fi
    row "$name" "$verdict" '' '' '' $((SECONDS - start))
}

# suite NAME SECONDS THREADS PROGRAM ARGUMENTS...: runs a test program and counts its tests.
suite() {
    local name=$1 threads=$3 limit start=$SECONDS verdict=ok counts ok bad ignored
    limit=$(allowed "$2") || { not_run "$name" && return; }
    shift 3
    timeout --kill-after=10 "$limit" "$@" --test-threads="$threads" >"$log" 2>&1 || verdict=FAILED
    counts=$(sed -n 's/^test result: .* \([0-9]*\) passed; \([0-9]*\) failed; \([0-9]*\) ignored.*/\1 \2 \3/p' "$log" | tail -1)
    if [[ -z $counts ]]; then
        # Killed at its deadline, or crashed: count what it had done by then.
        counts="$(grep -c '^test .* ok$' "$log" || true) $(($(grep -c '^test .* FAILED$' "$log" || true) + 1)) 0"
        verdict=FAILED
    fi
    read -r ok bad ignored <<<"$counts"
    # All tests may pass while the program, or a tool that watches it, fails.
    [[ $verdict == ok ]] || bad=$((bad > 0 ? bad : 1))
    passed=$((passed + ok))
    failed=$((failed + bad))
    if [[ $verdict != ok ]]; then
        printf -- '---- %s\n' "$name"
        # The message of a panic is on the line after it.
        grep -E -A1 '^(test .*(FAILED|has been running)|---- |thread |.*panicked|.*Error)' "$log" | head -60 || true
        tail -5 "$log"
    fi
    row "$name" "$verdict" "$ok" "$bad" "$ignored" $((SECONDS - start))
}

missing() {
    absent=$((absent + 1))
    row "$1" 'absent' '' '' '' ''
}

# Runs processes concurrently on the first GPU, with an MPS daemon that serves only them.
side_by_side() {
    local daemon n queues
    daemon=$(command -v nvidia-cuda-mps-control || true)
    if [[ -z $daemon || $RUSHMEM_DEVICE != gpu ]]; then
        missing 'MPS'
        return
    fi
    export CUDA_MPS_PIPE_DIRECTORY=$log.mps CUDA_MPS_LOG_DIRECTORY=$log.mps RUSHMEM_GPUS=0
    mkdir -p "$log.mps"
    # The daemon would otherwise inherit the open descriptors.
    "$daemon" -d >/dev/null 2>&1 </dev/null
    # The launcher divides the hardware queues.
    local launch=(env -u CUDA_DEVICE_MAX_CONNECTIONS ./rushmem run)
    for n in 2 4 8; do
        check "litmus, $n PEs as processes on one GPU, MPS" 60 "${launch[@]}" -n "$n" ./litmus
    done
    check 'stencil, 4 PEs as processes on one GPU, MPS' 60 "${launch[@]}" -n 4 "./${stencil[0]}" "${stencil[@]:1}"
    check 'doctor, a job of 4 PEs on one GPU, MPS' 60 "${launch[@]}" -n 4 ./rushmem doctor --job
    for queues in host device; do
        check "ports flap, 2 PEs on one GPU, MPS, queues $queues" 60 env -u CUDA_DEVICE_MAX_CONNECTIONS \
            bash "$0" cuts . 4 2 queues="$queues"
    done
    echo quit | "$daemon" >/dev/null
    rm -rf "$log.mps"
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY RUSHMEM_GPUS
}

# Kills a random PE of a job whose kernels wait for each other, again and again: the launcher must name the PE and end
# within 10 s, and the GPUs must serve the next job.
random_deaths() {
    local times=$1 pes=$2 victims victim job n
    for ((n = 1; n <= times; n++)); do
        ./rushmem run -n "$pes" ./jacobi --size 128 --steps 100000000 --launch-steps 1000000 >"$log.job" 2>&1 &
        job=$!
        sleep "$((2 + RANDOM % 2)).$((RANDOM % 10))"
        mapfile -t victims < <(pgrep -P "$job" -x jacobi)
        ((${#victims[@]} == pes)) || { printf 'death %d: %d of %d PEs run\n' "$n" "${#victims[@]}" "$pes" && cat "$log.job" && return 1; }
        victim=$((RANDOM % pes))
        kill -9 "${victims[victim]}"
        timeout 10 tail --pid="$job" -f /dev/null || { printf 'death %d: the job goes on\n' "$n" && kill -9 "$job" "${victims[@]}" && return 1; }
        ! wait "$job" || { printf 'death %d: exit code 0\n' "$n" && return 1; }
        grep -q "PE $victim" "$log.job" || { printf 'death %d: PE %d is not named\n' "$n" "$victim" && cat "$log.job" && return 1; }
    done
    ./rushmem run -n "$pes" ./ring
}

# losses FIRST LAST PES ROUNDS: kills a PE of jobs that go on without it, and prints how long the others have waited at most.
losses() {
    local first=$1 last=$2 pes=$3 rounds=$4 seed victim job pid paths=(nic p2p) waits=() came=0
    for ((seed = first; seed <= last; seed++)); do
        RANDOM=$seed
        victim=$((RANDOM % pes))
        ./rushmem run -n "$pes" --set peer_path="${paths[seed % 2]}" --set timeout=60s ./survive --rounds "$rounds" \
            >"$log.job" 2>&1 &
        job=$!
        until [[ $(grep -c ready "$log.job") == "$pes" ]]; do
            kill -0 "$job" || { cat "$log.job" && return 1; }
            sleep 0.02
        done
        sleep "0.$(printf '%03d' $((RANDOM % 400)))"
        pid=$(sed -n "s/.*ready $victim //p" "$log.job")
        kill -9 "$pid" 2>/dev/null && came=$((came + 1))
        timeout 60 tail --pid="$job" -f /dev/null || { printf 'seed %d: the job hangs\n' "$seed" && cat "$log.job" && kill -9 "$job" && return 1; }
        wait "$job" || { printf 'seed %d: the job failed\n' "$seed" && cat "$log.job" && return 1; }
        # A PE that was killed too late has finished like the others.
        [[ $(grep -c "$rounds rounds, 0 wrong words" "$log.job") -ge $((pes - 1)) ]] ||
            { printf 'seed %d: not all others are right\n' "$seed" && cat "$log.job" && return 1; }
        grep -q "lost $victim," "$log.job" && waits+=("$(sed -n 's/.*longest wait \([0-9.]*\) ms/\1/p' "$log.job" | sort -n | tail -1)")
    done
    printf '%d jobs, %d PEs killed, %d losses noticed; longest waits in ms: ' $((last - first + 1)) "$came" "${#waits[@]}"
    printf '%s\n' "${waits[@]}" | sort -n | awk '{w[NR] = $1} END {print "median " w[int((NR + 1) / 2)] ", most " w[NR]}'
}

# replacements KILLS PES ROUNDS SETTING...: kills random processes of a job that starts others in their place.
replacements() {
    local kills=$1 pes=$2 rounds=$3 job i pid setting settings=()
    for setting in timeout=60s "${@:4}"; do
        settings+=(--set "$setting")
    done
    : >"$log.job"
    timeout 200 ./rushmem run -n "$pes" --respawn "$kills" "${settings[@]}" ./survive --rounds "$rounds" >"$log.job" 2>&1 &
    job=$!
    for ((i = 0; i <= kills; i++)); do
        until (($(grep -c 'ready [0-9]' "$log.job") == pes + i)); do
            kill -0 "$job" 2>/dev/null || { cat "$log.job" && return 1; }
            sleep 0.1
        done
        ((i < kills)) || break
        sleep "0.$((RANDOM % 10))"
        # The last process of a random PE.
        pid=$(sed -n "s/.*ready $((RANDOM % pes)) //p" "$log.job" | tail -1)
        kill -9 "$pid" || { cat "$log.job" && return 1; }
    done
    wait "$job" || { cat "$log.job" && return 1; }
    (($(grep -c 'rounds, 0 wrong words' "$log.job") == pes)) || { cat "$log.job" && return 1; }
    printf '%d processes were killed and replaced; longest waits in ms:' "$kills"
    sed -n 's/.*longest wait \([0-9.]*\) ms/ \1/p' "$log.job" | tr -d '\n'
    printf '\n'
}

# cuts SECONDS PES [SETTING...]: runs all kinds of operations while the ports of software NICs go down and up.
cuts() {
    local seconds=$1 pes=$2 setting settings=()
    for setting in peer_path=nic failover=on nics_per_pe=2 ack_timeout=2ms timeout=20s block_qps=16 exclusive_qps=16 \
        'softnic_fault=port_flaps_us=150000' "${@:3}"; do
        settings+=(--set "$setting")
    done
    ./rushmem run -n "$pes" "${settings[@]}" ./suite_pe cuts "$seconds"
}

run() {
    local dir pes=2 heap name path sanitizer
    dir=$(cd "$1" && pwd)
    shift
    while (($#)); do
        case $1 in
        --pes) pes=${2:?--pes wants a number} && shift 2 ;;
        --limit) limit_all=${2:?--limit wants seconds} && shift 2 ;;
        *) usage ;;
        esac
    done
    cd "$dir"
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    # Every job loads the same PTX, so compile it once. Kernels that wait for each other need separate hardware queues,
    # and test programs have too many threads to set that up themselves.
    export RUST_BACKTRACE=0 CUDA_CACHE_MAXSIZE=$((4 << 30)) CUDA_CACHE_PATH=$dir/cache
    export CUDA_DEVICE_MAX_CONNECTIONS=32 CUDA_MODULE_LOADING=EAGER
    nvidia-smi -L 2>/dev/null || printf 'no GPU: what follows fails, or runs natively with RUSHMEM_DEVICE=native\n'
    export RUSHMEM_DEVICE=${RUSHMEM_DEVICE:-gpu}
    ./rushmem info | sed -n '/^Found/,/^Settings/p' | sed '$d'
    check 'doctor' 60 ./rushmem doctor
    check "doctor, a job of $pes PEs" 60 ./rushmem run -n "$pes" ./rushmem doctor --job
    local heaps=(device host)
    [[ $RUSHMEM_DEVICE == gpu ]] || heaps=(auto)

    local stencil=(stencil "$dir/chelsea.png" --steps 200 -o "$log.png")
    for heap in "${heaps[@]}"; do
        export RUSHMEM_HEAP=$heap
        check "ring, $pes PEs as threads, heap $heap" 60 ./ring --pes "$pes"
        check "alltoall, $pes PEs as threads, heap $heap" 60 ./alltoall --pes "$pes"
        check "gups, $pes PEs as threads, heap $heap" 60 ./gups --pes "$pes"
        check "sort, $pes PEs as threads, heap $heap" 60 ./sort --pes "$pes"
        check "fft, $pes PEs as threads, heap $heap" 60 ./fft --pes "$pes"
        check "kv, $pes PEs as threads, heap $heap" 60 ./kv --pes "$pes" --memory symmetric
        check "kv, $pes PEs as threads, heap $heap, own host memory" 60 ./kv --pes "$pes" --memory registered
        if [[ $RUSHMEM_DEVICE == gpu ]]; then
            for memory in cuda vmm; do
                check "kv, $pes PEs as threads, heap $heap, $memory" 60 ./kv --pes "$pes" --memory "$memory"
                check "kv, $pes PEs as processes, heap $heap, $memory" 60 ./rushmem run -n "$pes" ./kv --memory "$memory"
            done
        fi
        check "stencil, $pes PEs as threads, heap $heap" 60 "./${stencil[0]}" --pes "$pes" "${stencil[@]:1}"
        check "jacobi, $pes PEs as threads, heap $heap" 60 ./jacobi --pes "$pes" --size 64
        check "jacobi, $pes PEs as threads, heap $heap, analytic" 60 ./jacobi --pes "$pes" --size 128 --analytic
        check "jacobi, $pes PEs as threads, heap $heap, 2-D, no graph" 60 ./jacobi --pes "$pes" --two-d --no-graph
        check "jacobi, $pes PEs as threads, heap $heap, NIC" 60 env RUSHMEM_PEER_PATH=nic ./jacobi --pes "$pes" --steps 20
        check "ring, $pes PEs as processes, heap $heap" 60 ./rushmem run -n "$pes" ./ring
        check "alltoall, $pes PEs as processes, heap $heap" 60 ./rushmem run -n "$pes" ./alltoall
        check "sort, $pes PEs as processes, heap $heap" 60 ./rushmem run -n "$pes" ./sort
        check "fft, $pes PEs as processes, heap $heap" 60 ./rushmem run -n "$pes" ./fft
        check "stencil, $pes PEs as processes, heap $heap" 60 ./rushmem run -n "$pes" "./${stencil[0]}" "${stencil[@]:1}"
        check "jacobi, $pes PEs as processes, heap $heap" 60 ./rushmem run -n "$pes" ./jacobi --size 64
        check "litmus, $pes PEs as processes, heap $heap" 120 ./rushmem run -n "$pes" ./litmus
    done
    unset RUSHMEM_HEAP
    check "20 random deaths among $pes PEs" 240 bash "$0" deaths "$dir" 20 "$pes"
    check "20 jobs go on after losses among $pes PEs" 240 bash "$0" losses "$dir" 1 20 "$pes"
    check "10 processes among $pes PEs are replaced, p2p" 240 bash "$0" replacements "$dir" 10 "$pes" 5000000 peer_path=p2p
    check "10 processes among $pes PEs are replaced, nic" 240 bash "$0" replacements "$dir" 10 "$pes" 800000 peer_path=nic failover=on
    for path in p2p nic; do
        check "experts of 3 processes are replaced, $path" 60 ./rushmem run -n "$pes" --respawn 100 --set membership=live \
            --set timeout=20s --set peer_path="$path" ./suite_pe experts 3
    done
    side_by_side
    rm -f "$log.png"

    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null || true)
    if [[ -z $sanitizer ]]; then
        missing 'compute-sanitizer'
    else
        # Kernels run far slower under it.
        local memcheck=(env RUSHMEM_TIMEOUT=60s "$sanitizer" --tool memcheck --error-exitcode 9)
        check "memcheck: ring, $pes PEs as threads" 90 "${memcheck[@]}" ./ring --pes "$pes" --count 4096
        check "memcheck: stencil, $pes PEs as threads" 90 "${memcheck[@]}" "./${stencil[0]}" --pes "$pes" \
            "$dir/chelsea.png" --steps 10 -o "$log.png"
        suite 'memcheck: api, signals' 120 1 "${memcheck[@]}" ./suite-api suite::signals
        suite 'memcheck: api, small collectives' 60 1 "${memcheck[@]}" ./suite-api suite::collectives::lengths_around
        rm -f "$log.png"
    fi

    # Excludes what needs the source tree or the sanitizer. P2P peers need GPU memory, which most tests of the API use.
    # The paths of the litmus tests mostly wait, so run them side by side: they allocate only at their start and end,
    # which waits for the kernels of others. The other suites finish sooner one at a time.
    suite "api, heap ${heaps[0]}" 300 1 env SUITE_VARIATIONS=all RUSHMEM_HEAP="${heaps[0]}" ./suite-api --skip listed
    for heap in "${heaps[@]}"; do
        local without=()
        [[ $heap != host ]] || without=(--skip p2p --skip collect::)
        suite "litmus, heap $heap" 120 1 env RUSHMEM_HEAP="$heap" ./suite-litmus --include-ignored --skip listed:: --skip sanitized:: --skip paths:: "${without[@]}"
        suite "litmus paths, heap $heap" 300 8 env RUSHMEM_HEAP="$heap" ./suite-litmus --include-ignored paths:: "${without[@]}"
    done

    suite 'dispatch and combine of experts' 120 1 ./suite-exchange

    printf '\n%-58s %-8s %8s %8s %8s %6s\n' what verdict passed failed ignored s
    printf '%s\n' "${rows[@]}"
    printf '%d passed, %d failed, %d not run for want of time, %d absent, %d s in all\n' \
        "$passed" "$failed" "$skipped" "$absent" "$SECONDS"
    ((failed + skipped == 0))
}

(($# >= 2)) || usage
case $1 in
build) build "$2" ;;
run) shift && run "$@" ;;
deaths)
    cd "$2" && log=$(mktemp) && trap 'rm -f "$log" "$log.job"' EXIT
    random_deaths "$3" "$4"
    ;;
losses)
    cd "$2" && log=$(mktemp) && trap 'rm -f "$log" "$log.job"' EXIT
    losses "$3" "$4" "$5" "${6:-60000}"
    ;;
replacements)
    cd "$2" && log=$(mktemp) && trap 'rm -f "$log" "$log.job"' EXIT
    replacements "$3" "$4" "${5:-5000000}" "${@:6}"
    ;;
cuts) cd "$2" && cuts "$3" "$4" "${@:5}" ;;
*) usage ;;
esac
