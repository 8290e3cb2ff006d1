#!/usr/bin/env bash
# Copies the RDMA libraries of Debian's packages to a folder, for a machine that has none.
#
#     tests/rdma_libraries.sh DIR
set -euo pipefail

to=$(mkdir -p "$1" && cd "$1" && pwd)
packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT
cd "$packages"
apt-get download -q libibverbs1 ibverbs-providers libnl-3-200 libnl-route-3-200
for package in *.deb; do
    dpkg-deb -x "$package" .
done
for name in libibverbs.so.1 libmlx5.so.1 libnl-3.so.200 libnl-route-3.so.200; do
    cp -L "$(find . -name "$name" -print -quit)" "$to/$name"
done
