#!/usr/bin/env bash
# Builds an image of the command `rushmem` and of programs, as an OCI archive:
#
#     deploy/image.sh FILE [PROGRAM...]
#
# Fetches Debian packages from the mirror of this machine, and nothing else. Needs mmdebstrap and buildah, and either root
# or user namespaces. `podman load -i FILE`, `skopeo copy oci-archive:FILE docker://...` and `enroot import` read the file.
set -euo pipefail

if (($# == 0)); then
    echo 'usage: deploy/image.sh FILE [PROGRAM...]' >&2
    exit 2
fi
file=$(realpath -m "$1")
mapfile -t programs < <(realpath -e "${@:2}")
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/programs"
cargo build --release --locked -p rushmem-cli --features rdma
strip -o "$folder/programs/rushmem" "${CARGO_TARGET_DIR:-target}/release/rushmem"
for program in "${programs[@]}"; do cp "$program" "$folder/programs"; done

# The libraries that the feature rdma uses, and ssh for `rushmem run --hosts`.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' | head -1)
mmdebstrap --variant=minbase --include=ibverbs-providers,librdmacm1,openssh-client bookworm "$folder/system.tar" "$mirror"

image=rushmem-$$
buildah build --quiet --isolation chroot --tag "$image" --file deploy/Containerfile "$folder"
buildah push --quiet "$image" "oci-archive:$file:rushmem"
buildah rmi "$image" >/dev/null
ls -lh "$file"
