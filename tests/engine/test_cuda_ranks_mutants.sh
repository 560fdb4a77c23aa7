#!/bin/sh
# Each planted bug of what ranks on GPUs send (tests/cudasim/fake/mutants_ranks.txt) is noticed on 2 ranks: `test_cuda_ranks_mutants.sh PROGRAM LIST`.
set -eu
run() { # MUTANT
    LT_MUTANT=$1 sh "$(dirname "$0")/test_ranks.sh" "$program" 2 2 >/dev/null 2>&1
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
