#!/bin/sh
# A run that would pass the walltime saves, ends with status 75, is queued again by its job script and goes on, bit for bit. Stand-ins play
# the scheduler.
set -eu
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
failures=0
bad() {
    echo "not ok: $*"
    failures=$((failures + 1))
}
mkdir bin
# shellcheck disable=SC2016 # for the stand-in
printf '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n' >bin/srun
# shellcheck disable=SC2016 # for the stand-in
printf '#!/bin/sh\necho "$@" >>queued\n' >bin/scontrol
# shellcheck disable=SC2016 # for the stand-in
printf '#!/bin/sh\necho "0:02"\n' >bin/squeue
chmod +x bin/*
export PATH="$home/bin:$PATH" RUN=run SLURM_JOB_ID=17
fold -w 60 "$LTRAIN_SOURCE_ROOT/README.md" >text.txt
set -- --model tiny --data text.txt --seq-len 256 --tiles rows=64,loss=64,group=4096 --threads 1 --effort quick

# The first job has two seconds, and more steps than fit; so has another job of its array, at the same time.
RUN=other SLURM_JOB_ID=18 "$LTRAIN_SOURCE_ROOT/tools/jobs/slurm.sh" "$@" --seed 2 --steps 1000000 >array 2>&1 &
"$LTRAIN_SOURCE_ROOT/tools/jobs/slurm.sh" "$@" --steps 1000000 >first 2>&1 || bad "the first job: $(tail -n 2 first)"
wait $! || bad "the array's other job: $(tail -n 2 array)"
grep -q '^walltime: 0:00:0[0-2] left' first || bad "the run does not say what is left: $(grep walltime first)"
grep -q "^stopped by the walltime's end at step [0-9]* of 1000000, saved" first || bad "it ends otherwise: $(tail -n 1 first)"
[ "$(sort queued 2>/dev/null | tr '\n' ' ')" = "requeue 17 requeue 18 " ] || bad "the jobs are not queued again: $(cat queued)"

# The second job has time for two more steps.
last=$(sed -n "s/^stopped by the walltime's end at step \([0-9]*\) .*/\1/p" first)
"$LTRAIN_SOURCE_ROOT/tools/jobs/slurm.sh" --steps $((last + 2)) --walltime none >second 2>&1 || bad "the second job: $(tail -n 2 second)"
[ "$(wc -l <queued)" = 2 ] || bad "a job that is done is queued again"
"$LTRAIN" "$@" --steps $((last + 2)) --out whole >whole.log 2>&1 || bad "the run in one piece: $(tail -n 2 whole.log)"
cmp -s run/hf/model.safetensors whole/hf/model.safetensors || bad "the models differ"
other=$(sed -n "s/^stopped by the walltime's end at step \([0-9]*\) .*/\1/p" array)
RUN=other SLURM_JOB_ID=18 "$LTRAIN_SOURCE_ROOT/tools/jobs/slurm.sh" --steps $((other + 2)) --walltime none >array 2>&1 || bad "the other job, again: $(tail -n 2 array)"
[ "$(sed -n '$s/.*"step":\([0-9]*\),.*/\1/p' other/metrics.jsonl)" = $((other + 2)) ] || bad "the other job of the array does not go on where it stopped"

# Slurm's own word, and what is refused.
status=0
SLURM_JOB_END_TIME=$(($(date +%s) + 2)) "$LTRAIN" "$@" --steps 1000000 --out told >told.log 2>&1 || status=$?
[ "$status" = 75 ] || bad "by SLURM_JOB_END_TIME: status $status"
for time in 6 8x 1:99:00 '' 0s 1-2; do
    status=0
    said=$("$LTRAIN" "$@" --steps 1 --walltime="$time" --out refused 2>&1) || status=$?
    [ "$status" = 2 ] && echo "$said" | grep -q -e '--walltime' || bad "--walltime '$time': status $status, $said"
done
[ "$failures" = 0 ]
