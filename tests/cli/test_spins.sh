#!/bin/sh
# OpenMP's idle threads spin briefly, unless the user says otherwise: `test_spins.sh LTRAIN`. libgomp itself says what it took.
set -eu
spins() {
    env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT OMP_DISPLAY_ENV=verbose "$@" 2>&1 | sed -n "s/.*GOMP_SPINCOUNT = '\(.*\)'.*/\1/p" | tail -n 1
}
spun=$(spins "$1" --help)
[ -n "$spun" ] || { echo "no libgomp, or one that does not say"; exit 77; }
[ "$spun" = 1000 ] || { echo "not ok: spins $spun times"; exit 1; }
spun=$(spins GOMP_SPINCOUNT=5 "$1" --help)
[ "$spun" = 5 ] || { echo "not ok: the user's 5 became $spun"; exit 1; }
spun=$(spins OMP_WAIT_POLICY=active "$1" --help)
[ "$spun" -gt 1000 ] || { echo "not ok: the user's active waiting became $spun"; exit 1; }
