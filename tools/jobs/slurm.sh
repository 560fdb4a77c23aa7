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
# (Five minutes before the end ltrain discards the current step, saves and exits; with --stop step it finishes the step first.)
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
exec srun --mpi=pmix --distribution=block:block --cpu-bind=none "${LTRAIN:-ltrain}" "$@"
