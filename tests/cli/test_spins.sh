#!/bin/sh
# OpenMP's idle threads spin briefly, unless the user sets otherwise: `test_spins.sh LTRAIN`. libgomp itself prints its setting.
set -eu
said() { # VARIABLE command...
    variable=$1
    shift
    env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT OMP_DISPLAY_ENV=verbose "$@" 2>&1 | sed -n "s/.*$variable = '\(.*\)'.*/\1/p" | tail -n 1
}
spun=$(said GOMP_SPINCOUNT "$1" --help)
[ -n "$spun" ] || { echo "no libgomp, or one that does not say"; exit 77; }
[ "$spun" = 1000 ] || { echo "not ok: spins $spun times"; exit 1; }
policy=$(said OMP_WAIT_POLICY "$1" --help)
[ "$policy" = ACTIVE ] || { echo "not ok: waits $policy, which is shorter where there are more threads than cores"; exit 1; }
spun=$(said GOMP_SPINCOUNT GOMP_SPINCOUNT=5 "$1" --help)
[ "$spun" = 5 ] || { echo "not ok: the user's 5 became $spun"; exit 1; }
spun=$(said GOMP_SPINCOUNT OMP_WAIT_POLICY=active "$1" --help)
[ "$spun" -gt 1000 ] || { echo "not ok: the user's active waiting became $spun"; exit 1; }
policy=$(said OMP_WAIT_POLICY OMP_WAIT_POLICY=passive "$1" --help)
[ "$policy" = PASSIVE ] || { echo "not ok: the user's passive waiting became $policy"; exit 1; }
