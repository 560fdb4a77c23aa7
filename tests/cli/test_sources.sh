#!/bin/sh
# Sources by weight: what is trained does not depend on ranks or on where a run was resumed; formats together; bad input in one sentence.
. "${LTRAIN_SOURCE_ROOT:?}/tests/cli/helpers.sh"
forgive_leaks

make_model model

# A book, rows in an archive, conversations, ids: one run.
i=0
while [ $i -lt 400 ]; do
    echo "In the beginning was word $i, and the word was with number $((i * 37 % 101))."
    i=$((i + 1))
done >book.txt
sed 's/.*/{"text": "&"}/' book.txt | head -n 150 | gzip -c >rows.jsonl.gz
sed 's/.*/{"prompt": "Which word?", "completion": "&"}/' book.txt | head -n 80 >chats.jsonl
printf '{"input_ids": [5, 6, 7, 8], "labels": [-100, -100, 7, 8]}\n' >ids.jsonl
mix="book.txt=0.5,rows.jsonl.gz=0.25,chats.jsonl=0.2,ids.jsonl=0.05"
run data data --model model --data "$mix" --seq-len 64 --samples 1
[ "$(grep -c '^====' data.out)" = 4 ] || { fail "four sources"; cat data.out; }
grep -q '^==== chats.jsonl: 20% of the tokens$' data.out || fail "the weight of a source"
cat >mix.yaml <<'END'
model: model
seq-len: 64
data: {book.txt: 0.5, rows.jsonl.gz: 0.25, chats.jsonl: 0.2, ids.jsonl: 0.05}
END
run yaml data --config mix.yaml --samples 1
cmp -s data.out yaml.out || fail "a mapping in a file is not the same"

# Presets have random weights: the bytes' model, trained on bytes by weight. The losses of a run that is cut after each step and goes on
# on other ranks are those of the whole one, to what sums in another order leave.
sed -n '1,150p' book.txt >a.txt
sed -n '151,400p' book.txt >b.txt
opts="--model tiny --data a.txt=1,b.txt=2 --seq-len 64 --batch 4 --offload nvme --nvme-max 200M --save-every 1 --eval-fraction 0.1"
losses() { sed 's/.*"loss":\([0-9.]*\).*/\1/' "$1/metrics.jsonl"; }
alike() { # NAME RUN
    losses whole >w
    losses "$2" >r
    paste w r | awk -v n="$(wc -l <w)" '{ d = $1 - $2; if (d < -1e-4 || d > 1e-4) bad = 1 } END { exit bad || NR != n }' || { fail "$1"; paste w r; }
}
run whole $opts --steps 4 --out whole
grep -q '^data: .*b.txt: 66.67% of the tokens; .* epochs in 4 steps$' whole.out || { fail "epochs of a source"; cat whole.out; }
run first $opts --steps 1 --out parts
run second --resume parts --steps 2
run third --resume parts --steps 3 --ranks 2
run fourth --resume parts --steps 4 --ranks 4
alike "resumed on 1, 2 and 4 ranks" parts
run others --resume parts --steps 5 --data a.txt=2,b.txt=1
grep -q 'resume: packing best-fit, longer documents: split, weights 2 of [0-9]* 1 of [0-9]*; it was packing best-fit, longer documents: split, weights 1 of [0-9]* 2 of [0-9]*: ' others.out ||
    { fail "other weights are not said"; cat others.out; }

# ---- bad input ----
d="data --model model --seq-len 64 --data"
refuse "some of its 2 paths have weights and others have none" $d book.txt=1,chats.jsonl
refuse "--eval-data: $scratch/a.txt=1: all of it is evaluated, so it takes no weights" data --model tiny --data a.txt --seq-len 64 --eval-data "$scratch/a.txt=1"
refuse "the weight 0 of" $d book.txt=1,chats.jsonl=0
cp a.txt a=5
mkdir plain && cp model/config.json model/tokenizer.json plain
run plain data --model plain --data ids.jsonl --seq-len 64 --samples 0 # ids that are masked need no chat template
run named data --model tiny --data a=5 --samples 0
check() { # TEXT CONTENT [NAME]
    printf "$2" >"${3:-bad.jsonl}"
    refuse "$1" $d "${3:-bad.jsonl}"
}
check 'bad.jsonl:2: broken JSON: ' '{"text": "a b"}\n{"text": "b\n'
check 'bad.jsonl:1: message 1 has no role' '{"messages": [{"content": "a"}]}\n'
check 'bad.jsonl:2: message 2 has no role' '{"prompt": "a", "completion": "b"}\n{"messages": [{"role": "user", "content": "a"}, {"content": "a"}]}\n'
check 'bad.jsonl:1: turn 1 is from ' '{"conversations": [{"from": "nobody", "value": "a"}]}\n'
check "bad.jsonl:2: it is a conversation, and the file's first row is a text" '{"text": "a b"}\n{"messages": []}\n'
check 'bad.jsonl:2: it has no list "input_ids"' '{"input_ids": [1, 2]}\n{"text": "a"}\n'
check 'bad.jsonl:1: place 2 of its input_ids is 5000, and ids of the vocabulary end at ' '{"input_ids": [1, 5000]}\n'
check 'bad.jsonl:1: it holds several documents (position_ids that begin anew' '{"input_ids": [1, 2, 3, 4], "position_ids": [0, 1, 0, 1]}\n'
check 'ids.bin.gz: files of token ids are not read compressed' 'abcd' ids.bin.gz
check 'all files are empty' '' bad.txt
check 'bad.txt.gz is damaged: ' 'no archive' bad.txt.gz
check 'bad.bin has neither llm.c' 'abcd' bad.bin
check "bad.parquet is a Parquet file, which is not read as it is: python3 -c" 'PAR1abcdPAR1' bad.parquet
refuse "document 1 in $scratch/book.txt has " $d book.txt --too-long refuse
refuse "ids.jsonl holds token ids and $scratch/book.txt a text" data --model tiny --data ids.jsonl,book.txt --seq-len 64
refuse "one of ids.jsonl and book.txt holds token ids and the other texts" data --model tiny --data ids.jsonl=1,book.txt=1 --seq-len 64
sed 's/"vocab_size": 1000/"vocab_size": 300/' model/config.json >c && mkdir small && cp model/tokenizer.json small && mv c small/config.json
refuse "the model's embedding has 300 rows: it is another model's tokenizer" data --model small --data book.txt --seq-len 64
printf 'a\377b and more\n' >broken.txt
run broken data --model model --data broken.txt --samples 0
grep -q '^remark: 1 broken characters in the text (it is no valid UTF-8) are read as U+FFFD' broken.out || { fail "invalid UTF-8 is not said"; cat broken.out; }
exit $failures
