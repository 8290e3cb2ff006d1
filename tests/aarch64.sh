#!/usr/bin/env bash
# Runs unit tests of the crates that run on any processor for aarch64, by emulation:
#
#     bash tests/aarch64.sh [--pages BYTES] [PACKAGE...]
#
# With --pages 65536, the system has pages of 64 KiB, as many kernels for Grace have.
#
# Needs Debian 12 with the packages rustc-web, gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user-static. Fetches
# the standard library for aarch64 as a Debian package.
set -euo pipefail
cd "$(dirname "$0")/.."

pages=()
if [[ ${1:-} == --pages ]]; then
    pages=(-p "$2")
    shift 2
fi
packages=("$@")
if ((${#packages[@]} == 0)); then
    packages=(rushmem-mlx5 rushmem-device rushmem-native rushmem-machine rushmem-memory rushmem-sanitizer rushmem-softnic
        rushmem-bootstrap rushmem-fabric rushmem)
fi
# What the emulator lacks: the option IP_MTU_DISCOVER of sockets, and the order of signals and stopped processes.
lacking=(fuzz::tests::any_packets fuzz::tests::fuzz_corpus fuzz::tests::likely_entries_over_the_wire
    fuzz::tests::likely_packets link::udp:: transport::dc::tests:: transport::wire::tests::
    stopped::tests:: waits::signal::tests::)
# With larger pages than those of this system, the emulator maps files wrongly whose lengths are not whole pages, among
# them programs, which backtraces read.
if ((${#pages[@]} > 0)); then
    lacking+=(stall::tests::finds_the_source_line_of_a_stalled_lane p2p::tests::
        machine::file::tests::mappings_share_memory_and_outlive_the_owner)
    export RUST_BACKTRACE=0
fi

folder="${CARGO_TARGET_DIR:-target}/aarch64"
mkdir -p "$folder"
folder=$(realpath "$folder")

# A sysroot with the standard libraries of both processors, of the same compiler.
if [[ ! -d $folder/sysroot ]]; then
    version=$(dpkg-query -W -f '${Version}' libstd-rust-web-dev)
    mkdir -p "$folder/lists/partial" "$folder/archives/partial"
    options=(-o "APT::Architectures::=arm64" -o "Dir::State::lists=$folder/lists" -o Debug::NoLocking=true
        -o "APT::Sandbox::User=")
    apt-get "${options[@]}" -q update
    (cd "$folder/archives" && apt-get "${options[@]}" -q download "libstd-rust-web-dev:arm64=$version")
    dpkg-deb -x "$folder"/archives/*.deb "$folder/unpacked"
    mkdir -p "$folder/sysroot.partial/lib/rustlib"
    ln -s /usr/lib/rustlib/x86_64-unknown-linux-gnu "$folder/unpacked/usr/lib/rustlib/aarch64-unknown-linux-gnu" \
        "$folder/sysroot.partial/lib/rustlib"
    mv "$folder/sysroot.partial" "$folder/sysroot"
fi
printf '#!/bin/sh\nexec /usr/bin/rustc --sysroot %q "$@"\n' "$folder/sysroot" >"$folder/rustc"
chmod +x "$folder/rustc"

export RUSTC="$folder/rustc" RUSHMEM_PTX=none
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static ${pages[*]} -L /usr/aarch64-linux-gnu"
cargo test --locked --no-fail-fast --target aarch64-unknown-linux-gnu --target-dir "$folder/target" --lib \
    "${packages[@]/#/-p}" -- "${lacking[@]/#/--skip=}"
