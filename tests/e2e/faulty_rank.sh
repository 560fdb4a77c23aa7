#!/bin/sh
# Runs two ranks of which only rank FAULTY has LTRAIN_FAULT: `LTRAIN_PROGRAM=... FAULTY=0|1 LTRAIN_FAULT=... faulty_rank.sh ARGUMENT...`.
set -eu
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-}}
if [ -z "$rank" ]; then
    . "$(dirname "$0")/../mpi.sh"
    # shellcheck disable=SC2154,SC2086 # a list of words that mpi.sh sets
    exec $mpi -n 2 "$0" "$@"
fi
[ "$rank" = "$FAULTY" ] || unset LTRAIN_FAULT
exec "$LTRAIN_PROGRAM" "$@"
