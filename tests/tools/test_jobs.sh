#!/bin/sh
# The job scripts start one rank per GPU with the given options, and resume when started again. Stand-ins play the launchers.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
mkdir bin
failures=0

launcher() { # NAME VERSION
    printf '#!/bin/sh\n[ "$*" != --version ] || { echo "%s"; exit; }\nfor a; do printf "[%%s]" "$a"; done\n' "$2" >bin/"$1"
    chmod +x bin/"$1"
}
expect() { # WHAT WANTED COMMAND...
    what=$1 wanted=$2
    shift 2
    got=$(PATH="$home/bin:$PATH" "$@" 2>&1) || true
    case $got in
    *"$wanted"*) ;;
    *) echo "not ok: $what: '$got' has no '$wanted'"; failures=$((failures + 1)) ;;
    esac
}

launcher srun slurm
expect "slurm" "[ltrain][--data][a b.txt][--out][r1]" env RUN=r1 "$root/tools/jobs/slurm.sh" --data "a b.txt"
expect "slurm: the MPI" "[--mpi=pmix]" env RUN=r1 "$root/tools/jobs/slurm.sh"
expect "slurm: no run named" "RUN=runs/NAME" env -u RUN "$root/tools/jobs/slurm.sh"
printf 'n1\nn1\nn2\n' >nodes
launcher mpiexec "mpiexec (OpenRTE) 4.1.4, Open MPI"
expect "pbs, Open MPI" "[-n][8][--map-by][ppr:4:node]" env PBS_NODEFILE="$home/nodes" RUN=r1 ARGS="--lr 5" "$root/tools/jobs/pbs.sh"
expect "pbs: options" "[ltrain][--lr][5][--out][r1]" env PBS_NODEFILE="$home/nodes" RUN=r1 ARGS="--lr 5" "$root/tools/jobs/pbs.sh"
launcher mpiexec "mpiexec (PALS) 1.2"
expect "pbs, PALS" "[-n][8][--ppn][4]" env PBS_NODEFILE="$home/nodes" RUN=r1 ARGS="--lr 5" "$root/tools/jobs/pbs.sh"
# shellcheck disable=SC2016 # for the stand-in
printf '#!/bin/sh\ncase "$*" in "job timeleft") echo 3600.25; exit ;; "getattr size") echo 2; exit ;; esac\nfor a; do printf "[%%s]" "$a"; done\n[ "$1" != run ] || exit "${FLUX_STATUS:-0}"\n' >bin/flux
chmod +x bin/flux
expect "flux" "[run][--nodes=2][--ntasks=8]" env RUN=r1 "$root/tools/jobs/flux.sh"
expect "flux: options" "[ltrain][--walltime][3600s][--data][a b.txt][--out][r1]" env RUN=r1 "$root/tools/jobs/flux.sh" --data "a b.txt"
expect "flux: the MPI" "[-o][pmi=pmix][ltrain]" env RUN=r1 FLUX_RUN="-o pmi=pmix" "$root/tools/jobs/flux.sh"
expect "flux, at the end of its time" "[--out][r1][--parent][batch][$root/tools/jobs/flux.sh][--data][a b.txt]" env RUN=r1 FLUX_STATUS=75 "$root/tools/jobs/flux.sh" --data "a b.txt"
expect "flux: no run named" "RUN=runs/NAME" env -u RUN "$root/tools/jobs/flux.sh"
mkdir -p r1/checkpoints/step-000001.partial && : >r1/metrics.jsonl
expect "slurm, again before the first checkpoint" "[--lr][5][--out][r1]" env RUN=r1 "$root/tools/jobs/slurm.sh" --lr 5
expect "pbs, again before the first checkpoint" "[--lr][5][--out][r1]" env PBS_NODEFILE="$home/nodes" RUN=r1 ARGS="--lr 5" "$root/tools/jobs/pbs.sh"
mkdir r1/checkpoints/step-000001
expect "slurm, again before latest" "[ltrain][--resume][r1]" env RUN=r1 "$root/tools/jobs/slurm.sh" --data "a b.txt"
: >r1/checkpoints/latest
expect "slurm, again" "[ltrain][--resume][r1][--data][a b.txt]" env RUN=r1 "$root/tools/jobs/slurm.sh" --data "a b.txt"
expect "flux, again" "[ltrain][--walltime][3600s][--resume][r1]" env RUN=r1 "$root/tools/jobs/flux.sh"
expect "pbs, again, without options" "[ltrain][--resume][r1]" env PBS_NODEFILE="$home/nodes" RUN=r1 "$root/tools/jobs/pbs.sh"
expect "pbs, again" "[ltrain][--resume][r1][--lr][5]" env PBS_NODEFILE="$home/nodes" RUN=r1 ARGS="--lr 5" "$root/tools/jobs/pbs.sh"

[ "$failures" = 0 ]
