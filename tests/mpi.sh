# Prepares scripts that start several ranks on this machine: sourced by a script in a folder next to this file before it changes
# directory. Exits with 77 (skipped) if there is no mpiexec. Sets `mpi` to the command, to be followed by -n RANKS PROGRAM.
# shellcheck shell=sh disable=SC2034
command -v mpiexec >/dev/null 2>&1 || exit 77
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
# Open MPI leaks memory. Leaks of ltrain are looked for only if LTRAIN_TEST_LEAKS is set: telling them apart needs slow unwinding, five times the time.
if [ "${LTRAIN_TEST_LEAKS:-}" ]; then
    export LSAN_OPTIONS="suppressions=$(cd "$(dirname "$0")/../comm" && pwd)/mpi.supp:fast_unwind_on_malloc=0:print_suppressions=0"
else
    export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
fi
# LTRAIN_TEST_MPI=mpiexec.mpich runs them by MPICH.
# --bind-to none: by default Open MPI would bind two ranks to one core each. With shared memory only it starts ten times as fast.
mpi=${LTRAIN_TEST_MPI:-"mpiexec --quiet --oversubscribe --bind-to none --mca pml ob1 --mca btl vader,self"}
