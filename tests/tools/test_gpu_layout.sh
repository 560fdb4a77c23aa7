#!/bin/sh
# bench/gpu/kernels.py lays out by hand the structures that C passes to kernels: its layout must equal the output of bench/gpu/layout.c,
# and a planted difference must be found.
set -eu
cd "$(dirname "$0")/../.."
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
LTRAIN_GPU_BUILD=$(mktemp -d)
export LTRAIN_GPU_BUILD
trap 'rm -rf "$LTRAIN_GPU_BUILD"' EXIT
gcc -std=c11 -Isrc bench/gpu/layout.c -o "$LTRAIN_GPU_BUILD/layout"
"$LTRAIN_GPU_BUILD/layout" >"$LTRAIN_GPU_BUILD/layout.json"
python3 bench/gpu/kernels.py
sed -i 's/"loss.gradient_bf16": \([0-9]*\)/"loss.gradient_bf16": 1\1/' "$LTRAIN_GPU_BUILD/layout.json"
if python3 bench/gpu/kernels.py >"$LTRAIN_GPU_BUILD/said" 2>&1 || ! grep -q 'loss.gradient_bf16: ' "$LTRAIN_GPU_BUILD/said"; then
    echo "not ok: a member at another place is not found:"
    cat "$LTRAIN_GPU_BUILD/said"
    exit 1
fi
