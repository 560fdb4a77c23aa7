#!/bin/sh
# `ltrain eval --tasks needle ...`: a model trained for it finds a needle, and an untrained one does not. Also: equal answers from any tier;
# tables, JSON, pictures; seeds; chats; adapters; a signal on the way; refusals.
. "${LTRAIN_SOURCE_ROOT:?}/tests/cli/helpers.sh"
forgive_leaks

evaluate() { # OUT ARGUMENT...
    out=$1
    shift
    "$ltrain" eval --effort quick --threads 1 "$@" >"$out" 2>err || { fail "eval $*"; cat err; }
}
hashes() { sed -n 's/.*"prompt_xxh3": "\(.*\)".*/\1/p' "$1"; }
answers() { sed -n 's/.*"answer": \(.*\),$/\1/p' "$1"; }
mean() { # FILE: of the only task and length
    tr -d ' \n' <"$1" | sed 's/.*"means":\[{[^}]*"score":\([0-9.e-]*\)}.*/\1/'
}

# The vocabulary is the task's own words, from samples of bytes: a prompt has some 100 tokens, and each digit is one.
evaluate out --model tiny --tasks needle --lengths 600 --samples 800 --depths 50% --write-samples bytes.jsonl
says out "samples written: 800"
mkdir words
LC_ALL=C awk -F'[][]' '{
    n = split($2, byte, ",")
    text = "\xe2\x96\x81"
    for (i = 1; i <= n; i++)
        text = text (byte[i] == 32 ? "\xe2\x96\x81" : byte[i] == 10 ? "\\n" : sprintf("%c", byte[i] + 0))
    while (match(text, /^(\xe2\x96\x81)?[A-Za-z]+|^\xe2\x96\x81|^\\n|^[^A-Za-z]/)) {
        word[substr(text, 1, RLENGTH)] = 1
        text = substr(text, RLENGTH + 1)
    }
}
END {
    replace = "\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"always\",\"split\":false"
    printf "{\"version\":\"1.0\",\"added_tokens\":["
    for (i = 0; i < 2; i++)
        printf "%s{\"id\":%d,\"content\":\"<|im_%s|>\",\"special\":true,\"normalized\":false,\"single_word\":false,\"lstrip\":false,\"rstrip\":false}",
            i ? "," : "", i + 1, i ? "end" : "start"
    printf "],\"normalizer\":null,\"pre_tokenizer\":{%s},\"post_processor\":null,\"decoder\":{%s},", replace, replace
    printf "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":false,\"vocab\":[[\"<unk>\",0],[\"<|im_start|>\",0],[\"<|im_end|>\",0]"
    for (w in word)
        printf ",[\"%s\",-1]", w | "LC_ALL=C sort | tr -d \"\\n\""
    close("LC_ALL=C sort | tr -d \"\\n\"")
    printf "]}}\n"
}' bytes.jsonl >words/tokenizer.json
needle="--tokenizer words --lengths 128 --depths 50% --tasks needle"

# 9 samples a step. With this seed the loss is a hundredth of its first value at step 300, also with other samples, other rates (1.9e-3,
# 2.1e-3), other tiles and in bf16, and at step 500 with half the warmup. Other seeds may take longer. Sanitized builds need not find
# anything.
steps=450 samples=3000 found=0.8
[ "${1:-}" != sanitized ] || steps=5 samples=300 found=0
# shellcheck disable=SC2086 # the options are several words
evaluate out --model tiny $needle --samples $samples --seed 7 --write-samples train.jsonl
"$ltrain" --model tiny --tokenizer words --data train.jsonl --seq-len 1k --steps $steps --lr 2e-3 --warmup 20 --weight-decay 0 --seed 3 \
    --effort quick --threads 1 --out run >log 2>err || { fail "training"; cat err; }
# Numbers and keys are others than those of the training. Chance is 1 in 9 million.
# shellcheck disable=SC2086
{
    evaluate trained --model run $needle --samples 20 --seed 1 --json
    evaluate untrained --model tiny $needle --samples 20 --seed 1 --json
    evaluate far --model run $needle --samples 20 --seed 1 --json --device cpu:discrete --offload params=nvme,acts=nvme --nvme-path .
    evaluate shared --model run $needle --samples 20 --seed 1 --json --ranks 3
    evaluate other --model run $needle --samples 2 --seed 2 --json
}
awk -v x="$(mean trained)" -v y=$found 'BEGIN { exit !(x >= y) }' || { fail "a model trained for it finds $(mean trained)"; grep '^step .*00/' log; head -40 trained; }
[ "$(mean untrained)" = 0.0 ] || fail "an untrained model finds $(mean untrained)"
hashes trained >a
hashes untrained | cmp -s - a || fail "prompts of one seed differ"
[ "$(sort -u a | wc -l)" = 20 ] || fail "samples are alike"
[ "$(hashes other | grep -cxFf a)" = 0 ] || fail "seeds give one prompt"
answers trained >a
answers far | cmp -s - a || fail "placement changed an answer"
grep -v '"seconds"' trained >a
grep -v '"seconds"' shared | cmp -s - a || { fail "three ranks found something else"; grep -v '"seconds"' shared | diff - a | head; }

