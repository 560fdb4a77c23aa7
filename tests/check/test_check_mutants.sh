#!/bin/sh
# `ltrain check` names each planted fault of mutants_check.txt, and passes without one: `test_check_mutants.sh PROGRAM LIST`.
set -eu
command -v mpiexec >/dev/null 2>&1 || exit 77
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1 ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
program=$(realpath "$1") list=$2 model=$LTRAIN_SOURCE_ROOT/tests/golden/gpt-oss llama=$LTRAIN_SOURCE_ROOT/tests/golden/llama-gqa mixtral=$LTRAIN_SOURCE_ROOT/tests/golden/moe/mixtral-aux
hybrid=$LTRAIN_SOURCE_ROOT/tests/golden/hybrid/qwen3_5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
head -c 4000 "$LTRAIN_SOURCE_ROOT/LICENSE" >data.txt # a text that stays: what a fault changes, and so its name, depends on it

# Runs a check with MUTANT and OPTION...; returns the exit status, with the output in `said`.
check() {
    mutant=$1
    shift
    status=0
    LT_MUTANT=$mutant timeout -k 5 1000 "$program" check --model "$model" --data data.txt --seq-len 128 --effort quick --threads 1 \
        --out run "$@" >said 2>&1 || status=$?
}

n=0
failures=0
passed=
# Makes sure that check passes with these options, and that its output has PATTERN if FAULT is planted: FAULT PATTERN OPTION...
must_name() {
    pattern=$1
    shift
    n=$((n + 1))
    name=$(grep '^\[' "$list" | sed -n "${n}p")
    if [ "$*" != "$passed" ]; then
        check 0 "$@"
        [ "$status" = 0 ] && grep -q '^check: pass' said || { failures=$((failures + 1)); echo "not ok: without $name: status $status"; cat said; }
        passed=$*
    fi
    check "$n" "$@"
    if [ "$status" = 1 ] && grep -q "$pattern" said; then
        grep "$pattern" said | sed "s/^/$name: /"
    else
        failures=$((failures + 1))
        echo "not ok: $name: status $status, and not: $pattern"
        cat said
    fi
}

# Checks a fault (0: none) of steps of $subject with $data, beside others, each in a directory of its own, as a failing run mostly waits: FAULT NAME
# PATTERN OPTION...
later() {
    fault=$1 id=$2 pattern=$3
    shift 3
    mkdir "$id"
    (
        cd "$id"
        status=0
        # shellcheck disable=SC2086 # a list of options
        LT_MUTANT=$fault timeout -k 5 1000 "$program" check --model "$subject" $data --seq-len 128 --effort quick --threads 1 --out run \
            --steps 3 --ranks 2 --offload none --zero 2 --mesh ring=2 "$@" >said 2>&1 || status=$?
        if [ "$status" = $((fault > 0)) ] && grep -q "$pattern" said; then
            grep "$pattern" said | sed "s/^/$fault $*: /"
        else
            echo "not ok: $fault $*: status $status, and not: $pattern"
            cat said
            touch failed
        fi
    ) &
}

# runs beside the search for faults of the first step
subject=$llama data='--data ../data.txt'
for type in "--dtype fp32" "--dtype bf16" "--optim-dtype int8"; do
    id=${type##* }
    # shellcheck disable=SC2086 # an option and its value
    {
        later 0 "$id-0" '^check: pass' $type
        later 7 "$id-7" 'check: step 2: the \(fp32 \)\?parameter of .* differs' $type
        later 8 "$id-8" 'check: step [12]: the [a-z]* of .* \(differs\|on rank\)' $type
        later 9 "$id-9" 'check: step 2: the loss is' $type
        later 10 "$id-10" 'check: step 2: the \(fp32 \)\?parameter of .* differs' $type
    }
    wait
done &
later 0 parts-0 '^check: pass' --ranks 4 --mesh tp=2,pp=2 --batch 2 --steps 1
later 15 parts-15 'check: step 1: the norm is' --ranks 4 --mesh tp=2,pp=2 --batch 2 --steps 1

# a model with experts and a vocabulary of 32
subject=$mixtral data='--data ../ids.bin --token-type u16'
# shellcheck disable=SC2059 # the format is made of octal numbers
printf "$(head -c 2000 data.txt | od -An -v -tu1 -w1 | awk '{printf "\\%03o\\000", $1 % 32}')" >ids.bin
{
    routed="--dtype fp32 --steps 1"
    # shellcheck disable=SC2086 # a list of options
    {
        later 0 routed-0 '^check: pass' $routed
        later 11 routed-11 'check: step 1: the gradient of model.layers.1.block_sparse_moe.gate.weight differs' $routed
        later 12 routed-12 'check: step 1: \(the gradient of .*experts.down_proj differs\|in layer 2 of the 2 .* choices of an expert differ\)' $routed
        later 0 shared-0 '^check: pass' $routed --mesh dp=2,ep=2 --batch 2
        later 14 shared-14 'check: step 1: in layer 2 of the 2 with experts, .* choices of an expert differ' $routed --mesh dp=2,ep=2 --batch 2
        later 13 routed-13 'check: step 1: in layer 1 of the 2 with experts, .* choices of an expert differ' $routed
        subject=$hybrid
        later 0 states-0 '^check: pass' $routed
        later 16 states-16 'check: step 1: the gradient of .* differs' $routed
        later 17 states-17 'check: step 1: the gradient of .* differs' $routed
    }
    wait
} &

alone="--steps 1 --ranks 1 --offload none"
two="--steps 1 --ranks 2 --offload none --zero 3"
# shellcheck disable=SC2086 # lists of options
{
    must_name 'check: step 1: the gradient of model.layers.1.self_attn.sinks differs' $two --mesh ulysses=2
    must_name 'check: step 1: the gradient of model.norm.weight differs' $two --mesh ring=2
    must_name 'check: step 1: the gradient of model.norm.weight differs' $two --mesh ring=2
    must_name 'check: step 1: the gradient of model.norm.weight differs' $two --mesh ring=2
    must_name 'check: step 1: the norm is' $two --mesh ring=2
    must_name 'check: step 1: the gradient of model.layers.0.* differs' $alone --offload grads=cpu
}
wait
failures=$((failures + $(find . -name failed | wc -l)))
n=$((n + 4 + 4 + 1 + 2))
[ "$n" = "$(grep -c '^\[' "$list")" ] || { echo "not ok: $n faults are tried, $list has others"; failures=$((failures + 1)); }
echo "$n faults, $failures not named"
[ "$failures" = 0 ]
