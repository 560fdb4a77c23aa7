#!/bin/bash
# One rank per GPU on two nodes under Slurm: RUN=runs/books sbatch tools/jobs/slurm.sh --model DIR --data BOOKS --seq-len 1m --zero 3
# Submitted again with the same RUN it goes on where it stopped, with the options given then; those left out are as they were.
#SBATCH --job-name=ltrain
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --mem=0
#SBATCH --time=08:00:00
#SBATCH --signal=TERM@300
# (five minutes before the end ltrain throws away the step under way, saves and leaves; with --stop step it finishes it first)
set -eu
: "${RUN:?name the directory of the run: RUN=runs/NAME sbatch tools/jobs/slurm.sh ...}"
export OMP_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}"

# Without a checkpoint there is nothing to go on from: the run starts anew.
if [ -e "$RUN/checkpoints/latest" ] || compgen -G "$RUN/checkpoints/step-*[0-9]" >/dev/null; then
    set -- --resume "$RUN" "$@"
else
    set -- "$@" --out "$RUN"
fi
# Ranks host by host, so that ulysses groups stay within one; --mpi=pmix tells Open MPI who is who.
exec srun --mpi=pmix --distribution=block:block --cpu-bind=none "${LTRAIN:-ltrain}" "$@"