# Every task, as tables and as a picture, with the user's text; the text is cut at sentences, so prompts nearly reach the length.
awk 'BEGIN { for (i = 0; i < 150; i++) printf "The boat with number %d was sold to a clerk in house %d of the town. Nobody there had seen %d of them.%s",
    i, 3 * i, 7 * i, i % 2 ? "\n\n" : " " }' >text
all=needle,multi-needle,multikey,tracking,counting,aggregation,shuffled
evaluate out --model tiny --data text --tasks $all --lengths 1500,2k --depths 3 --samples 1 --max-new-tokens 12 --svg map.svg
for word in needle multi-needle multikey tracking counting aggregation shuffled all; do
    grep -q "^ *$word  *[0-9][0-9]*  *[0-9][0-9]*  *[0-9][0-9]*\$" out || { fail "no mean of $word"; cat out; }
done
says out "shuffled, 2,048 tokens, depth 50%: "
says out "haystack: 15 KiB of text"
[ "$(grep -c '</text>$' map.svg)" -ge 38 ] || fail "the picture has $(grep -c '</text>$' map.svg) texts"
says map.svg "counting, mean"
evaluate out --model tiny --data text --tasks tracking,counting,shuffled --lengths 2k --depths 0,33.3 --samples 1 --json
tokens=$(sed -n 's/.*"prompt_tokens": \(.*\),/\1/p' out)
[ "$(echo "$tokens" | wc -l)" = 6 ] || fail "cells: $tokens"
for n in $tokens; do
    [ "$n" -le 2031 ] && [ "$n" -gt 1700 ] || fail "a prompt of $n tokens for 2,048 with 17 or more for the answer"
done
# A cell's prompt does not depend on the other cells that are evaluated.
evaluate a --model tiny --data text --tasks needle --lengths 700 --depths 50% --samples 1 --json
evaluate b --model tiny --data text --tasks multikey,needle --lengths 2k,700 --depths 0,50 --samples 1 --json
[ -n "$(hashes a)" ] && hashes b | grep -qxF "$(hashes a)" || fail "a cell's prompt depends on others"
# Tasks together with losses; a text that is too short is repeated, which is reported.
head -c 500 text >short
evaluate out --model tiny --eval-data short --tasks ppl,needle --lengths 1k --depths 2 --samples 1
says out "too short for the longest length and is repeated"
says out "perplexity"

# Tasks with a chat template, and with adapters on top of the model.
# shellcheck disable=SC2086
{
    evaluate out --model run $needle --lengths 160 --samples 1 --json --chat --chat-template chatml
    says out '"chat": true'
    evaluate out --model run $needle --lengths 160 --samples 2 --chat --chat-template chatml --write-samples chats.jsonl
    evaluate out --model run $needle,ppl --lengths 160 --samples 1 --chat --chat-template chatml --eval-data short
}
says out perplexity
says chats.jsonl '"role":"assistant","content":"The special magic number for '
"$ltrain" --model run/hf --tokenizer words --data train.jsonl --seq-len 1k --steps 2 --lr 1e-5 --lora r=2 --effort quick --out lora >log 2>err ||
    { fail "adapters"; cat err; }
# shellcheck disable=SC2086
evaluate adapted --model lora $needle --samples 4 --seed 1 --json
awk -v x="$(mean adapted)" -v y=$found 'BEGIN { exit !(x >= 0.8 * y) }' || { fail "with adapters it finds $(mean adapted)"; head -40 adapted; }

# Ends the program in the background by SIGTERM (143), as soon as a command succeeds: end_when WHAT COMMAND...
end_when() {
    what=$1
    shift
    until "$@" || ! kill -0 $! 2>/dev/null; do sleep 0.1; done
    kill -TERM $! || fail "$what: it has ended"
    status=0
    wait $! || status=$?
    [ $status = 143 ] || { fail "$what, ended by a signal: $status"; cat err; }
}

# A signal during an evaluation: the answers so far are printed, also those of two ranks that share the samples.
"$ltrain" eval --model tiny --tasks needle --lengths 1k --depths 50 --samples 40 --effort quick --ranks 2 >out 2>err &
end_when "answering" grep -q "depth 0%: " out
says out "      0%          0"
says out "of 2,000 answers"

