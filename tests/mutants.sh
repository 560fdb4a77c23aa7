#!/bin/sh
# Checks that a command passes, and fails with each planted bug of a list (tests/cudasim/fake/plant.py): `mutants.sh LIST COMMAND...`.
set -eu
ulimit -c 0
export CMOCKA_TEST_ABORT=1 # the first failure ends the program
list=$1
shift
n=$(grep -c '^\[' "$list") failures=0 k=1
LT_MUTANT=0 "$@" >/dev/null 2>&1 || { echo "not ok: without a bug it fails"; exit 1; }
while [ "$k" -le "$n" ]; do
    if LT_MUTANT=$k "$@" >/dev/null 2>&1; then
        echo "not ok: $(grep '^\[' "$list" | sed -n "${k}p"): nobody notices"
        failures=$((failures + 1))
    fi
    k=$((k + 1))
done
echo "$n mutants, $failures not noticed"
[ "$failures" = 0 ]
