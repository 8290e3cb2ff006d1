#!/usr/bin/env bash
# Measures and verifies Rushmem next to NVSHMEM, NCCL and DOCA GPUNetIO, and next to what a GPU does without any
# library. Prints tables with ratios and targets.
#
#     benches/run.sh [--out DIR]    builds and runs here
#     benches/run.sh --pack DIR     builds here, and puts all that a machine without cargo needs into DIR;
#                                   there, DIR/run.sh [--out DIR] runs
#
# NVSHMEM is looked for in $NVSHMEM_HOME, in Python's packages and in the usual places, NCCL in $NCCL_HOME, in Python's
# packages and in the usual places, GPUNetIO's headers in
# $GPUNETIO_HEADERS and in Python's packages (wheel nvidia-nccl-cu13), the CUDA compiler in $NVCC, the PATH and
# /usr/local/cuda. $NVSHMEM_HOME may name several releases, with colons; each one found is measured. What is not there is said
# to be absent. With one GPU, the PEs of both libraries are processes under MPS. Without a GPU only our half runs, natively.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

fail() {
    printf 'benches/run.sh: %s\n' "$*" >&2
    exit 1
}

# Prints the commit of a checkout. An exported source tree has none.
commit_of() {
    git -C "$1" log -1 --format=%h 2>/dev/null || printf 'unknown\n'
}

out=
pack=
while (($#)); do
    case $1 in
    --out) out=${2:?--out wants a folder} && shift 2 ;;
    --pack) pack=${2:?--pack wants a folder} && shift 2 ;;
    *) fail "unknown option $1; there are --out DIR and --pack DIR" ;;
    esac
done

# Where our programs and data are: next to a packed script, or where cargo puts them.
if [[ -x $here/rushmem ]]; then
    [[ -z $pack ]] || fail 'this is packed already'
    bin=$here
else
    root=$here/..
    # The PTX of benchmarks is built only on request and needs a PTX compiler: build it on a machine with a GPU, and for
    # a pack. Without a compiler, the build fails and names the remedy.
    if [[ -n $pack ]] || nvidia-smi -L >/dev/null 2>&1; then
        export RUSHMEM_PTX=${RUSHMEM_PTX:-all}
        [[ $RUSHMEM_PTX == all || $RUSHMEM_PTX == build ]] ||
            printf 'RUSHMEM_PTX=%s: the benchmarks run natively only\n' "$RUSHMEM_PTX"
    fi
    (cd "$root" && cargo build --locked --release -p rushmem-cli -p rushmem-gpunetio)
    bin=${CARGO_TARGET_DIR:-$root/target}/release
fi

