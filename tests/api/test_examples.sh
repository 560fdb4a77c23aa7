#!/bin/sh
# The examples of the C API: the one in C gives the command's losses and files, bit for bit; the one in Python lowers its loss; the library
# exports the names of its header alone: `test_examples.sh LIBRARY CC...`.
. "${LTRAIN_SOURCE_ROOT:?}/tests/cli/helpers.sh"
library=$1
shift
cc="$*"
cp "$source/examples/book.txt" .
options="--model tiny --data book.txt --seq-len 256 --steps 4 --save-every 2 --tiles rows=64,loss=64,group=4096 --threads 1 --effort quick"

$cc -std=c11 -Wall -Wextra -Werror -I"$source/include" "$source/examples/train.c" "$library" -Wl,-rpath,"$(dirname "$library")" -o train
# shellcheck disable=SC2086 # a list of words
./train $options --out library >said 2>err || fail "train ends with $?: $(cat err)"
[ ! -s err ] || fail "the library prints on standard error: $(cat err)"
[ "$(wc -l <said)" = 5 ] || { fail "the library prints:"; cat said; }
# shellcheck disable=SC2086
run command $options --out command
for name in hf/model.safetensors checkpoints/step-000004/model.safetensors checkpoints/step-000004/optimizer.safetensors; do
    cmp "command/$name" "library/$name" || fail "$name differs"
done
sed -n 's/.*loss \([0-9.]*\),.*/\1/p' said >losses
sed -n 's/.*"loss":\([0-9.]*\),"grad.*/\1/p' command/metrics.jsonl | cmp - losses || fail "losses differ: $(cat losses)"
status=0
./train --model tiny >out 2>err || status=$?
[ $status = 1 ] || fail "train without data ends with $status"
says err "train: data and seq-len are missing"

if command -v nm >/dev/null; then
    nm -D --defined-only "$library" | sed 's/.* //' | sort >exported
    sed -n 's/^LTRAIN_EXPORT.*[ *]\(ltrain_[a-z_]*\)(.*/\1/p' "$source/include/ltrain.h" | sort | cmp - exported || { fail "exported:"; cat exported; }
fi

# A sanitizer's library would have to be loaded before Python's own.
if command -v python3 >/dev/null && ! nm -D "$library" | grep -q __asan_init; then
    LTRAIN_LIBRARY=$library python3 "$source/examples/objective.py" --model tiny --seq-len 128 --steps 4 --lr 1e-2 --tiles rows=64,loss=64,group=4096 \
        --threads 1 --effort quick --out focal >said 2>err || fail "objective.py: $(cat err)"
    awk '{ loss[NR] = $NF } END { exit !(NR == 4 && loss[4] < loss[1] - 0.1) }' said || { fail "the loss does not fall:"; cat said; }
    [ -f focal/hf/model.safetensors ] || fail "no model"
fi
exit $failures
