#!/usr/bin/env bash
# Third-party programs on the software ConnectX, unmodified as packaged by PyPI, crates.io and Debian.
#
#     tests/foreign.sh [DIR]      installs into DIR, or a new temporary folder, and runs each program there
#
# Each program prints a line with PASS, FAIL or SKIP, and why. It verifies its own data, or a program in
# `tests/foreign/` does. The logs are in DIR/logs. The exit code is 0 if no program has failed. Needs cargo, cc, python3
# with venv, and network access for pip and cargo. `tests/foreign_gpu.sh` covers programs that need a GPU.
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
dir=${1:-$(mktemp -d)}
mkdir -p "$dir/logs"
dir=$(cd "$dir" && pwd)
sources=$root/softnic/uverbs/tests
failed=0

row() {
    printf '%-4s  %-34s %s\n' "$1" "$2" "${3:-}"
    [[ $1 != FAIL ]] || failed=$((failed + 1))
}

# install PACKAGE...: installs from PyPI into a separate folder, because the packages of two MPIs have the same names.
install() {
    local environment=$dir/$1
    shift
    [[ -d $environment ]] || python3 -m venv "$environment" || return 1
    timeout 600 "$environment/bin/pip" install -q "$@" >>"$dir/logs/pip.log" 2>&1
}

# verify NAME LOG COMMAND...: a row that passes if the command exits with 0 and prints "all good" or PASS.
verify() {
    local name=$1 log=$dir/logs/$2 code=0
    shift 2
    timeout --kill-after=5 300 "$@" >"$log" 2>&1 </dev/null || code=$?
    if ((code == 0)) && grep -q -E 'all good|all data is right|PASS|test result: ok' "$log"; then
        row PASS "$name"
    else
        row FAIL "$name" "exit code $code: $(tail -n 1 "$log" | cut -c1-120)"
    fi
}

# Waits until a process listens on a port of rdma_cm.
await_listener() {
    local left=600
    while ((left-- > 0)); do
        ! grep -q "rushmem-rdmacm/listen/0106/$1/" /proc/net/unix || return 0
        sleep 0.05
    done
    return 1
}

# mpi NAME: tests the MPI of a wheel with our test program.
mpi() {
    local name=$1 bin=$dir/$1/bin
    shift
    if ! install "$name" "$name"; then
        row SKIP "$name (PyPI)" 'pip cannot install it'
    elif ! "$bin/mpicc" -O1 -o "$dir/$name-test" "$sources/mpi.c" >"$dir/logs/$name-cc.log" 2>&1; then
        row FAIL "$name (PyPI)" "$(head -n 1 "$dir/logs/$name-cc.log" | cut -c1-120)"
    else
        verify "$name (PyPI)" "$name.log" "${softnic[@]}" env "$@" "$bin/mpiexec" -n 2 "$dir/$name-test"
    fi
}

mooncake() {
    local name='Mooncake transfer engine (PyPI)'
    if ! install mooncake mooncake-transfer-engine-non-cuda numpy; then
        row SKIP "$name" 'pip cannot install it'
    elif ! "$dir/mooncake/bin/python" -c 'import mooncake.engine' 2>"$dir/logs/mooncake-import.log"; then
        row SKIP "$name" "$(tail -n 1 "$dir/logs/mooncake-import.log" | cut -c1-120)"
    else
        verify "$name" mooncake.log "${softnic[@]}" "$dir/mooncake/bin/python" "$root/tests/foreign/mooncake_write.py"
    fi
}

nixl() {
    local name='NIXL (PyPI)'
    if ! install nixl --no-deps nixl-cu12 numpy; then
        row SKIP "$name" 'pip cannot install it'
    elif ! "$dir/nixl/bin/python" -c 'import nixl_cu12._bindings' 2>"$dir/logs/nixl-import.log"; then
        row SKIP "$name" "$(tail -n 1 "$dir/logs/nixl-import.log" | cut -c1-120)"
    else
        verify "$name" nixl.log "${softnic[@]}" env UCX_TLS=rc,ud "$dir/nixl/bin/python" "$root/tests/foreign/nixl_read.py"
    fi
}

