#!/usr/bin/env bash
# Third-party GPU programs on the software ConnectX: PyTorch with NCCL, NCCL's queues for kernels, and NVSHMEM.
#
#     tests/foreign_gpu.sh build DIR     builds here (Debian 12), and puts the programs, RDMA libraries and this script into DIR
#     tests/foreign_gpu.sh run DIR [--limit S] [--only REGEX]
#                                        runs them there, in S seconds at most (400), or only the rows whose name matches
#
# The other machine needs a GPU, the CUDA compiler, NVSHMEM, and PyTorch with NCCL. It needs no cargo, no network and no
# RDMA libraries. NVSHMEM_HOME and NCCL_HOME name other releases than Python's; kernels' queues need NCCL 2.32. Every
# command has a deadline, and a table is printed at the end. A row passes if the program has verified its results and
# its data took the path that the row names. `limit` marks what NVSHMEM itself cannot do on this machine. The logs are
# in DIR/logs, with the commands to the software ConnectX. The exit code is 0 if every row that this machine can run
# has passed.
set -euo pipefail

usage() {
    sed -n '2,14s/^# \{0,1\}//p' "$0"
    exit 2
}


build() {
    local dir=$1 root target name
    root=$(cd "$(dirname "$0")/.." && pwd)
    target=${CARGO_TARGET_DIR:-$root/target}
    mkdir -p "$dir/lib" "$dir/nvshmem"
    dir=$(cd "$dir" && pwd)
    cd "$root"
    cargo build --locked --release -p rushmem-cli
    for name in rushmem rushmem-preload; do
        strip -o "$dir/$name" "$target/release/$name"
    done
    bash tests/rdma_libraries.sh "$dir/lib"
    cp benches/nvshmem/*.cu benches/nvshmem/*.cuh tests/foreign_gpu/calls.cu "$dir/nvshmem/"
    cp benches/common.cuh tests/foreign_gpu.sh tests/foreign_gpu/nccl.py tests/foreign_gpu/gin.cc "$dir/"
    du -sh "$dir"
}

limit_all=400
only=
rows=()
passed=0
failed=0
left_out=0

# Adds a row to the table: name, verdict, seconds, note.
row() {
    rows+=("$(printf '%-62s %-8s %4s  %s' "$1" "$2" "$3" "$4")")
}

absent() {
    [[ $1 =~ $only ]] || return 0
    left_out=$((left_out + 1))
    row "$1" absent '' "$2"
}

# check NAME SECONDS WAY COMMAND...: a row. WAY is `gpu` if the adapter must copy GPU memory, `ibgda` if kernels must
# also post to the adapter, `host` if it must not copy GPU memory, or `any`.
check() {
    local name=$1 wanted=$2 way=$3 limit=$((limit_all - SECONDS)) start log code=0 regions note verdict=ok program watcher
    shift 3
    [[ $name =~ $only ]] || return 0
    if ((limit < 15)); then
        left_out=$((left_out + 1))
        row "$name" 'NOT RUN' '' 'no time left'
        return
    fi
    limit=$((wanted < limit ? wanted : limit))
    log=$logs/$(tr -c 'A-Za-z0-9\n' _ <<<"$name").log
    if [[ -n $mps ]] && ! start_mps; then
        absent "$name" 'no MPS'
        return
    fi
    start=$SECONDS
    timeout --kill-after=5 "$limit" "$@" >"$log" 2>&1 </dev/null &
    program=$!
    watch "$program" $((limit - 3)) >"${log%.log}.threads" 2>/dev/null &
    watcher=$!
    wait "$program" || code=$?
    kill "$watcher" 2>/dev/null || true
    wait "$watcher" 2>/dev/null || true
    stop_mps
    find "$logs" -name '*.process' -exec cat {} + >"${log%.log}.commands" -exec rm {} +
    regions=$(grep -c 'GPU memory is registered' "$log" || true)
    note=$(grep -h -o -E 'PASS .*' "$log" | head -1 | cut -c1-260 || true)
    if grep -Eq 'RMA/AMO verb .* not implemented|remote atomic verb .* is unsupported without' "$log"; then
        left_out=$((left_out + 1))
        row "$name" limit $((SECONDS - start)) 'ibrc of NVSHMEM has no such atomic without GDRCopy'
        return
    fi
    if ((code == 124 || code == 137)); then
        verdict=FAILED note="no end after $((SECONDS - start)) s"
    elif ((code != 0)); then
        verdict=FAILED note="exit code $code: $(reason "$log")"
    elif [[ -z $note ]]; then
        verdict=FAILED note="no PASS"
    elif [[ $way == gpu || $way == ibgda ]] && ((regions == 0)); then
        verdict=FAILED note="no GPU memory was registered; $note"
    elif [[ $way == ibgda ]] && ! grep -q 'initialized the transport: IBGDA' "$log"; then
        verdict=FAILED note="another transport was used; $note"
    elif [[ $way == host && $regions != 0 ]]; then
        verdict=FAILED note="GPU memory was registered; $note"
    fi
    note="$note [$regions GPU regions$(gpudirect "$log")]"
    if [[ $verdict == ok ]]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf -- '---- %s: %s\n' "$name" "$note"
        grep -E 'ERROR|status:|failed|WARN|^step|waited' "$log" | grep -v -E 'NCCL accordingly|NVLINK SHARP|P2P access' | tail -2 | cut -c1-240 || true
    fi
    row "$name" "$verdict" $((SECONDS - start)) "$note"
}

# After some seconds, dumps the threads of a process group: process, name, state, CPU time, and where they wait in the
# kernel.
watch() {
    local group=$1 line path sleeper
    sleep "$2" &
    sleeper=$!
    trap 'kill $sleeper; exit' TERM
    wait "$sleeper"
    for path in /proc/[0-9]*; do
        line=$(cat "$path/stat" 2>/dev/null) || continue
        # shellcheck disable=SC2086 # the words after the name
        set -- ${line##*) }
        [[ ${3:-} == "$group" ]] || continue
        for path in "$path"/task/*; do
            line=$(cat "$path/stat")
            # shellcheck disable=SC2086
            set -- ${line##*) }
            printf '%s %s %s %s %s\n' "$path" "$(cat "$path/comm")" "$1" "${12}" "$(cat "$path/wchan")"
        done
    done
}

# Prints the first line of a log that looks like the cause of a failure.
reason() {
    grep -m 1 -i -E 'wrong|error|fail|refuse|warn|cannot|abort' "$1" | cut -c1-150 || tail -1 "$1" | cut -c1-150
}

# Prints how many of NCCL's connections use GPUDirect RDMA and how many do not, if the log says so.
gpudirect() {
    local all direct
    all=$(grep -c 'via NET/IB' "$1" || true)
    direct=$(grep -c 'via NET/IB.*GDRDMA' "$1" || true)
    ((all == 0)) || printf ', GDRDMA on %d of %d connections' "$direct" "$all"
}

first() {
    local path
    for path; do
        if [[ -n $path && -e $path ]]; then
            printf '%s\n' "$path"
            return
        fi
    done
    return 1
}

describe() {
    local gpu
    printf '%s, %s, glibc %s\n' "$(date -u +%Y-%m-%d)" "$(uname -sr)" "$(ldd --version | sed -n '1s/.* //p')"
    nvidia-smi --query-gpu=name,driver_version,pci.bus_id --format=csv,noheader || true
    for gpu in /sys/bus/pci/devices/*; do
        if [[ $(cat "$gpu/vendor" 2>/dev/null) == 0x10de ]]; then
            printf 'GPU %s, class %s, NUMA node %s\n' "$(readlink -f "$gpu")" "$(cat "$gpu/class")" "$(cat "$gpu/numa_node")"
        fi
    done
    printf 'nvidia_peermem of this machine: %s\n' "$(cat /sys/module/nvidia_peermem/version 2>/dev/null || echo none)"
    python3 - <<'PYTHON' || true
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuInit(0)
for name, number in (("GPUDirect RDMA", 116), ("dma-buf", 124), ("VMM", 102), ("GPUDirect RDMA with VMM", 110)):
    value = ctypes.c_int(-1)
    code = cuda.cuDeviceGetAttribute(ctypes.byref(value), number, 0)
    print(f"driver: {name} {value.value} (code {code})")
# How the driver registers a doorbell page of the adapter, which is plain memory: as such, and as memory of a device.
import mmap, os
context = ctypes.c_void_p()
print("driver: context", cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxPushCurrent_v2(context))
file = os.memfd_create("page")
os.ftruncate(file, 4096)
page = mmap.mmap(file, 4096)
address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(page)))
for flags in (3, 7):
    code = cuda.cuMemHostRegister_v2(address, ctypes.c_size_t(4096), flags)
    print(f"driver: cuMemHostRegister of a page with flags {flags} returned {code}")
    if code == 0:
        cuda.cuMemHostUnregister(address)
PYTHON
}

nccl_rows() {
    local base=(env NCCL_NET=IB NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_DEBUG=INFO 'NCCL_DEBUG_SUBSYS=INIT,NET,ENV')
    if ! python3 -c 'import torch' 2>/dev/null; then
        absent 'NCCL' 'no PyTorch'
        return
    fi
    check 'NCCL, GPUDirect, dma-buf' 60 gpu "${softnic[@]}" "${base[@]}" NCCL_NET_GDR_LEVEL=SYS python3 nccl.py
    check 'NCCL, GPUDirect, nvidia-peermem' 60 gpu "${softnic[@]}" "${base[@]}" NCCL_NET_GDR_LEVEL=SYS NCCL_DMABUF_ENABLE=0 \
        python3 nccl.py
    check 'NCCL, no GPUDirect' 60 host "${softnic[@]}" "${base[@]}" NCCL_NET_GDR_LEVEL=LOC python3 nccl.py
}

gin_rows() {
    local handler
    if [[ -z $compiling_gin ]] || ! wait "$compiling_gin"; then
        absent 'NCCL GIN' 'no NCCL 2.32 or no nvcc'
        return
    fi
    # Handler 0 is NCCL's choice, and with 1 a CPU thread rings.
    for handler in 0 1; do
        check "NCCL GIN, kernels' queues, handler $handler" 60 any "${softnic[@]}" \
            env "LD_LIBRARY_PATH=$nccl/lib:$LD_LIBRARY_PATH" NCCL_NET=IB NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 \
            NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,ENV NCCL_NET_GDR_LEVEL=SYS NCCL_GIN_TYPE=3 \
            NCCL_GIN_GDAKI_NIC_HANDLER=$handler "$logs/gin"
    done
}

home=
nccl=
compiling=()
compiling_gin=

# Starts to compile the programs for NVSHMEM and NCCL, if they are installed.
start_nvcc() {
    local nvcc cuda library name
    nccl=$(first "${NCCL_HOME:-}" $(python3 -c 'import sys; print(*[p + "/nvidia/nccl" for p in sys.path if p])' 2>/dev/null) || true)
    home=$(first "${NVSHMEM_HOME:-}" $(python3 -c 'import sys; print(*[p + "/nvidia/nvshmem" for p in sys.path if p])' 2>/dev/null) \
        /usr/local/nvshmem || true)
    nvcc=$(first "${NVCC:-}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc || true)
    if [[ -n $nccl && -n $nvcc ]]; then
        timeout --kill-after=5 60 "$nvcc" -std=c++17 -O1 -I"$nccl/include" -o "$logs/gin" gin.cc \
            -Xlinker "$(first "$nccl"/lib/libnccl.so.2)" >"$logs/nvcc_gin.log" 2>&1 </dev/null &
        compiling_gin=$!
    fi
    [[ -n $home && -n $nvcc ]] || return 0
    ls "$home"/lib | tr '\n' ' ' && echo
    library=$(first "$home"/lib/libnvshmem_host.so "$home"/lib/libnvshmem_host.so.*)
    ln -sf "$library" "$logs/libnvshmem_host.so"
    cuda=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
    for name in workloads calls; do
        timeout --kill-after=5 150 "$nvcc" -std=c++17 -O2 -arch=sm_90 -rdc=true -I"$home/include" -o "$logs/$name" \
            "nvshmem/$name.cu" -L"$logs" -L"$home/lib" -L"$cuda/lib" -L"$cuda/lib64" -lnvshmem_host -lnvshmem_device \
            >"$logs/nvcc_$name.log" 2>&1 </dev/null &
        compiling+=($!)
    done
}

# Two PEs on one GPU need MPS.
nvshmem_rows() {
    local workloads=$logs/workloads calls=$logs/calls direct base ibrc ibgda gpunetio queues handler job
    if [[ -z ${compiling[*]} ]]; then
        absent 'NVSHMEM' 'no NVSHMEM or no nvcc'
        return
    fi
    for job in "${compiling[@]}"; do
        wait "$job" || true
    done
    for job in "$workloads" "$calls"; do
        if [[ ! -x $job ]]; then
            head -3 "$logs/nvcc_${job##*/}.log" | cut -c1-240
            row "NVSHMEM, ${job##*/}" FAILED '' 'not compiled'
            failed=$((failed + 1))
        fi
    done
    mps=yes
    # NVSHMEM supports all calls between two PEs on a GPU only if each PE has half of the multiprocessors to itself.
    direct=(env "LD_LIBRARY_PATH=$home/lib:$LD_LIBRARY_PATH" NVSHMEM_SYMMETRIC_SIZE=512M CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50)
    base=("${softnic[@]}" "${direct[@]}" NVSHMEM_DISABLE_P2P=1 NVSHMEM_DEBUG=INFO)
    ibrc=("${base[@]}" NVSHMEM_REMOTE_TRANSPORT=ibrc)
    ibgda=("${base[@]}" NVSHMEM_IB_ENABLE_IBGDA=1)
    # A failure that also occurs without the adapter does not count against the adapter.
    check 'NVSHMEM without the adapter, calls' 20 host "${direct[@]}" "$calls" atomics
    check 'NVSHMEM ibrc, calls' 30 gpu "${ibrc[@]}" "$calls" plain
    for queues in hostmem gpumem; do
        for handler in cpu_host_memory auto; do
            check "NVSHMEM ibgda, calls, queues in $queues, rung by $handler" 20 ibgda "${ibgda[@]}" \
                NVSHMEM_IBGDA_FORCE_NIC_BUF_MEMTYPE=$queues NVSHMEM_IBGDA_NIC_HANDLER=$handler "$calls" atomics
        done
    done
    check 'NVSHMEM ibrc, fft' 40 gpu "${ibrc[@]}" "$workloads" fft 2 4
    check 'NVSHMEM ibrc, calls, nvidia-peermem' 25 gpu "${ibrc[@]}" NVSHMEM_IB_DISABLE_DMABUF=1 "$calls" plain
    check 'NVSHMEM ibgda, sort' 30 ibgda "${ibgda[@]}" "$workloads" sort 2 14
    check 'NVSHMEM ibgda, fft' 30 ibgda "${ibgda[@]}" "$workloads" fft 2 4
    check 'NVSHMEM ibgda, experts' 30 ibgda "${ibgda[@]}" "$workloads" ep 2 16 512 8 2
    check 'NVSHMEM ibgda, RandomAccess' 30 ibgda "${ibgda[@]}" "$workloads" gups 2 8
    check 'NVSHMEM ibrc, sort' 20 gpu "${ibrc[@]}" "$workloads" sort 2 14
    if compgen -G "$home/lib/nvshmem_transport_gpunetio.so*" >/dev/null; then
        gpunetio=("${base[@]}" NVSHMEM_REMOTE_TRANSPORT=gpunetio)
        check 'NVSHMEM gpunetio, calls' 25 gpu "${gpunetio[@]}" "$calls" atomics
        check 'NVSHMEM gpunetio, calls by kernels' 25 any "${gpunetio[@]}" NVSHMEM_GPUNETIO_ENABLE_GDAKI=1 \
            "$calls" atomics
        check 'NVSHMEM gpunetio, sort' 25 gpu "${gpunetio[@]}" "$workloads" sort 2 14
        check 'NVSHMEM gpunetio, fft' 25 gpu "${gpunetio[@]}" "$workloads" fft 2 4
        check 'NVSHMEM gpunetio, experts' 25 gpu "${gpunetio[@]}" "$workloads" ep 2 16 512 8 2
        check 'NVSHMEM gpunetio, RandomAccess' 25 gpu "${gpunetio[@]}" "$workloads" gups 2 8
    else
        absent 'NVSHMEM gpunetio' 'this NVSHMEM has no such transport'
    fi
    check 'NCCL, GPUDirect, MPS' 60 gpu "${softnic[@]}" env NCCL_NET=IB NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_DEBUG=INFO \
        NCCL_NET_GDR_LEVEL=SYS python3 nccl.py
    mps=
}