# Before the first answer there is nothing to print. The signal is sent as soon as it is caught.
"$ltrain" eval --model tiny --tasks needle --lengths 400k --depths 50% --samples 1 --effort quick >out 2>err &
end_when "before the first answer" grep -q '^SigCgt:.*[4-7c-f][0-9a-f]\{3\}$' /proc/$!/status
says err "before the first answer or window: there is nothing to show"

# A written file takes its name once it is whole: a former file stays after a signal, or on a full disk.
echo before >kept
"$ltrain" eval --model tiny --tasks needle --lengths 1k --depths 50 --samples 1000000 --write-samples kept >out 2>err &
end_when "writing samples" test -s kept.partial
says err "SIGTERM before the last sample: kept is as it was"
LTRAIN_FAULT=rename:1:ENOSPC "$ltrain" eval --model tiny --tasks needle --lengths 1k --depths 50% --write-samples kept >out 2>err && fail "no room"
says err "cannot write kept"
[ "$(cat kept)" = before ] && [ ! -e kept.partial ] || fail "what was there before is gone"
mkdir texts
ln text texts/link
for data in text texts 'te?t'; do
    refuse "is one of the files that --data names" eval --model tiny --tasks needle --lengths 1k --data "$data" --write-samples text
    refuse "is one of the files that --data names" eval --model tiny --tasks needle --lengths 1k --data "$data" --svg ./text
done
refuse "is one of the files that --eval-data names" eval --model tiny --tasks ppl,needle --eval-data text --lengths 1k --svg text
refuse "--lengths: 1024 is there twice" eval --model tiny --tasks needle --lengths 1k,512,1k

for option in '--lr 1e-3' '--steps 3' '--grad-accum 2' '--save-every 1' '--optim-dtype bf16'; do
    # shellcheck disable=SC2086
    refuse "is for training, and ltrain eval trains nothing" eval --model tiny --tasks needle --lengths 1k $option
done
refuse "--lora makes new adapters" eval --model tiny --tasks needle --lengths 1k --lora r=4
refuse "--lora makes new adapters" sample --model tiny --prompt a --lora r=4
refuse "there is no task 'needles'; the tasks are ppl, position, needle, multi-needle" eval --model tiny --tasks needles --lengths 64
refuse "needle is there twice" eval --model tiny --tasks needle,needle --lengths 1k
refuse "101 is not between 0 and 100" eval --model tiny --tasks needle --lengths 1k --depths 0,101
refuse "25% is there twice" eval --model tiny --tasks needle --lengths 1k --depths 25,25%
refuse "a single depth is written as 1%" eval --model tiny --tasks needle --lengths 1k --depths 1
refuse "64 tokens are too few for --tasks needle: its question and the answer take" eval --model tiny --tasks needle --lengths 64,1k
refuse "give --data PATH" eval --model tiny --tasks shuffled --lengths 1k
refuse "give more text, or shorter --lengths" eval --model tiny --tasks shuffled --lengths 64k --data text
echo >blank
refuse "has no words" eval --model tiny --tasks needle --lengths 1k --data blank
refuse "holds token ids" eval --model tiny --tasks needle --lengths 1k --data train.jsonl
refuse "a chat needs a tokenizer" eval --model tiny --tasks needle --lengths 1k --chat
refuse "is for tasks that are answered" eval --model tiny --eval-data text --lengths 1k --depths 3
refuse "--samples is for tasks that are answered" eval --model tiny --eval-data text --lengths 1k --samples 3
refuse "--data is for training" eval --model tiny --eval-data text --lengths 1k --data text
refuse "--chat-template does nothing to these tasks without --chat" eval --model tiny --tasks needle --lengths 1k --chat-template chatml
refuse "--train-on does nothing to these tasks without --write-samples" eval --model tiny --tasks needle --lengths 1k --train-on all
refuse "leave out ppl and position" eval --model tiny --eval-data text --tasks ppl,needle --lengths 1k --write-samples x
refuse "no such file or directory" eval --model tiny --eval-data nowhere --tasks ppl,needle --lengths 1k
grep -q 'needle, ' out && fail "what is refused is refused after the answers"
refuse "--samples: a cell needs one answer" eval --model tiny --tasks needle --lengths 1k --samples 0
refuse "cannot write nowhere/x" eval --model tiny --tasks needle --lengths 1k --svg nowhere/x
status=0
"$ltrain" eval --model tiny --tasks needle --lengths 1k,1m --device-mem 3M --host-mem 3M >out 2>err || status=$?
[ $status = 3 ] || fail "a length that does not fit ends with $status"
says err "tokens fit"
refuse "give --lengths" eval --model tiny --tasks needle
[ $failures = 0 ]
