#!/usr/bin/env bash
# Builds a wheel, installs it into a temporary virtual environment, and runs the tests. Natively: needs no GPU.
#
# Arguments are passed to pytest. PROFILE=release builds the wheel that users get; the default builds faster. With
# TRITON='3.5.1 3.9.0', the wheel has the device functions, and kernels are compiled with these versions of Triton and
# with Numba. CUTE=4.8.1 does the same with that version of CuTe DSL.
set -euo pipefail
cd "$(dirname "$0")"
export RUSHMEM_PTX="${RUSHMEM_PTX:-none}" RUSHMEM_DEVICE=native
profile="${PROFILE:-dev}"

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
export PATH="$folder/venv/bin:$PATH" VIRTUAL_ENV="$folder/venv"
pip install --quiet --disable-pip-version-check maturin numpy pytest

if [ -n "${TRITON:-}${CUTE:-}" ]; then
    cargo run --quiet --package rushmem-ptx -- library python/rushmem/device sm_90
fi
maturin build --quiet --profile "$profile" --out "$folder/wheels"
pip install --quiet --disable-pip-version-check "$folder"/wheels/*.whl

# The launcher, for tests with several processes.
cargo build --quiet --profile "$profile" --package rushmem-cli
target="$(cargo metadata --format-version 1 --no-deps --offline | python -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')"
export PATH="$target/$([ "$profile" = dev ] && echo debug || echo "$profile"):$PATH"

# Not in this folder, where `python/rushmem` has no extension module.
root="$PWD"
cd "$folder"
python -m pytest "$root/tests" -p no:cacheprovider "$@"
for version in ${TRITON:-}; do
    pip install --quiet --disable-pip-version-check "triton==$version"
    TRITON_CACHE_DIR="$folder/triton" python -m pytest "$root"/tests/test_{triton,examples}.py -p no:cacheprovider
done
if [ -n "${TRITON:-}" ]; then
    pip install --quiet --disable-pip-version-check 'numba-cuda[cu13]'
    python -m pytest "$root/tests/test_examples.py" -k numba -p no:cacheprovider
fi
if [ -n "${CUTE:-}" ]; then
    pip install --quiet --disable-pip-version-check "nvidia-cutlass-dsl==$CUTE"
    python -m pytest "$root/tests/test_cute.py" -p no:cacheprovider
fi
