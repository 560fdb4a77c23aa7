#!/bin/sh
# `ltrain eval`: perplexity and loss by position, in any tier, on ranks, for runs; refusals; --eval-before.
. "${LTRAIN_SOURCE_ROOT:?}/tests/cli/helpers.sh"
forgive_leaks

evaluate() { # OUT ARGUMENT...
    out=$1
    shift
    "$ltrain" eval --eval-data text --seed 3 --effort quick "$@" >"$out" 2>err || { fail "eval $*"; cat err; }
}
value() { sed -n "s/.*\"$2\": \([-0-9.e]*\).*/\1/p" "$1" | head -n 1; }
near() { # WHAT A B
    awk -v a="$2" -v b="$3" 'BEGIN { d = a - b; exit !(a != "" && d < 1e-5 && d > -1e-5) }' || fail "$1: $2 and $3"
}

mkdir text
awk 'BEGIN { srand(5); for (i = 0; i < 260; i++) printf "%c%c%c ", 97 + int(rand() * 26), 97 + i % 26, 97 + int(rand() * 3) }' >text/a
printf 'A second, short document.' >text/b # 1040 and 25 bytes

# 9 windows of 128, the last one shorter; every token but the documents' first is predicted.
evaluate one --model tiny --lengths 128 --json
[ "$(value one windows)" = 9 ] || fail "windows: $(value one windows)"
[ "$(sed -n 's/.*"tokens": \([0-9]*\).*/\1/p' one | sed -n 2p)" = 1063 ] || { fail "tokens predicted"; cat one; }
awk -v l="$(value one loss)" -v b="$(value one bits_per_byte)" 'BEGIN { d = l / log(2) - b; exit !(d < 1e-9 && d > -1e-9) }' ||
    fail "of bytes, bits per byte are the loss in bits"
# The weighted mean of the buckets' losses is the loss.
tr -d ' \n' <one | sed 's/.*"seen":\[//; s/},{/\n/g' | sed 's/.*"tokens":\([0-9]*\),"loss":\([-0-9.e]*\).*/\1 \2/' |
    awk '{ n += $1; s += $1 * $2 } END { printf "%d %.12g\n", n, s / n }' >buckets
read -r n mean <buckets
[ "$n" = 1063 ] || fail "tokens of all buckets: $n"
near "mean of the buckets" "$mean" "$(value one loss)"

# With everything on drives and device memory that the host cannot reach, results are the same: alone, on two ranks that share each
# sequence, on two that do not, and on two with a layer each.
evaluate far --model tiny --lengths 128 --json --device cpu:discrete --offload nvme
cmp -s one far || fail "placement changed what was found"
evaluate ring --model tiny --lengths 128 --json --ranks 2 --mesh ring=2
near "a ring of two" "$(value ring loss)" "$(value one loss)"
evaluate dp --model tiny --lengths 128 --json --ranks 2 --mesh dp=2
near "two ranks with sequences of their own" "$(value dp loss)" "$(value one loss)"
evaluate stages --model tiny --lengths 128 --json --ranks 2 --mesh pp=2,slices=2
near "two stages" "$(value stages loss)" "$(value one loss)"
tr -d ' \n' <one | sed 's/.*"seen":\[//; s/"loss":[-0-9.e]*//g' >seen # predictions of each bucket
tr -d ' \n' <stages | sed 's/.*"seen":\[//; s/"loss":[-0-9.e]*//g' | cmp -s - seen || fail "two stages: what predictions see"

# Overlapping windows predict every token once, too.
evaluate overlap --model tiny --lengths 128 --stride 50 --tasks ppl --json
[ "$(value overlap windows)" = 20 ] || fail "windows that overlap: $(value overlap windows)"
[ "$(sed -n 's/.*"tokens": \([0-9]*\).*/\1/p' overlap | sed -n 2p)" = 1063 ] || { fail "tokens of windows that overlap"; cat overlap; }
evaluate table --model tiny --lengths 32..128,200
says table "loss by tokens seen"
[ "$(grep -c '^ *[0-9]* *[0-9]* *[0-9]* *1,063 ' table)" = 4 ] || { fail "four lengths"; cat table; }
grep -q "no document has more" table && fail "documents are longer than windows"

# A run is evaluated before its first step, between steps and at its end.
"$ltrain" --model tiny --data text --eval-data text --seq-len 128 --steps 2 --eval-every 1 --eval-before --seed 3 --out run \
    --effort quick >log 2>err || { fail "training"; cat err; }
says log "step 0  eval loss"
says run/metrics.jsonl '{"step":0,"eval_loss":'
says run/metrics.jsonl '"eval_loss_by_position":{"1":'
[ "$(grep -c eval_bits_per_byte run/metrics.jsonl)" = 3 ] || fail "lines with an evaluation"
evaluate run.json --model run --lengths 128 --json
awk -v a="$(value run.json loss)" -v b="$(value one loss)" 'BEGIN { exit !(a != "" && a < b) }' || fail "training helped nothing"

