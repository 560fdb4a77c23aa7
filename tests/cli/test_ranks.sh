#!/bin/sh
# Several processes started as one program: `test_ranks.sh LTRAIN`. Facts that all ranks know are printed once, and all exit alike; a single
# rank's facts have its number. A start that cannot be right is refused, never waited for.
set -eu
. "$(dirname "$0")/../mpi.sh"
ltrain=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
failures=0
yes 'It was a dark and stormy night.' | head -c 5000 >corpus.txt
tiny="--model tiny --data corpus.txt --seq-len 64 --steps 1 --effort quick"

# Runs a command: stderr must have LINES lines, one of which matches PATTERN, and the exit status be STATUS.
expect() { # WHAT STATUS LINES PATTERN COMMAND...
    what=$1 wanted=$2 lines=$3 pattern=$4 status=0
    shift 4
    timeout -k 5 1000 "$@" >out 2>err || status=$?
    if [ "$status" != "$wanted" ] || [ "$(wc -l <err)" != "$lines" ] || ! grep -Eq -e "$pattern" err; then
        echo "not ok: $what: exit status $status, wanted $wanted; wanted $lines lines with '$pattern' on stderr:"
        cat err
        failures=$((failures + 1))
    fi
}

# Stands in for mpiexec, which exits with 128 + n if a rank has ended by signal n; mpiexec's own end by a signal is not a rank's.
mpiexec_that() { # NAME COMMANDS
    mkdir "$1"
    printf '#!/bin/sh\nulimit -c 0\n%s\n' "$2" >"$1/mpiexec"
    chmod +x "$1/mpiexec"
}
mpiexec_that is-killed 'kill -KILL $$'
mpiexec_that has-a-killed-rank 'exit 137'
mpiexec_that has-a-broken-rank 'exit 139'
mpiexec_that crashes-when-told 'trap "kill -SEGV \$\$" USR1
: >"$BEGAN"
while :; do sleep 0.05; done'
mpiexec_that tells-of-a-crash 'trap "exit 139" USR1
: >"$BEGAN"
while :; do sleep 0.05; done'
mpiexec_that tells-of-a-crash-late 'trap "" USR1
trap "exit 139" TERM
: >"$BEGAN"
while :; do sleep 0.05; done'

# An mpiexec that hangs is killed by a third signal, or 10 s after the second. The last lines check how it ended.
mpiexec_that hangs 'trap "" TERM USR1
: >"$BEGAN"
exec sleep 100'
# shellcheck disable=SC2086 # a list of words
signals() { # MPIEXEC TIMES
    rm -f "began$2"
    BEGAN=$home/began$2 PATH=$home/$1:$PATH "$ltrain" $tiny --ranks 2 >"signals$2" 2>&1 &
    until [ -e "began$2" ] || ! kill -0 $! 2>/dev/null; do sleep 0.05; done
    for _ in $(seq "$2"); do
        kill -TERM $! 2>/dev/null || :
        sleep 1.5 # within 0.3 s two are one
    done
    date +%s >"told$2"
    wait $!
}
signals hangs 2 &
twice=$!

