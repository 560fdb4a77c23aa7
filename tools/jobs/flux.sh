#!/bin/bash
# One rank per GPU on two nodes under Flux: RUN=runs/books flux batch tools/jobs/flux.sh --model DIR --data BOOKS --seq-len 1m --zero 3
# Submitted again with the same RUN, the run continues where it stopped, with the options given then; options left out keep their values.
#flux: --job-name=ltrain
#flux: --nodes=2
#flux: --nslots=8
#flux: --cores-per-slot=16
#flux: --gpus-per-slot=1
#flux: --time-limit=8h
# ltrain saves before the job's end and exits with 75; the job is then submitted again. Open MPI needs FLUX_RUN="-o pmi=pmix".
set -eu
: "${RUN:?name the directory of the run: RUN=runs/NAME flux batch tools/jobs/flux.sh ...}"
GPUS=4 # per node
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-16}"
options=("$@")

# Without a checkpoint the run cannot continue: it starts anew.
if [ -e "$RUN/checkpoints/latest" ] || compgen -G "$RUN/checkpoints/step-*[0-9]" >/dev/null; then
    set -- --resume "$RUN" "$@"
else
    set -- "$@" --out "$RUN"
fi
left=$(flux job timeleft 2>/dev/null | sed -n 's/^\([0-9][0-9]*\).*$/\1/p') || true
[ -z "$left" ] || set -- --walltime "${left}s" "$@" # a later --walltime among the options counts
nodes=$(flux getattr size) status=0
# shellcheck disable=SC2086 # a list of words
flux run --nodes="$nodes" --ntasks=$((nodes * GPUS)) --cores-per-task="$OMP_NUM_THREADS" --gpus-per-task=1 -o cpu-affinity=off ${FLUX_RUN:-} \
    "${LTRAIN:-ltrain}" "$@" || status=$?
[ "$status" != 75 ] || exec flux --parent batch "$0" ${options[@]+"${options[@]}"}
exit "$status"
