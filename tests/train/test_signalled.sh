#!/bin/sh
# A signal comes between the moments at which two ranks begin to take signals as requests: `test_signalled.sh PROGRAM` (signalled.c).
set -eu
. "$(dirname "$0")/../mpi.sh"
program=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
home=$(mktemp -d "${TMPDIR:-/tmp}/signalled-XXXXXX")
trap 'rm -rf "$home"' EXIT
failures=0
says() { # HOW LINE...
    how=$1
    shift
    # --enable-recovery: mpiexec sends no signal after a rank's end
    # shellcheck disable=SC2086 # a list of words
    timeout -k 5 120 $mpi --enable-recovery -n 2 "$program" "$how" "$home/$how" >"$home/out" 2>&1 || :
    printf '%s\n' "$@" | sort >"$home/wanted"
    grep -E '^(ltrain|rank [01]): ' "$home/out" | sort | cmp -s "$home/wanted" - && return
    echo "not ok: $how:"
    cat "$home/out"
    failures=$((failures + 1))
}

says alone 'ltrain: SIGTERM before the first step: there is nothing to save yet'
says together 'ltrain: SIGTERM: stopping now and saving the last update; once more to stop at once' 'rank 0: signal 15: goes on' 'rank 1: signal 15: goes on'
[ "$failures" = 0 ]
