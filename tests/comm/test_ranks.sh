#!/bin/sh
# Several ranks on this machine: `test_ranks.sh PROGRAM all|large|failures|tcp`. Every collective on meshes of 2, 3, 4 and 8 ranks; a rank that is
# killed, stopped for too long, stalled or gone its own way ends all ranks with a sentence; one that is stopped for a while is waited for.
set -eu
. "$(dirname "$0")/../mpi.sh"
program=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
[ "${LTRAIN_TEST_MPI:-}" ] || mpi="$mpi --mca orte_tmpdir_base ${TMPDIR:-/tmp}"
failures=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Runs ranks for two minutes at most: a hang is a failure.
run() { # RANKS ARGUMENT...
    ranks=$1
    shift
    status=0
    # shellcheck disable=SC2086 # a list of words
    out=$(timeout -k 5 120 $mpi -n "$ranks" "$program" "$@" 2>&1) || status=$?
}

passes() { # RANKS ARGUMENT...
    run "$@"
    [ "$status" = 0 ] || { echo "not ok: $* ranks: exit status $status"; echo "$out" | head -n 20; failures=$((failures + 1)); }
}

# Fails unless PATTERN is in the output of each of the named ranks.
fails() { # WHAT PATTERN "RANK..." ARGUMENT...
    what=$1 pattern=$2 who=$3
    shift 3
    run 4 "$@"
    bad=
    [ "$status" != 0 ] && [ "$status" != 124 ] || bad="exit status $status"
    for r in $who; do
        echo "$out" | grep -Eq "(rank $r: -[0-9]+|ltrain: rank $r): .*($pattern)" || bad="$bad; rank $r said nothing like '$pattern'"
    done
    [ -z "$bad" ] || { echo "not ok: $what: $bad"; echo "$out" | head -n 20; failures=$((failures + 1)); }
}

# A rank stops itself; a line names it and says how to continue it; once that is done the run ends well.
waits() { # WHAT
    bad=
    # shellcheck disable=SC2086 # a list of words
    timeout -k 5 120 $mpi -n 4 "$program" pause 1 1 4 100 >"$log" 2>&1 &
    while ! grep -q 'which is stopped' "$log" && kill -0 $! 2>/dev/null; do sleep 0.1; done
    grep -Eq '^ltrain: waiting for rank 1 on .*, which is stopped \(process [0-9]+, by a signal or a debugger\), up to 100 s' "$log" || bad="no line names it"
    kill -CONT "$(sed -n 's/.* kill -CONT \([0-9]*\) .*/\1/p' "$log" | head -n 1)" 2>/dev/null || bad="$bad; nobody to be told to go on"
    wait $! || bad="$bad; exit status $?"
    [ "$(grep -Evc '^ltrain: (waiting for rank 1 on .*, which is stopped .*|rank 1 on .* goes on)$' "$log")" = 0 ] || bad="$bad; more is said"
    [ -z "$bad" ] || { echo "not ok: $1: $bad"; head -n 20 "$log"; failures=$((failures + 1)); }
}

case $2 in
all)
    for mesh in "2 1 2 1" "3 1 1 3" "4 1 2 2" "8 2 2 2"; do
        # shellcheck disable=SC2086
        set -- ${mesh#* }
        passes "${mesh%% *}" all "$@"
        export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # one mesh shows leaks: unwinding for them takes five times the time
    done
    # MPICH's transport looks for its own boot id, and its ranks do not yield the cores that they wait on.
    [ -z "${LTRAIN_TEST_MPI:-}" ] || exit "$failures"
    unshare --uts true 2>/dev/null || exit "$failures"
    for hosts in "a b a b" "a b b a" "a b b c"; do
        export HOSTS="$hosts"
        # shellcheck disable=SC2086 # a list of words
        out=$(timeout -k 5 120 $mpi -n 4 "$(dirname "$0")/../onhost.sh" "$program" all 1 2 2 2>&1) || { echo "not ok: hosts $hosts: $out"; failures=$((failures + 1)); }
    done
    unshare --mount true 2>/dev/null || exit "$failures"
    export HOSTS="a a a b" BOOTS="1 2 1 3" LTRAIN_TEST_HOSTS=3
    # shellcheck disable=SC2086 # a list of words
    out=$(timeout -k 5 120 $mpi -n 4 "$(dirname "$0")/../onhost.sh" "$program" all 1 2 2 2>&1) || { echo "not ok: hosts of one name: $out"; failures=$((failures + 1)); }
    ;;
large)
    for ranks in 2 3; do passes $ranks large; done
    ;;
failures)
    fails "killed" "rank 1 on .* has died" "0 2 3" kill 1 1 4
    fails "stopped for too long" "rank 1 on .* is stopped" "0 2 3" stop 1 1 4 3
    waits "stopped for a while"
    fails "ended" "rank 1 on .* has died" "0 2 3" exit 1 1 4
    fails "stalled" "rank 1 on .* has not answered rank . for 2 s|rank . on .* has not answered" "0 2 3" stall 1 1 4 2
    fails "killed while others compute" "rank 1 on .* has died" "0 2 3" busy 1 1 4
    fails "failed by itself" "rank 1 failed: my disk is full" "0 2 3" fail 1 1 4
    fails "another size" "the ranks run different programs" "0 2 3" differ 1 1 4
    fails "another call" "the ranks do not do the same" "0 1 2 3" elsewhere 1 1 4
    ;;
tcp) # Open MPI ends ranks by itself when a connection breaks
    mpi=$(echo "$mpi" | sed 's/vader,self/tcp,self --mca btl_tcp_if_include lo/')
    waits "stopped for a while, over TCP"
    for trial in 1 2 ${LTRAIN_LONG:+3 4 5}; do fails "killed, over TCP, trial $trial" "rank 1 on .* has died" "0 2 3" kill 1 1 4; done
    ;;
esac
[ "$failures" = 0 ]
