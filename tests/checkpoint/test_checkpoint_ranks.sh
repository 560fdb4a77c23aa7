#!/bin/sh
# Checkpoints of several ranks of this machine: `test_checkpoint_ranks.sh PROGRAM meshes|positions|faults|kills [--long]`.
set -eu
. "$(dirname "$0")/../mpi.sh"
program=$1 what=$2 long=${3:-}
[ "${LTRAIN_LONG:-}" ] && long=--long
base=/dev/shm
[ -w "$base" ] && [ "$what" != kills ] || base=${TMPDIR:-/tmp}
dir=$(mktemp -d "$base/ltrain-ckpt-XXXXXX")
trap 'rm -rf "$dir"' EXIT
seconds=1000
[ "$long" ] && seconds=3000

ranks() { # N ARGUMENT...
    n=$1
    shift
    # shellcheck disable=SC2086 # a list of words
    timeout -k 5 "$seconds" $mpi -n "$n" "$program" "$@"
}

case $what in
meshes)
    ranks 8 save "$dir"
    for n in 1 2 3 4; do
        ranks $n resume "$dir"
    done
    ;;
positions)
    ranks 1 positions "$dir"
    ranks 2 positions "$dir"
    ;;
faults)
    # shellcheck disable=SC2086 # nothing or one word
    ranks 2 faults "$dir" $long
    ;;
kills)
    trials=3
    [ "$long" ] && trials=50
    killed=0
    ranks 4 kill "$dir" 0 # what there is to fall back on
    for i in $(seq $trials); do
        status=0
        ranks 4 kill "$dir" "$i" >"$dir/out" 2>&1 || status=$?
        if grep -q "not ok" "$dir/out" || [ "$status" = 0 ] || [ "$status" = 124 ]; then
            echo "not ok: trial $i ended with $status"
            cat "$dir/out"
            exit 1
        fi
        grep -Eq "signal 9|has died" "$dir/out" && killed=$((killed + 1))
    done
    ranks 4 kill "$dir" 0
    ranks 2 kill "$dir" 0
    echo "$killed of $trials killed"
    [ "$killed" = "$trials" ]
    ;;
esac
