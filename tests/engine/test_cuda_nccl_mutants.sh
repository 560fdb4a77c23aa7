#!/bin/sh
# Each planted bug of ranks whose messages NCCL carries (tests/cudasim/fake/mutants_nccl.txt) is noticed: bits differ, bytes are
# miscounted, the fake complains, or a failure does not end as it should. `test_cuda_nccl_mutants.sh RANKS FAILURES GUARD PARTS LIST`:
# programs that have the bugs; PARTS runs ltrain with a plugin that has them. By default one bug of nine is tried (a changed source makes the choice another one), on two ranks and on two cells
# of four; with LTRAIN_LONG all bugs are tried, on six cells of four ranks.
set -eu
ranks=$1 failing=$2 guard=$3 parts=$4 list=$5 long=${LTRAIN_LONG:-}
unset LTRAIN_LONG # of the list; not of what is run
here=$(dirname "$0")
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT

limit=1200 # seconds of one program; of mutants, which may hang, several times what those took that have no bug
run() { # MUTANT RANKS CELLS
    LT_MUTANT=$1 LTRAIN_TEST_SECONDS=$limit sh "$here/test_ranks.sh" "$ranks" "$2" "$3"
}

try() { # MUTANT
    { LT_MUTANT=$1 timeout -k 5 "$limit" "$guard" && run "$1" 2 2 && run "$1" 4 "$cells" && LT_MUTANT=$1 LTRAIN_TEST_SECONDS=$limit sh "$here/test_cuda_failures.sh" "$failing" mutants && LT_MUTANT=$1 timeout -k 5 "$limit" "$parts" cuda_parts; } >"$found/said$1" 2>&1 || touch "$found/$1"
}

n=$(grep -c '^\[' "$list") step=9 cells=2 failures=0 tried=0
[ -z "$long" ] || { step=1 cells=6; }
first=$((1 + $(cat "$list" "$here"/../../src/comm/cuda_nccl.c "$here"/../../src/engine/comm_guard.c | cksum | cut -d" " -f1) % step)) k=$first
began=$(date +%s)
try 0
[ ! -e "$found/0" ] || { cat "$found/said0"; echo "not ok: without a bug it fails"; exit 1; }
limit=$(($(date +%s) - began + 5)) # three times what each program took
while [ "$k" -le "$n" ]; do
    try "$k" &
    tried=$((tried + 1))
    k=$((k + step))
    [ $((tried % 2)) != 0 ] || wait
done
wait
k=$first
while [ "$k" -le "$n" ]; do
    [ -e "$found/$k" ] || { echo "not ok: $(grep '^\[' "$list" | sed -n "${k}p"): nobody notices"; failures=$((failures + 1)); }
    k=$((k + step))
done
echo "$tried of $n mutants, $failures not noticed"
[ "$failures" = 0 ]
