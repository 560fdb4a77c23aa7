#!/bin/sh
# Starts a test program on several ranks of this machine (meson has the shorter deadline): `test_ranks.sh PROGRAM RANKS [ARGUMENT...]`.
set -eu
if [ "${LTRAIN_ONLY_LONG:-}" ] && [ -z "${LTRAIN_LONG:-}" ]; then exit 77; fi
. "$(dirname "$0")/../mpi.sh"
program=$1 ranks=$2
shift 2
# shellcheck disable=SC2086 # a list of words
exec timeout -k 5 "${LTRAIN_TEST_SECONDS:-7200}" $mpi -n "$ranks" "$program" "$@"