if [[ -n $pack ]]; then
    mkdir -p "$pack/nvshmem" "$pack/nccl" "$pack/bounds"
    for program in rushmem rushmem-gpunetio-posting; do
        strip -o "$pack/$program" "$bin/$program"
    done
    cp "$here"/nvshmem/*.cu "$here"/nvshmem/*.cuh "$pack/nvshmem/"
    cp "$here"/nccl/*.cu "$here"/nccl/*.cuh "$pack/nccl/"
    cp "$here"/*.cuh "$pack/"
    cp "$here"/bounds/*.cu "$here"/bounds/*.cuh "$pack/bounds/"
    cp "$here"/targets*.json "$here/run.sh" "$pack/"
    commit_of "$root" >"$pack/commit"
    du -sh "$pack"
    exit
fi

out=${out:-$PWD/perf-results}
mkdir -p "$out"
rm -f "$out"/*.json "$out"/*.svg "$out"/plan*

# Prints the first of some paths that exists.
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

site_packages() {
    python3 -c 'import site, sys; print("\n".join(site.getsitepackages() + [site.getusersitepackages()] + sys.path))' 2>/dev/null || true
}
mapfile -t sites < <(site_packages | sort -u | sed '/^$/d')

# Prints the NCCL version of a header nccl.h, if it is one.
version_of_nccl() {
    sed -n 's/^#define NCCL_\(MAJOR\|MINOR\) *\([0-9]*\)$/\2/p' "$1" 2>/dev/null | paste -sd. || true
}

# Whether version $1 is known and older than $2.
is_older() {
    [[ -n $1 && $1 != "$2" && $(printf '%s\n' "$1" "$2" | sort -V | head -1) == "$1" ]]
}

# Runs a step with a deadline in seconds. Its output also goes to a log.
step() {
    local name=$1 limit=$2 start=$SECONDS
    shift 2
    printf '\n== %s\n' "$name"
    if timeout --kill-after=10 "$limit" "$@"; then
        printf '   %d s\n' $((SECONDS - start))
    else
        printf '   FAILED (exit code %d) after %d s\n' $? $((SECONDS - start))
        return 1
    fi
}

# For a program whose table is printed later.
quietly=(bash -c '"$@" >/dev/null' --)

gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
printf '%s, %s\n' "$(date -u +%Y-%m-%d)" "$(uname -sr)"
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | sort | uniq -c || true
((gpus > 0)) || printf 'no GPU: kernels run natively, and the figures are of this CPU\n'
((gpus == 0)) || printf '%d x %s, driver %s, commit %s, %s\n' "$gpus" \
    "$(nvidia-smi --query-gpu=name --format=csv,noheader -i 0)" \
    "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader -i 0)" \
    "$(cat "$here/commit" 2>/dev/null || commit_of "$here")" "$(date -u +%Y-%m-%d)" >"$out/machine.txt"

nvcc=$(first "${NVCC:-}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc || true)
arch=sm_90
((gpus == 0)) || arch=sm_$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader -i 0 | tr -d '. ')
failed=0

# Without MPS, two processes on one GPU take turns. This MPS daemon serves our processes only.
ours_runs=("$bin/rushmem" perf --pes 2)
if ((gpus == 1)) && command -v nvidia-cuda-mps-control >/dev/null; then
    export CUDA_MPS_PIPE_DIRECTORY=$out/mps CUDA_MPS_LOG_DIRECTORY=$out/mps
    mkdir -p "$out/mps"
    nvidia-cuda-mps-control -d
    trap 'echo quit | nvidia-cuda-mps-control >/dev/null' EXIT
    ours_runs=("$bin/rushmem" run -n 2 "$bin/rushmem" perf)
fi

# Ours. A row that transfers wrong data stops the run.
threads=()
((gpus == 0)) || threads=(--threads 256,512)
step 'Rushmem, 2 PEs' 300 "${quietly[@]}" "${ours_runs[@]}" "${threads[@]}" --json "$out/rushmem-2.json"
"$bin/rushmem" perf --pes 2 "${threads[@]}" --list >"$out/plan-2"
ours=(--from "$out/rushmem-2.json")
plans=(2)
if ((gpus >= 4)); then
    collectives=(barrier_all sync_all broadcast fcollect alltoall reduce stream)
    step 'Rushmem, 4 PEs' 60 "${quietly[@]}" "$bin/rushmem" perf --pes 4 "${collectives[@]}" --json "$out/rushmem-4.json"
    "$bin/rushmem" perf --pes 4 "${collectives[@]}" --list >"$out/plan-4"
    ours+=(--from "$out/rushmem-4.json")
    plans+=(4)
fi

# NVSHMEM: our program over its device interface, with each release.
beside=()
releases=()
IFS=: read -ra named <<<"${NVSHMEM_HOME:-}"
for path in "${named[@]}" "${sites[@]/%//nvidia/nvshmem}" /usr/local/nvshmem /opt/nvshmem; do
    [[ -z $path || ! -d $path/lib || " ${releases[*]} " == *" $path "* ]] || releases+=("$path")
done
measure_nvshmem() {
    local nvshmem=$1 built=$2 library cuda pes
    # Wheels contain the library under its versioned name only.
    mkdir -p "$built"
    library=$(first "$nvshmem"/lib/libnvshmem_host.so "$nvshmem"/lib/libnvshmem_host.so.* || fail "no library in $nvshmem/lib")
    ln -sf "$library" "$built/libnvshmem_host.so"
    cuda=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
    step "NVSHMEM in $nvshmem: build" 180 "$nvcc" -std=c++17 -O3 -arch="$arch" -rdc=true -I"$nvshmem/include" \
        -o "$built/perf" "$here/nvshmem/perf.cu" -L"$built" -L"$nvshmem/lib" -L"$cuda/lib" -L"$cuda/lib64" \
        -lnvshmem_host -lnvshmem_device || return 1
    if ((gpus == 0)) || ((gpus == 1)) && [[ -z ${CUDA_MPS_PIPE_DIRECTORY:-} ]]; then
        printf 'NVSHMEM: built, but it wants two GPUs, or one with MPS\n'
        return
    fi
    for pes in "${plans[@]}"; do
        # PEs that share a GPU have no collective calls on streams.
        local without='^$'
        ((gpus >= pes)) || without='^stream_'
        grep -v "$without" "$out/plan-$pes" >"$built-plan-$pes"
        step "NVSHMEM, $pes PEs" 150 env LD_LIBRARY_PATH="$nvshmem/lib:${LD_LIBRARY_PATH:-}" \
            "$built/perf" "$built-plan-$pes" "$built-$pes.json" || return 1
        beside+=(--compare "$built-$pes.json")
    done
}
if ((${#releases[@]} == 0)); then
    printf '\nNVSHMEM: absent (set NVSHMEM_HOME)\n'
elif [[ -z $nvcc ]]; then
    printf '\nNVSHMEM: not built, since there is no nvcc (set NVCC)\n'
fi
for release in "${!releases[@]}"; do
    [[ -z $nvcc ]] || measure_nvshmem "${releases[release]}" "$out/nvshmem-$release" || failed=1
done

# NCCL: our programs over its host interface and over its device API. With newer releases, ranks may share a GPU.
beside_nccl=()
beside_device=()
# Measures one kind of calls, with a command before the program.
measure_nccl() {
    local kind=$1 pes=$2 results=$out/nccl-$1-$2.json
    shift 2
    if [[ $kind == device ]]; then
        step "NCCL's device API, $pes ranks" 240 "$@" "$out/nccl-device" "$out/plan-$pes" "$results" || return 1
        beside_device+=(--compare "$results")
    else
        step "NCCL, $pes ranks, $kind" 240 "$@" "$out/nccl-perf" "$out/plan-$pes" "$results" "$kind" || return 1
        beside_nccl+=(--compare "$results")
    fi
}
nccl_home=$(first "${NCCL_HOME:-}" "${sites[@]/%//nvidia/nccl}" /usr/local/nccl || true)
[[ -n $nccl_home || ! -e /usr/include/nccl.h ]] || nccl_home=/usr
if [[ -z $nccl_home ]]; then
    printf '\nNCCL: absent (set NCCL_HOME)\n'
elif [[ -z $nvcc ]]; then
    printf '\nNCCL: not built, since there is no nvcc (set NVCC)\n'
else
    nccl=$(version_of_nccl "$nccl_home/include/nccl.h")
    # Wheels contain the library under its versioned name only.
    library=$(first "$nccl_home"/lib/libnccl.so "$nccl_home"/lib/libnccl.so.2 "$nccl_home"/lib/x86_64-linux-gnu/libnccl.so.2 ||
        fail "no library in $nccl_home/lib")
    ln -sf "$library" "$out/libnccl.so"
    flags=(-std=c++17 -O3 -arch="$arch" --extended-lambda -I"$nccl_home/include" -L"$out" -lnccl)
    export LD_LIBRARY_PATH=$(dirname "$library"):${LD_LIBRARY_PATH:-}
    kinds=()
    if step 'NCCL: build' 120 "$nvcc" -o "$out/nccl-perf" "$here/nccl/perf.cu" "${flags[@]}"; then
        kinds+=(plain)
        is_older "$nccl" 2.27 || kinds+=(windows)
    else
        failed=1
    fi
    if [[ ! -e $nccl_home/include/nccl_device.h ]]; then
        printf "NCCL's device API: absent: the headers of NCCL %s are older than 2.28 (set NCCL_HOME)\n" "$nccl"
    elif step "NCCL's device API: build" 120 "$nvcc" -o "$out/nccl-device" "$here/nccl/device.cu" "${flags[@]}"; then
        kinds+=(device)
    else
        failed=1
    fi
    ((gpus > 0)) || printf 'NCCL: not measured, since there is no GPU\n'
    for pes in "${plans[@]}"; do
        ((gpus > 0)) || break
        shared=()
        if ((gpus < pes)); then
            if is_older "$nccl" 2.30; then
                printf 'NCCL, %d ranks: not measured: ranks of NCCL %s cannot share a GPU, those of 2.30 can (set NCCL_HOME)\n' \
                    "$pes" "$nccl"
                continue
            fi
            shared=(env NCCL_MULTI_RANK_GPU_ENABLE=1)
        fi
        for kind in "${kinds[@]}"; do
            measure_nccl "$kind" "$pes" "${shared[@]}" || failed=1
        done
    done
fi

# DOCA GPUNetIO: our program over its device interface and over ours, into queues that no NIC executes.
"$bin/rushmem" perf --pes 2 post --list >"$out/plan-posting"
poster=("$bin/rushmem-gpunetio-posting" --nvcc "${nvcc:-nvcc}" --plan "$out/plan-posting")
posting=()
beside_posting=()
if ((gpus == 0)); then
    printf '\nPosting without a NIC is not measured: there is no GPU\n'
elif step 'Rushmem, posting' 60 "${poster[@]}" --ours "$out/posting.json"; then
    posting=(--from "$out/posting.json")
else
    failed=1
fi
headers=$(first "${GPUNETIO_HEADERS:-}" "${sites[@]/%//nvidia/nccl/include/nccl_device/gin/gdaki/doca_gpunetio}" || true)
# Earlier versions take different arguments. Headers without NCCL around them do not tell their version.
nccl=$(version_of_nccl "${headers:-/}/../../../../nccl.h")
recordless=()
beside_recordless=()
if ((gpus > 0)); then
    if step 'Rushmem, posting without doorbell records' 60 "${poster[@]}" --no-record --ours "$out/posting-no-record.json"; then
        recordless=(--from "$out/posting-no-record.json")
    else
        failed=1
    fi
fi
if [[ -z $headers ]]; then
    printf '\nGPUNetIO: absent (set GPUNETIO_HEADERS; the headers are in the wheel nvidia-nccl-cu13)\n'
elif is_older "$nccl" 2.32; then
    printf '\nGPUNetIO: absent: the headers of NCCL %s are older than 2.32 (set GPUNETIO_HEADERS)\n' "$nccl"
elif [[ -z $nvcc ]]; then
    printf '\nGPUNetIO: not built, since there is no nvcc (set NVCC)\n'
elif ! step 'GPUNetIO: build' 60 "${poster[@]}" --headers "$headers" --compile "$out/gpunetio.ptx"; then
    failed=1
elif ((gpus == 0)); then
    printf 'GPUNetIO: built, but there is no GPU\n'
elif step 'GPUNetIO' 60 "${poster[@]}" --ptx "$out/gpunetio.ptx" --theirs "$out/gpunetio.json"; then
    beside_posting=(--compare "$out/gpunetio.json")
    if step 'GPUNetIO without doorbell records' 60 "${poster[@]}" --no-record --ptx "$out/gpunetio.ptx" \
        --theirs "$out/gpunetio-no-record.json"; then
        beside_recordless=(--compare "$out/gpunetio-no-record.json")
    else
        failed=1
    fi
else
    failed=1
fi

# The limits: the least time that a GPU needs for each operation, without any library.
if [[ -z $nvcc ]]; then
    printf '\nBounds: not built, since there is no nvcc (set NVCC)\n'
elif ! step 'bounds: build' 60 "$nvcc" -std=c++17 -O3 -arch="$arch" -o "$out/bounds" "$here/bounds/bounds.cu"; then
    failed=1
elif ((gpus == 0)); then
    printf 'bounds: built, but there is no GPU\n'
elif ! step 'bounds' 60 "$out/bounds"; then
    failed=1
fi

printf '\n== results (in %s)\n\n' "$out"
targets=()
((${#beside[@]} == 0)) || targets=(--targets "$here/targets.json")
"$bin/rushmem" perf "${ours[@]}" "${beside[@]}" "${targets[@]}" --json "$out/rushmem.json" --plot "$out/perf.svg"
if ((${#beside_nccl[@]} > 0)); then
    printf '\n== collective calls on streams, beside NCCL\n\n'
    "$bin/rushmem" perf "${ours[@]}" "${beside_nccl[@]}" --targets "$here/targets-nccl.json"
fi
if ((${#beside_device[@]} > 0)); then
    printf "\n== in kernels, beside NCCL's device API\n\n"
    "$bin/rushmem" perf "${ours[@]}" "${beside_device[@]}"
fi
if ((${#posting[@]} > 0)); then
    printf '\n== posting into queues in GPU memory that nobody executes\n\n'
    targets=()
    ((${#beside_posting[@]} == 0)) || targets=(--targets "$here/targets-posting.json")
    "$bin/rushmem" perf "${posting[@]}" "${beside_posting[@]}" "${targets[@]}"
fi
if ((${#recordless[@]} > 0)); then
    printf '\n== the same without doorbell records\n\n'
    "$bin/rushmem" perf "${recordless[@]}" "${beside_recordless[@]}"
fi
printf '\n%d s in all\n' "$SECONDS"
exit "$failed"
