#!/bin/sh
# `ltrain check` on 1, 2 and 4 ranks: `test_check.sh LTRAIN`. A check passes, explains its tolerance and leaves nothing behind. Numbers that
# are not finite end it with one sentence on all ranks alike. (tests/check/check_ranks.c tests that wrong gradients are found.)
set -eu
. "$(dirname "$0")/../mpi.sh"
ltrain=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
llama=$(cd "$(dirname "$0")/../golden/llama-gqa" && pwd)
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
failures=0
yes 'It was a dark and stormy night; the rain fell in torrents.' | head -c 20000 >corpus.txt
tiny="--model tiny --data corpus.txt --seq-len 200 --effort quick"

not_ok() {
    echo "not ok: $*"
    cat out err
    failures=$((failures + 1))
}

# Runs a command: stdout must have the LINE, the exit status be STATUS, and stderr WORDS (none if empty).
expect() { # STATUS LINE WORDS COMMAND...
    wanted=$1 line=$2 words=$3 status=0
    shift 3
    timeout -k 5 1000 "$@" >out 2>err || status=$?
    [ "$status" = "$wanted" ] || not_ok "exit status $status, wanted $wanted: $*"
    grep -q -e "$line" out || not_ok "no line '$line': $*"
    if [ "$words" ]; then
        [ "$(wc -l <err)" = 1 ] && grep -q -e "$words" err || not_ok "stderr is not one line with '$words': $*"
    else
        [ ! -s err ] || not_ok "stderr: $*"
    fi
    [ "$(ls)" = "corpus.txt
err
out" ] || not_ok "something is left: $(ls): $*"
}

# shellcheck disable=SC2086 # lists of words
{
expect 0 "^check: pass" "" "$ltrain" check $tiny --offload nvme --device cpu:discrete --alpha 0
grep -q "placement changes no bit" out || not_ok "one rank: not compared by bits"
[ "$(grep -c "same bits *same bits" out)" = 10 ] || not_ok "one rank: not 3 steps of 3 lines and the parameters"
expect 0 "^check: pass" "" "$ltrain" check $tiny --mode chaos --offload cpu --steps 1
expect 0 "^check: pass" "" "$ltrain" check $tiny --ranks 4 --mesh ulysses=2,ring=2 --offload nvme --zero 3
grep -q "dp 1, ring 2, ulysses 2" out || not_ok "four ranks: another mesh"
grep -q "another order" out || not_ok "four ranks: no reason for the tolerance"
expect 0 "^check: pass" "" $mpi -n 2 "$ltrain" check $tiny --mesh dp=2 --offload cpu --zero 1 --batch 3 --steps 2
expect 0 "^check: pass" "" $mpi -n 2 "$ltrain" check $tiny --zero 2 --dtype bf16 --steps 1 --offload optim=nvme
# An adapter's B begins at zero. The move of an element with a first gradient near eps depends on rounding, and other moves are as small. In later
# steps its gradient is of usual size, and A's gradient, which has B as a factor, differs as B does.
expect 0 "^check: pass" "" $mpi -n 2 "$ltrain" check --model "$llama" --data corpus.txt --seq-len 128 --effort quick \
    --threads 1 --lora r=64 --lr 1e-3 --eps 3e-9 --mesh ring=2
# Moments that are stored in few bits and differ by rounding errors may be rounded to different neighbours.
expect 0 "^check: pass" "" $mpi -n 2 "$ltrain" check --model gpt2-tiny --data corpus.txt --seq-len 128 --effort quick --threads 1 \
    --optim-dtype bf16 --mesh ring=2
expect 1 "^check: fail" "^ltrain: check: step 2: the gradient of model.* is not finite" "$ltrain" check $tiny --lr 1e30
expect 1 "^check: fail" "^ltrain: check: step 2: the gradient of model.* is not finite" $mpi -n 2 "$ltrain" check $tiny --lr 1e30
}
[ "$failures" = 0 ]