# Without a text, the run's held-out text is evaluated: its --eval-data, or the last part of each source, from which nothing was trained.
own() { # OUT ARGUMENT...
    out=$1
    shift
    "$ltrain" eval --seed 3 --effort quick "$@" >"$out" 2>err || { fail "eval $*"; cat err; }
}
own out --model run --lengths 128 --json
[ "$(value out loss)" = "$(value run.json loss)" ] || fail "what the run held out: $(value out loss), not $(value run.json loss)"
says err "text: what run has held out of its training: $scratch/text (its --eval-data), as it was then"
says out '"checked": true'
sed 's/"max_position_embeddings": [0-9]*/"max_position_embeddings": 500, "unheard_of": 3/' run/hf/config.json >short
cp -r run/hf made-for-500
mv short made-for-500/config.json
own out --model made-for-500 --eval-data text --lengths 400,2k --tasks ppl
says out "remark: no document has more than 1,040 tokens: in longer windows no prediction sees more"
says out "warning: lengths above 500 are beyond the positions that the model was made for"
says out "warning: config.json has unheard_of, which ltrain does not know"
"$ltrain" sample --model made-for-500 --prompt a --max-new-tokens 500 >out 2>err || fail "sampling beyond the positions"
says err "have room for 501 tokens, beyond the 500 positions that the model was made for"
says err "unheard_of"
# ltrain.yaml describes the next training run. Its adapters, positions and held-out text do not count if another model is evaluated.
printf 'model: tiny\nlora: r=4\nbase: nf4\nrope-base: 77\nrope: linear:2\neval-fraction: 0.3\neval-every: 1\n' >ltrain.yaml
own out --model run/hf --eval-data text --lengths 128 --json
[ "$(value out loss)" = "$(value run.json loss)" ] || fail "beside ltrain.yaml: $(value out loss), not $(value run.json loss)"
own out --eval-data text --lengths 128 --rope none --base none --json # with ltrain.yaml's own model they count
[ "$(value out loss)" != "$(value one loss)" ] || fail "rope-base of ltrain.yaml is not that of its model"
rm ltrain.yaml
own out --model run/hf --tasks ppl,position,needle --lengths 512..1k --depths 50% --samples 1 --stride 512
says out "text: what run has held out of its training: "
says out "loss by tokens seen"
says out " perplexity"
says out "needle"
mkdir other tails
tr a-z n-za-m <text/a >other/c
"$ltrain" --model tiny --data text=0.7,other=0.3 --eval-fraction 0.3 --seq-len 128 --steps 2 --save-every 2 --seed 3 --out part --effort quick >log 2>err ||
    { fail "training with a share held out"; cat err; }
tail -c 272 text/a >tails/a # 1040 bytes are 9 parts of up to 128, of which the last 3 are held out, and text/b
cp text/b tails/b
tail -c 272 other/c >tails/c
own out --model part --lengths 100 --json
says err "text: what part has held out of its training: the last 30% of $scratch/text=0.7, $scratch/other=0.3 (its --eval-fraction), as it was then"
own expected --model part --eval-data tails --lengths 100 --json
[ -n "$(value out loss)" ] && [ "$(value out loss)" = "$(value expected loss)" ] || fail "a share held out: $(value out loss), not $(value expected loss)"
own out --model part/checkpoints/step-000002 --lengths 100 --json --ranks 2
near "a share held out, by two ranks" "$(value out loss)" "$(value expected loss)"
"$ltrain" --model tiny --data text --seq-len 128 --steps 1 --seed 3 --out none --effort quick >log 2>err || { fail "training"; cat err; }
refuse "none has held nothing out of its training (it had neither eval-data nor eval-fraction): give --eval-data PATH" eval --model none --lengths 64
refuse "eval-data is missing: give --eval-data PATH" eval --model text --lengths 64
cp text/b kept
printf . >>text/b
refuse "what run held out is not there as it was: $scratch/text/b has 26 bytes and had 25: give --eval-data PATH" eval --model run --lengths 64
refuse "what part held out is not there as it was: $scratch/text/b has 26 bytes and had 25" eval --model part --lengths 64
rm run/data.txt
own out --model run --lengths 64
says out "whether as it was then nothing says"
mv kept text/b
mv other elsewhere
refuse "what part held out is gone: $scratch/other is not there any more (--data of the run): give --eval-data PATH" eval --model part --lengths 64

# A signal during an evaluation: the results so far are printed, with the number of windows. The signal is sent half a second after the store exists,
# which is made just before the first window.
for i in 1 2 3 4 5 6; do cat text/a; done >six
for i in 1 2 3 4 5 6 7 8; do cat six six six six six six six six; done >long
ticks() { sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 }'; }
"$ltrain" eval --model tiny --eval-data long --lengths 8,16 --device cpu:discrete --offload nvme --nvme-path . --threads 1 --effort quick >out 2>err &
child=$!
until ls ltrain-*.store >file 2>/dev/null || ! kill -0 $child 2>/dev/null; do sleep 0.05; done
began=$(ticks $child)
while [ $(($(ticks $child) - began)) -lt 50 ] && kill -0 $child 2>/dev/null; do sleep 0.05; done
kill -TERM $child || fail "it has ended: the signal came too late"
status=0
wait $child || status=$?
[ $status = 143 ] || { fail "ended by a signal: $status"; cat err; }
says err "SIGTERM: ending with what is found"
grep -q '^ended early by SIGTERM: the figures of 8 tokens are of [1-9][0-9,]* of 49,920 windows; not evaluated: 16$' out || { fail "what is left out"; cat out err; }
grep -q '^ *8  *8 [1-9][0-9,]*/49,920  *[1-9][0-9,]*  *[45]\.[0-9]* ' out || { fail "figures up to there"; cat out; }

refuse "eval-data is missing" eval --model tiny --lengths 64
refuse "give --lengths" eval --model tiny --eval-data text
refuse "there is no task 'needles'" eval --model tiny --eval-data text --lengths 64 --tasks needles
refuse "from the shorter to the longer" eval --model tiny --eval-data text --lengths 64..8
refuse "begin 1 to 64 apart" eval --model tiny --eval-data text --lengths 64 --stride 65
refuse "no such directory" eval --model nowhere/x --eval-data text --lengths 64
refuse "--lengths is for ltrain eval" --model tiny --data text --seq-len 64 --lengths 64
refuse "eval-before has nothing to evaluate" --model tiny --data text --seq-len 64 --eval-before
[ $failures = 0 ]
