#!/bin/bash
# One rank per GPU on two nodes of four GPUs each under PBS: qsub -v RUN=runs/books,ARGS="--model DIR --data BOOKS --seq-len 1m" tools/jobs/pbs.sh
# Submitted again with the same RUN, the run continues where it stopped, with the options given then; options left out keep their values.
#PBS -N ltrain
#PBS -l select=2:ncpus=64:ngpus=4
#PBS -l place=scatter
#PBS -l walltime=08:00:00
set -eu
cd "${PBS_O_WORKDIR:-.}"
: "${RUN:?name the directory of the run: qsub -v RUN=runs/NAME,ARGS=... tools/jobs/pbs.sh}"
GPUS=4 # per node
nodes=$(sort -u "$PBS_NODEFILE" | wc -l)
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-16}"

# Without a checkpoint the run cannot continue: it starts anew.
if [ -e "$RUN/checkpoints/latest" ] || compgen -G "$RUN/checkpoints/step-*[0-9]" >/dev/null; then
    # shellcheck disable=SC2086 # a list of words
    set -- --resume "$RUN" ${ARGS:-}
else
    # shellcheck disable=SC2086 # a list of words
    set -- ${ARGS:?the options: qsub -v RUN=...,ARGS="--model DIR --data BOOKS ..." tools/jobs/pbs.sh} --out "$RUN"
fi
# ltrain saves before the job's end and exits with 75; the job is then submitted again. A --walltime among the options counts.
left=$(qstat -f "${PBS_JOBID:-}" 2>/dev/null | sed -n 's/^ *Resource_List.walltime = \([0-9:]*\)$/\1/p') || true
[ -z "$left" ] || set -- --walltime "$left" "$@"
status=0
if mpiexec --version 2>/dev/null | grep -q 'Open MPI'; then
    mpiexec -n $((nodes * GPUS)) --map-by ppr:$GPUS:node --bind-to none -x OMP_NUM_THREADS "${LTRAIN:-ltrain}" "$@" || status=$?
else # PALS is the launcher: Cray MPICH, or ltrain's Open MPI, which finds the other ranks through PMIx
    mpiexec -n $((nodes * GPUS)) --ppn $GPUS --pmi=pmix --cpu-bind none "${LTRAIN:-ltrain}" "$@" || status=$?
fi
[ "$status" != 75 ] || exec qsub -v "RUN=$RUN,ARGS=${ARGS:-}" "$0"
exit "$status"