# Whether rows need MPS, and the folder of the daemon while it runs.
mps=
daemon=

# Starts MPS. Each row has a separate daemon: after a client exits while its kernel runs, the server's next client gets
# a fatal error.
start_mps() {
    command -v nvidia-cuda-mps-control >/dev/null || return 1
    # The path of a socket must be short.
    daemon=$logs/mps${#rows[@]}
    mkdir -p "$daemon"
    export CUDA_MPS_PIPE_DIRECTORY=$daemon CUDA_MPS_LOG_DIRECTORY=$daemon
    timeout 10 nvidia-cuda-mps-control -d >/dev/null 2>&1 </dev/null
}

stop_mps() {
    local left=50
    [[ -n $daemon ]] || return 0
    timeout 5 nvidia-cuda-mps-control <<<'quit -t 1' >/dev/null 2>&1 || true
    while ((left-- > 0)) && [[ -e $daemon/nvidia-cuda-mps-control.pid ]] && kill -0 "$(cat "$daemon/nvidia-cuda-mps-control.pid")" 2>/dev/null; do
        sleep 0.1
    done
    daemon=
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}

run() {
    local dir
    dir=$(cd "$1" && pwd)
    shift
    while (($#)); do
        case $1 in
        --limit) limit_all=${2:?--limit wants seconds} && shift 2 ;;
        --only) only=${2:?--only wants a regular expression} && shift 2 ;;
        *) usage ;;
        esac
    done
    cd "$dir"
    logs=$dir/logs
    rm -rf "$logs"
    mkdir -p "$logs"
    chmod +x rushmem rushmem-preload
    # libibverbs finds the device's driver through this variable, and the driver is the library itself.
    ln -sf "$dir/lib/libmlx5.so.1" "$logs/libmlx5-rdmav34.so"
    export IBV_DRIVERS=$logs/libmlx5 LD_LIBRARY_PATH=$dir/lib:${LD_LIBRARY_PATH:-} CUDA_MODULE_LOADING=EAGER
    softnic=(env RUSHMEM_UVERBS_LOG=debug ./rushmem softnic --record "$logs/%p.process" --)
    start_nvcc
    describe
    nvshmem_rows
    gin_rows
    nccl_rows
    printf '\n%-62s %-8s %4s  %s\n' what verdict s note
    printf '%s\n' "${rows[@]}"
    printf '%d passed, %d failed, %d absent or not run, %d s in all\n' "$passed" "$failed" "$left_out" "$SECONDS"
    ((failed == 0))
}

(($# >= 2)) || usage
case $1 in
build) build "$2" ;;
run) shift && run "$@" ;;
*) usage ;;
esac
