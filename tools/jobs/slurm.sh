#!/bin/bash
# One rank per GPU on two nodes under Slurm: RUN=runs/books sbatch tools/jobs/slurm.sh --model DIR --data BOOKS --seq-len 1m --zero 3
# Submitted again with the same RUN, the run continues where it stopped, with the options given then; options left out keep their values.
#SBATCH --job-name=ltrain
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --mem=0
#SBATCH --time=08:00:00
#SBATCH --signal=TERM@300
#SBATCH --requeue
# ltrain saves before the job's end and exits with 75; the job is then queued again. (The signal is for Slurms that do not say when that is.)
set -eu
: "${RUN:?name the directory of the run: RUN=runs/NAME sbatch tools/jobs/slurm.sh ...}"
export OMP_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"

# Without a checkpoint the run cannot continue: it starts anew.
if [ -e "$RUN/checkpoints/latest" ] || compgen -G "$RUN/checkpoints/step-*[0-9]" >/dev/null; then
    set -- --resume "$RUN" "$@"
else
    set -- "$@" --out "$RUN"
fi
# Ranks are numbered host by host, so that ulysses groups stay within a host; --mpi=pmix tells Open MPI the ranks.
if [ -z "${SLURM_JOB_END_TIME:-}" ] && left=$(squeue -h -j "${SLURM_JOB_ID:-}" -o %L 2>/dev/null) && [ "$left" ]; then
    set -- --walltime "$left" "$@" # a later --walltime among the options counts
fi
status=0
srun --mpi=pmix --distribution=block:block --cpu-bind=none "${LTRAIN:-ltrain}" "$@" || status=$?
[ "$status" != 75 ] || exec scontrol requeue "${SLURM_JOB_ID:?}"
exit "$status"
