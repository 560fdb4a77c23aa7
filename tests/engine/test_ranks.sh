#!/bin/sh
# Starts a test program on several ranks of this machine (meson has the shorter deadline): `test_ranks.sh PROGRAM RANKS [ARGUMENT...]`.
set -eu
command -v mpiexec >/dev/null 2>&1 || exit 77
program=$1 ranks=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
export LSAN_OPTIONS="suppressions=$here/../comm/mpi.supp:fast_unwind_on_malloc=0:print_suppressions=0"
exec timeout -k 5 "${LTRAIN_TEST_SECONDS:-7200}" mpiexec --quiet --oversubscribe --bind-to none --mca pml ob1 --mca btl vader,self -n "$ranks" "$program" "$@"
