#!/bin/sh
# Each planted bug of products on GPUs (tests/cudasim/fake/mutants_gemm.txt) is noticed: `test_cuda_gemm_mutants.sh PROGRAM LIST`.
set -eu
run() { # MUTANT
    LT_MUTANT=$1 "$program" every_call_fails >/dev/null 2>&1
}
program=$1
n=$(grep -c '^\[' "$2") failures=0 k=1
run 0 || { echo "not ok: without a bug it fails"; exit 1; }
while [ "$k" -le "$n" ]; do
    if run "$k"; then
        echo "not ok: $(grep '^\[' "$2" | sed -n "${k}p"): nobody notices"
        failures=$((failures + 1))
    fi
    k=$((k + 1))
done
echo "$n mutants, $failures not noticed"
[ "$failures" = 0 ]
