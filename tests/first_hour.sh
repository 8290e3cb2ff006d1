#!/usr/bin/env bash
# Walks through a user's first hour and a stranger's attacks, and prints one line for each point:
#
#     bash tests/first_hour.sh TESTS.log
#
# TESTS.log is the output of `cargo test --workspace`, with and without `-- --ignored`. Some points are demonstrated
# here, others by tests that the log must list as `ok`. Needs the programs in `target/release` and the PTX compiler, as
# in `.ci/run`.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

log=${1:?usage: bash tests/first_hour.sh TESTS.log}
root=$PWD
release=$root/target/release
rushmem=$release/rushmem
[[ -f $log && -x $rushmem ]] || {
    printf 'first_hour.sh: %s and %s must exist: see .ci/run\n' "$log" "$rushmem" >&2
    exit 2
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Programs that this script runs use its settings only.
for name in ${!RUSHMEM_*}; do unset "$name"; done
export RUSHMEM_DEVICE=native RUSHMEM_TIMEOUT=30s

# point TEXT FUNCTION...: prints whether a point holds, that is whether FUNCTION succeeds. The last line of its output
# is the reason if not.
failed=0
point() {
    local text=$1 why
    shift
    if why=$("$@" 2>&1); then
        printf 'ok   %s\n' "$text"
    else
        printf 'FAIL %s: %s\n' "$text" "$(tail -n 1 <<<"$why")"
        failed=$((failed + 1))
    fi
}

# Whether all tests with these names have passed.
passed() {
    local name
    for name in "$@"; do
        grep -qE "test ([A-Za-z0-9_]+::)*$name \.\.\. ok$" "$log" || {
            echo "no test $name has passed"
            return 1
        }
    done
}

# Runs a command that must exit with a code in $1 (such as 0, or 1-3) and print each of the following words up to `--`.
expect() {
    local codes=$1 words=() output code word
    shift
    while [[ $1 != -- ]]; do
        words+=("$1")
        shift
    done
    shift
    output=$(timeout 60 "$@" 2>&1 </dev/null)
    code=$?
    ((code >= ${codes%-*} && code <= ${codes#*-})) || {
        echo "\`${*##*/}\` ended with code $code, and said: $(tail -n 3 <<<"$output" | tr '\n' ' ')"
        return 1
    }
    for word in ${words[@]+"${words[@]}"}; do
        grep -qF -e "$word" <<<"$output" || {
            echo "\`${*##*/}\` does not say \"$word\", but: $(tail -n 3 <<<"$output" | tr '\n' ' ')"
            return 1
        }
    done
}

# Runs cargo in a project, reusing what the tests have built. Compiles nothing for GPUs.
project_cargo() {
    (cd "$work/$1" && RUSHMEM_PTX=none CARGO_TARGET_DIR=$root/target cargo "${@:2}" --offline)
}

# Creates the project of `rushmem new`, with the application and the kernels of tests/first_hour.
new_project() {
    (cd "$work" && "$rushmem" new "$1" --path "$root" >/dev/null) || return
    cp "$root/tests/first_hour/main.rs" "$work/$1/src/main.rs" &&
        cp "$root/tests/first_hour/kernels.rs" "$work/$1/src/kernels.rs"
}

app() { expect "${@:1:$#-1}" -- "$root/target/debug/first-hour" "${@: -1}"; }

build_app() {
    new_project first-hour && project_cargo first-hour build --quiet
}

# The build script alone compiles the kernels for GPUs, so the runtime is not built again.
refused_ptx() {
    new_project first-ptx || return
    echo 'fn main() {}' >"$work/first-ptx/src/main.rs"
    sed -i '/^rushmem = /d' "$work/first-ptx/Cargo.toml"
    ! (cd "$work/first-ptx" && CARGO_TARGET_DIR=$root/target cargo build --offline --quiet) \
        >"$work/refused" 2>&1
}

panic_is_found() {
    passed checks_kernels_with_panic_in_their_names accepts_calls_of_user_functions_with_panic_in_their_names &&
        expect 0 'in `no_panic_reduce`: ' -- cat "$work/refused"
}

line_is_named() {
    local line
    line=$(grep -n 'table\[at\]' "$work/first-ptx/src/kernels.rs" | cut -d : -f 1)
    passed names_the_line_of_the_source &&
        expect 0 "src/kernels.rs:$line:" 'use `get`' -- cat "$work/refused"
}

variables_are_known() {
    passed every_environment_variable_is_in_the_settings_table &&
        expect 0 PASS -- env RUSHMEM_PTX_CUBIN=1 RUSHMEM_PES=1 "$release/hello"
}

failures_are_told() {
    passed dropped_failed_launch_fails_the_job &&
        expect 0 INFO -- env RUSHMEM_LOG=info RUSHMEM_PES=1 "$release/hello" &&
        RUSHMEM_TIMEOUT=300ms app 1 'Error: ' wait_in_vain dropped
}

error_is_text() {
    expect 1 'Error: ' 'lower RUSHMEM_HEAP_BYTES' -- env RUSHMEM_HEAP_BYTES=900TiB "$release/hello" || return
    local fields
    fields=$(RUSHMEM_HEAP_BYTES=900TiB "$release/hello" 2>&1 | grep -F '{')
    [[ -z $fields ]] || { echo "the fields of the error are printed: $fields"; return 1; }
}

many_pes() {
    passed starts_256_pes_as_threads_within_16_mib_each starts_256_pes_as_processes \
        failure_of_64_pes_is_reported_once failure_of_64_processes_is_reported_once
}

launched_perf() {
    passed launcher_can_start_the_pes_of_every_benchmark error_keeps_the_results_and_names_the_benchmark &&
        expect 0 -- "$rushmem" run -n 2 "$rushmem" perf signal init --rounds 2 --json "$work/perf.json" &&
        expect 0 '"signal"' '"init"' -- cat "$work/perf.json"
}

own_project() {
    passed project_passes_its_test_and_runs_with_every_launch_method
}

structures() {
    passed kernel_receives_every_field_of_a_struct_argument && app 0 '[0, 7, 7]' structure
}

one_order() { app 0 '[15, 5, 10]' order; }

leader_errors() {
    passed leader_error_reaches_its_group && app 1 'there is no PE 99' leader &&
        grep -q '^## Errors that only a leader meets$' docs/porting.md
}

parts_of_the_command() {
    expect 0 mlx5_0 -- env -i PATH=/usr/bin:/bin target/ci/installed/bin/rushmem softnic -- ibv_devices || return
    (cd "$work/first-hour" && CARGO_TARGET_DIR=$root/target cargo build --offline -p rushmem >"$work/again" 2>&1)
    ! grep 'Compiling rushmem ' "$work/again" || { echo 'another value of RUSHMEM_PTX builds the runtime again'; return 1; }
}

endless_loops() {
    RUSHMEM_KERNEL_LIMIT=1s RUSHMEM_ABORT_LIMIT=500ms app 1 'kernel loop_for_ever' 'check its loops' loop
}

blocked_threads() {
    passed unstoppable_kernel_terminates_its_process kernel_that_ignores_job_abort_terminates_its_process \
        endless_kernel_leaves_no_process_running stopped_process_is_killed_after_the_job_fails \
        panic_aborts_kernels_of_the_same_pe
}

native_crashes() {
    app 1 'PE 0' 'kernel no_panic_reduce' 'index out of bounds' panic &&
        app 139 'PE 0: kernel recurse: lane' 'raise RUSHMEM_NATIVE_STACK' recursion
}

architectures() {
    passed older_gpus_get_stronger_fences only_hopper_and_newer_get_one_way_fences rejects_older_gpus &&
        expect 0 '.target sm_75' -- cat host/committed/rushmem_runtime_kernels.ptx &&
        expect 0 '.target sm_75' -- cat examples/committed/rushmem_example_kernels.ptx
}

messages() {
    passed error_names_mismatched_collective_calls error_names_a_pe_that_returned_early mistakes_with_ptx_are_one_clear_error \
        cause_printed_by_the_pe_is_not_repeated startup_connection_failures_are_reported_once &&
        RUSHMEM_TIMEOUT=300ms app 1 'kernel wait_in_vain' wait &&
        app 1 'kernel use_missing_words' 'elements 2..99 of an object of ' slice
}

plots() {
    passed values_have_ticks_at_1_2_and_5 draws_a_curve_for_each_grid_and_program rows_wrap_at_the_width_of_the_terminal &&
        expect 0 RUSHMEM_HEAP_BYTES -- "$rushmem" explain heap_bytes
}

documents() {
    passed porting_guide_names_existing_items listed_items_and_tests_exist &&
        grep -q '^//! ```' host/src/lib.rs && grep -q 'nvshmemx_collective_launch' docs/porting.md
}

kept_contexts() {
    passed memory_misuse_does_not_compile launch_rejects_a_stale_handle_in_a_struct_argument \
        exclusive_context_has_one_owner \
        concurrent_kernels_do_not_share_a_block_context || return
    local attack
    for attack in context_kept context_released context_shared forged forged_call; do
        [[ -s tests/tests/refused/$attack.stderr ]] || { echo "no test refuses $attack"; return 1; }
    done
}

# Starts PE $3 of 2 manually, with the ID $1 on port $2, running the remaining arguments as its command.
by_hand() { RUSHMEM_ID=$1 RUSHMEM_PE=$2 RUSHMEM_N_PES=2 exec timeout 60 "${@:3}"; }

# Waits until a file contains some words.
wait_for() {
    local i
    for ((i = 0; i < 300; i++)); do
        grep -qsF "$1" "$2" && return
        sleep 0.1
    done
    echo "no \"$1\" within 30 s"
    return 1
}

idle_connections() {
    local port id first second i
    port=$((20000 + RANDOM % 10000))
    id=$("$rushmem" id --at "127.0.0.1:$port") || return
    by_hand "$id" 0 "$release/hello" >"$work/idle.0" 2>&1 &
    first=$!
    for ((i = 0; i < 300; i++)); do
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
        sleep 0.1
    done
    for ((i = 0; i < 80; i++)); do
        local fd
        exec {fd}<>"/dev/tcp/127.0.0.1/$port" || return
    done
    by_hand "$id" 1 "$release/hello" >"$work/idle.1" 2>&1 &
    second=$!
    wait "$first" && wait "$second" && grep -q PASS "$work/idle.0" && grep -q PASS "$work/idle.1" && passed \
        idle_connections_do_not_stop_a_job slow_bytes_do_not_extend_the_deadline logs_one_line_with_a_count_per_interval
}

random_keys() {
    passed packet_numbers_and_keys_are_random && grep -qi 'encrypt' docs/security.md
}

launcher_listens() {
    passed failing_pe_stops_the_start_of_the_others signal_stops_the_start_of_pes &&
        expect 3 'cannot start 100000 PEs' -- bash -c 'ulimit -n 256; exec "$0" run -n 100000 true' "$rushmem"
}

death_of_pe_0() {
    local id first second code
    id=$("$rushmem" id) || return
    RUSHMEM_ID=$id RUSHMEM_PE=0 RUSHMEM_N_PES=2 "$root/target/debug/first-hour" wait >"$work/death.0" 2>&1 &
    first=$!
    by_hand "$id" 1 "$root/target/debug/first-hour" wait >"$work/death.1" 2>&1 &
    second=$!
    wait_for ready "$work/death.0" && wait_for ready "$work/death.1" || return
    kill -9 "$first"
    wait "$second"
    code=$?
    ((code == 1)) && expect 0 'PE 0 was lost' -- cat "$work/death.1" && passed loss_of_the_server_names_its_pe
}

lost_network() {
    passed wait_timeout_names_the_failed_qp deadline_names_the_kernel_and_the_failed_qp \
        dead_link_error_names_the_peer oversized_packet_is_reported_instead_of_a_lost_pe
}

# A picture that claims to have 60000 x 60000 pixels.
claim='\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\xea\x60\0\0\xea\x60\x08\x02\0\0\0\x0f\xb0\xe2\x15'
claim+='\0\0\0\x08IDAT\x78\x9c\x03\0\0\0\0\x01\x48\x06\x89\xd2\0\0\0\0IEND\xae\x42\x60\x82'
memory_is_checked() {
    printf "$claim" >"$work/huge.png"
    passed rejects_allocations_larger_than_the_address_space rejects_a_png_that_claims_too_many_pixels &&
        expect 1-3 rror -- bash -c 'ulimit -v 400000; RUSHMEM_HEAP_BYTES=1GiB exec "$0"' "$release/hello" &&
        expect 1-3 'bytes of memory' -- "$release/stencil" "$work/huge.png" -o "$work/heat.png" &&
        expect 2-3 -- "$rushmem" run -n 4294967295 "$release/hello"
}

refused_ptx || echo 'first_hour.sh: the kernel that may panic was accepted'
build_app || echo 'first_hour.sh: the application does not build'

point 'a kernel named no_panic_reduce is checked for panics' panic_is_found
point 'variables of the build are no unknown settings of a job' variables_are_known
point 'RUSHMEM_LOG needs no call, and a dropped launch that fails is an error' failures_are_told
point 'a main that returns an error prints its text' error_is_text
point 'many PEs start, and tell one cause once' many_pes
point 'a launcher can start rushmem perf, which writes its results' launched_perf
point 'rushmem new writes a project that passes its test and runs' own_project
point 'a refused kernel names its line and the remedy' line_is_named
point 'structures, sizes and flags are arguments, without unsafe code' structures
point 'kernels, hosts and streams have one order of arguments' one_order
point 'an error that only a leader meets reaches its group' leader_errors
point 'an installed command has all its parts, and RUSHMEM_PTX builds no runtime again' parts_of_the_command
point 'a loop that never ends ends the job' endless_loops
point 'a native kernel that panics or overflows its stack is named' native_crashes
point 'messages name the kernel, the call and the PE' messages
point 'plots have round ticks and a curve for each grid, and settings are explained' plots
point 'the documents have an example, families and a porting guide' documents
point 'the committed PTX is for Turing and newer' architectures
point 'safe code cannot keep, share or forge a context' kept_contexts
point '80 idle connections do not stop a job' idle_connections
point 'packet numbers and keys differ between jobs' random_keys
point 'the launcher listens while it starts PEs, and refuses too many' launcher_listens
point 'the death of PE 0 is named without a launcher' death_of_pe_0
point 'a lost network is named as the cause' lost_network
point 'memory that is not there is an error, and no crash' memory_is_checked
point 'a kernel that blocks its thread ends with its process' blocked_threads

((failed == 0)) || {
    printf '%d points do not hold\n' "$failed"
    exit 1
}
