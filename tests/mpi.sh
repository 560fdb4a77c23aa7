# For scripts that start several ranks on this machine, to be sourced from a script in a folder beside this file, before it changes
# directory. Skips (77) where there is no mpiexec. Sets `mpi`: the command, to be followed by -n RANKS PROGRAM.
# shellcheck shell=sh disable=SC2034
command -v mpiexec >/dev/null 2>&1 || exit 77
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
# Open MPI leaks, and telling its leaks from ours takes slow unwinding, five times the time: only where LTRAIN_TEST_LEAKS is set.
if [ "${LTRAIN_TEST_LEAKS:-}" ]; then
    export LSAN_OPTIONS="suppressions=$(cd "$(dirname "$0")/../comm" && pwd)/mpi.supp:fast_unwind_on_malloc=0:print_suppressions=0"
else
    export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
fi
# Not one core for each of the first two ranks; shared memory only, which starts ten times as fast.
mpi="mpiexec --quiet --oversubscribe --bind-to none --mca pml ob1 --mca btl vader,self"