# shellcheck disable=SC2086 # lists of words
{
expect "wrong usage of all ranks" 2 1 "^ltrain: --lr: 'much' is not" $mpi -n 3 "$ltrain" $tiny --lr much
expect "an unknown command" 2 1 "^ltrain: there is no command 'frain'" $mpi -n 3 "$ltrain" frain $tiny
expect "an unknown option" 2 1 "^ltrain: unknown option --sequence-length" $mpi -n 2 "$ltrain" $tiny --sequence-length 5
expect "wrong usage of one rank" 2 1 "^ltrain: rank 1: --lr: 'much' is not" $mpi -n 1 "$ltrain" $tiny : -n 1 "$ltrain" $tiny --lr much
expect "settings that differ" 2 1 "^ltrain: rank 2: lr: 5 here, on rank 0 lr: .*: do all hosts see the same" \
    $mpi -n 2 "$ltrain" $tiny : -n 1 "$ltrain" $tiny --lr 5
expect "directories that differ" 2 1 "^ltrain: rank 1: out is b here and a on rank 0: do all" $mpi -n 1 "$ltrain" $tiny --out a : -n 1 "$ltrain" $tiny --out b
expect "a directory of one rank" 2 1 "^ltrain: rank 1: out is not given here and a on rank 0" $mpi -n 1 "$ltrain" $tiny --out a : -n 1 "$ltrain" $tiny
expect "ranks that are not those started" 2 1 "^ltrain: --ranks 4, but 2 were started" $mpi -n 2 "$ltrain" $tiny --ranks 4
expect "--ranks, wrong usage" 2 1 "^ltrain: --mesh: pp=0 is out of range" "$ltrain" $tiny --ranks 3 --mesh pp=0
expect "a number without the others" 2 1 "^ltrain: rank 1: --rank says .* rank 1 of 4, but MPI says rank 0 of 1" \
    "$ltrain" $tiny --rank 1 --world-size 4
expect "variables without the others" 2 1 "^ltrain: rank 0: torchrun says .* but MPI says rank 0 of 1" \
    env RANK=0 WORLD_SIZE=2 "$ltrain" $tiny
expect "two that disagree" 2 1 "^ltrain: torchrun says that this is rank 1 of 2, Open MPI says rank 0 of 1;" \
    env RANK=1 WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 "$ltrain" $tiny
expect "half of what is needed" 2 1 "^ltrain: --rank 1 is given without --world-size" "$ltrain" $tiny --rank 1
expect "a plan that does not fit" 3 1 "^ltrain: the plan needs .* on the device and 100 KiB are given \(--device-mem\)\. No offload setting fits" \
    $mpi -n 2 "$ltrain" $tiny --device-mem 100K
expect "an mpiexec that is killed" 137 1 "^ltrain: mpiexec was ended by signal 9 \(Killed\), by hand or by the kernel for want of memory \(dmesg\), and the ranks with it" env PATH="$home/is-killed:$PATH" "$ltrain" $tiny --ranks 3
expect "a rank that is killed before it can be named" 137 1 "^ltrain: a rank was ended by signal 9 \(Killed\), by hand or by the kernel" \
    env PATH="$home/has-a-killed-rank:$PATH" "$ltrain" $tiny --ranks 3
expect "a rank that breaks" 139 1 "^ltrain: a rank was ended by signal 11 \(Segmentation fault\), and the others with it" \
    env PATH="$home/has-a-broken-rank:$PATH" "$ltrain" $tiny --ranks 3
for nth in 1 2; do # number of a thread that passes on ranks' output
    expect "a thread that cannot start" 1 1 "^ltrain: --ranks 3: cannot start a thread: Resource temporarily unavailable" \
        env PATH="$home/hangs:$PATH" LTRAIN_FAULT=thread:$nth:EAGAIN "$ltrain" $tiny --ranks 3
done
expect "ranks beyond all cores" 2 1 "^ltrain: --ranks: 4096 processes on the [0-9]* cores* of this machine would hardly move: give at most" \
    env PATH=/nowhere "$ltrain" $tiny --ranks 4096
expect "no mpiexec" 2 1 "^ltrain: --ranks 3: cannot start mpiexec: No such file" env PATH=/nowhere "$ltrain" $tiny --ranks 3
}
$mpi -n 3 "$ltrain" --help >help 2>&1
[ "$(grep -c '^usage: ltrain' help)" = 1 ] || { echo "not ok: the help of 3 ranks is not printed once"; failures=$((failures + 1)); }
expect "fewer sequences than data-parallel groups" 2 1 "^ltrain: --batch: 1 sequence a step for the 2 data-parallel groups of dp=2 .* --batch 2 or a multiple, or one of --mesh dp=1$" \
    "$ltrain" plan --model tiny --data corpus.txt --seq-len 61 --ranks 4 --mesh dp=2,ring=2 --batch 1
