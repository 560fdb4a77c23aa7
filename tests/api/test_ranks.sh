#!/bin/sh
# Starts the program's test of ranks on four of them: `test_ranks.sh PROGRAM`.
set -eu
. "$(dirname "$0")/../mpi.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
LTRAIN_TEST_OUT=run
export LTRAIN_TEST_OUT
# shellcheck disable=SC2086 # a list of words
timeout -k 5 "${LTRAIN_TEST_SECONDS:-280}" $mpi -n 4 "$1" ranks