# The package of a crate contains its tests.
sideway() {
    local name='sideway (crates.io)' source
    mkdir -p "$dir/sideway/src"
    printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\nsideway = "0.4"\n[workspace]\n' \
        >"$dir/sideway/Cargo.toml"
    : >"$dir/sideway/src/lib.rs"
    if ! (cd "$dir/sideway" && timeout 300 cargo vendor -q >/dev/null 2>"$dir/logs/sideway-fetch.log"); then
        row SKIP "$name" "cargo cannot fetch it: $(tail -n 1 "$dir/logs/sideway-fetch.log" | cut -c1-80)"
        return
    fi
    source=$dir/sideway/vendor/sideway
    # It is a separate package, not a member of the workspace around it.
    grep -q '^\[workspace\]' "$source/Cargo.toml" || printf '\n[workspace]\n' >>"$source/Cargo.toml"
    if ! (cd "$source" && timeout 600 cargo test -q --no-run >"$dir/logs/sideway-build.log" 2>&1); then
        row SKIP "$name" "it does not build here: $(grep -m 1 -E '^error|unable' "$dir/logs/sideway-build.log" | cut -c1-100)"
        return
    fi
    (cd "$source" && verify "$name" sideway.log "${softnic[@]}" cargo test -q)
}

fio_rdma() {
    local name='fio, engine rdma (Debian)' port=17741 server
    if ! command -v fio >/dev/null || ! fio --enghelp 2>/dev/null | grep -q rdma; then
        row SKIP "$name" 'no fio with the engine rdma'
        return
    fi
    local common=(--ioengine=rdma --port="$port" --bs=64k --size=8m)
    timeout 60 "${softnic[@]}" fio --name=receiver "${common[@]}" --rw=read >"$dir/logs/fio-server.log" 2>&1 </dev/null &
    server=$!
    await_listener "$port"
    timeout 60 "${softnic[@]}" fio --name=sender "${common[@]}" --rw=write --verb=write --hostname=127.0.0.1 \
        --iodepth=4 >"$dir/logs/fio-client.log" 2>&1 </dev/null
    if wait "$server" && grep -q 'err= 0' "$dir/logs/fio-client.log"; then
        row PASS "$name"
    else
        row FAIL "$name" "$(grep -m 1 -i err "$dir/logs/fio-client.log" | cut -c1-120)"
    fi
}

# Plain sockets as rsockets, with librspreload.so preloaded before and after the software ConnectX.
rsockets() {
    local library server port=17751 preload name
    library=$(find /usr/lib /usr/lib64 -name librspreload.so 2>/dev/null | head -n 1)
    if [[ -z $library ]] || ! cc -O1 -o "$dir/sockets" "$sources/sockets.c"; then
        row SKIP 'rsockets (Debian)' 'no librspreload.so of librdmacm1, or no cc'
        return
    fi
    for preload in "$own_library:$library" "$library:$own_library"; do
        name='rsockets, preloaded last'
        [[ $preload != "$library":* ]] || name='rsockets, preloaded first'
        port=$((port + 1))
        timeout 60 "${softnic[@]}" env LD_PRELOAD="$preload" "$dir/sockets" "$port" >"$dir/logs/sockets.log" 2>&1 &
        server=$!
        if await_listener "$port"; then
            verify "$name" sockets-client.log "${softnic[@]}" env LD_PRELOAD="$preload" "$dir/sockets" "$port" client
        else
            row FAIL "$name" 'no rsocket listens'
        fi
        wait "$server" || row FAIL "$name, the server" "$(tail -n 1 "$dir/logs/sockets.log")"
    done
}

cargo build -q --locked --release --manifest-path "$root/Cargo.toml" -p rushmem-cli || exit 1
target=${CARGO_TARGET_DIR:-$root/target}/release
softnic=("$target/rushmem" softnic --)
own_library=$target/rushmem-preload

mpi mpich
mpi openmpi OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mooncake
nixl
sideway
fio_rdma
rsockets
row SKIP fabtests 'no registry has a package of it; tests/fabtests.sh runs a build of its source'
echo "logs: $dir/logs"
((failed == 0))