"$ltrain" plan --model tiny --data corpus.txt --seq-len 61 --ranks 4 --mesh dp=2,ring=2 --batch 3 --explain >planned
tr -s '\n ' ' ' <planned >joined # sentences are broken into lines
for sentence in '^padding: each sequence of 61 tokens is followed by 3 masked ones' 'batch: 3 sequences a step, 2 micro-batches on each of 2 data-parallel groups; 1 of them has no sequence in the last one: --batch 2 and 4 leave none without' \
    ' ZeRO stage \[--zero\]: 3\. Otherwise (1: [^;]*; 2|2: [^;]*; 1): ' ' Ranks that share a sequence \[--mesh\]: ulysses=1,ring=2\. Otherwise ulysses=2,ring=1: '; do
    grep -Eq "$sentence" planned joined || { echo "not ok: plan does not say '$sentence'"; failures=$((failures + 1)); }
done
status=0 # ranks with more cores than others take only the others' number of threads
$mpi -n 1 -x OMP_NUM_THREADS=4 "$ltrain" $tiny --out uneven : -n 1 "$ltrain" $tiny --out uneven >out 2>&1 || status=$?
[ "$status" = 0 ] || { echo "not ok: hosts with uneven cores: exit status $status"; cat out; failures=$((failures + 1)); }
# Given threads are not divided; tiles that no option names are chosen anew with the mesh, and stay with it.
one_and_one() { # WHAT PATTERN ARGUMENT...
    what=$1 pattern=$2 status=0
    shift 2
    # shellcheck disable=SC2086 # a list of words
    $mpi -n 2 -x OMP_NUM_THREADS=3 "$ltrain" "$@" >out 2>&1 || status=$?
    if [ "$status" != 0 ] || ! grep -Eq "$pattern" out; then
        echo "not ok: $what: exit status $status, wanted '$pattern':"
        cat out
        failures=$((failures + 1))
    fi
}
# shellcheck disable=SC2086 # a list of words
one_and_one "threads as given" '^device: cpu, 3 threads' $tiny --mesh dp=2 --save-every 1 --warmup 4 --lr 1e-3 --out re
grep -q '^remark: --warmup 4 is longer than the run of 1 steps: the learning rate ends at 0.00025, below --lr 0.001$' out ||
    { echo "not ok: a warm-up longer than the run is not said"; failures=$((failures + 1)); }
one_and_one "shared anew" '^resume: the tiles were those of dp=2,ulysses=1,ring=1: they are chosen anew' --resume re --mesh ulysses=2 --steps 2
one_and_one "shared as before" '^resume: step 2' --resume re --mesh dp=1,ulysses=2 --steps 3
grep -q 'tiles were those' out && { echo "not ok: tiles of the same mesh are chosen anew"; failures=$((failures + 1)); }
[ ! -e runs ] || { echo "not ok: a refused run was begun"; failures=$((failures + 1)); }
status=0
signals hangs 3 || status=$?
if [ "$status" != 143 ] || [ $(($(date +%s) - $(cat told3))) -ge 6 ]; then # not 10 s after the second
    echo "not ok: three signals: exit status $status"
    failures=$((failures + 1))
fi
[ "$(grep -c 'once more to stop at once' signals3)" = 1 ] || { echo "not ok: what the signals mean is said once"; failures=$((failures + 1)); }
status=0
wait $twice || status=$?
[ "$status" = 143 ] || { echo "not ok: two signals: exit status $status"; failures=$((failures + 1)); }
ends_with() { # STATUS MPIEXEC TIMES
    status=0
    signals "$2" "$3" || status=$?
    [ "$status" = "$1" ] || { echo "not ok: an mpiexec that $2, $3 signals: exit status $status, wanted $1"; failures=$((failures + 1)); }
}
ends_with 143 crashes-when-told 1
ends_with 139 tells-of-a-crash 1
ends_with 139 tells-of-a-crash-late 2
[ "$failures" = 0 ]
