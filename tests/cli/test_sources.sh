#!/bin/sh
# Sources by weight: training does not depend on ranks or on the step of a resume; formats together; bad input in one sentence.
. "${LTRAIN_SOURCE_ROOT:?}/tests/cli/helpers.sh"
forgive_leaks

make_model model

# A book, rows in an archive, conversations, ids: one run.
make_book 400
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

# --data-exclude leaves out files by name, by a path below the directory or the pattern's, both files of a pair, and unreadable files; never
# a file that --data names.
mkdir -p tree/src/gen tree/build/deep tree/docs
for f in a.c b.h src/c.c src/gen/d.c build/e.c build/deep/f.c docs/g.txt; do echo "$f" >tree/$f; done
left() { # DATA PATTERNS FILE...
    data=$1 patterns=$2
    shift 2
    run left data --model tiny --samples 99 --data "$data" --data-exclude "$patterns"
    sed -n '/^----/d; s/【//; s/】//; /^[^ ]*[.][cht]/p' left.out | tr '\n' ' ' >shown
    [ "$(cat shown)" = "$* " ] || { fail "--data $data --data-exclude $patterns: $(cat shown)"; }
}
all="a.c b.h build/deep/f.c build/e.c docs/g.txt src/c.c src/gen/d.c"
left tree '*.c' b.h docs/g.txt
says left.out 'data: --data-exclude leaves out 5 files'
left tree build a.c b.h docs/g.txt src/c.c src/gen/d.c
left tree 'src/*.c' a.c b.h build/deep/f.c build/e.c docs/g.txt src/gen/d.c
says left.out 'data: --data-exclude leaves out 1 file'
left tree/ './src/**,docs/' a.c b.h build/deep/f.c build/e.c
left tree '**/gen/*.c,**/deep/**' a.c b.h build/e.c docs/g.txt src/c.c
left tree,tree/a.c '*.c' a.c b.h docs/g.txt
left 'tree/**/*.c' 'build/**' a.c src/c.c src/gen/d.c
left 'tree/*/*.c' 'src/*' build/e.c
left 'tree/*' 'build/*.c' a.c b.h build/deep/f.c docs/g.txt src/c.c src/gen/d.c
left tree,'tree/*.h' '*.h' a.c build/deep/f.c build/e.c docs/g.txt src/c.c src/gen/d.c
ln -s nowhere tree/build/link
left tree build a.c b.h docs/g.txt src/c.c src/gen/d.c
rm tree/build/link
run left data --model tiny --samples 99 --data tree
[ "$(sed -n 's/【//; s/】//; /^[^ -]*[.][cht]/p' left.out | tr '\n' ' ')" = "$all " ] || fail "all files"
for pattern in '*.x' 'gen/*' src/c /; do
    refuse "--data-exclude: '$pattern' matches no file that a directory or pattern of --data or --eval-data has" data --model tiny --data tree --data-exclude "$pattern"
done
refuse "--data-exclude: 'a.c' matches no file" data --model tiny --data tree/a.c --data-exclude a.c
refuse "--data: --data-exclude leaves out 7 files, and there is no other one" data --model tiny --data tree --data-exclude '*'
printf 'model: tiny\nseq-len: 8\ndata: tree\ndata-exclude: [build, "*.h"]\neval-data: tree/docs\neffort: quick\nsave-every: 2\n' >exclude.yaml
run left --config exclude.yaml --steps 2 --out left
says left.out 'data: --data-exclude leaves out 3 files'
grep -q '^data-exclude: \["\?build"\?, "\?\*.h"\?\]$' left/config.yaml || { fail "a run keeps patterns"; grep data left/config.yaml; }
rm tree/b.h
run left --resume left --steps 3
says left.out 'data: --data-exclude leaves out 2 files'
refuse '--data: not what the checkpoint was trained with' --resume left --steps 4 --data-exclude build/deep
run left eval --model left/hf --lengths 8 --eval-data 'tree/*' --data-exclude src
says left.out 'text: --data-exclude leaves out 2 files'

# A preset of random weights is trained on bytes, by weight. A run that is cut after each step and goes on on other ranks has the losses of
# the whole run, up to sums in another order.
sed -n '1,150p' book.txt >a.txt
sed -n '151,400p' book.txt >b.txt
opts="--model tiny --data a.txt=1,b.txt=2 --seq-len 64 --batch 4 --effort quick --offload nvme --nvme-max 200M --save-every 1 --eval-fraction 0.1"
losses() { sed 's/.*"loss":\([0-9.]*\).*/\1/' "$1/metrics.jsonl"; }
alike() { # NAME RUN
    losses whole >w
    losses "$2" >r
    paste w r | awk -v n="$(wc -l <w)" '{ d = $1 - $2; if (d < -1e-4 || d > 1e-4) bad = 1 } END { exit bad || NR != n }' || { fail "$1"; paste w r; }
}
run whole $opts --steps 4 --out whole
grep -q '^data: .*b.txt: 66.67% of the tokens; .* epochs in 4 steps$' whole.out || { fail "epochs of a source"; cat whole.out; }
run single --model tiny --data a.txt --seq-len 64 --steps 2 --effort quick --out single
grep -q '^data: 0\.[0-9]* epochs in 2 steps$' single.out || { fail "epochs of the only source"; cat single.out; }
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
refuse "some of its 2 paths have weights and others, as chats.jsonl, have none" $d book.txt=1,chats.jsonl
sed 's/b.*0.5,/book.txt: much,/' mix.yaml >much.yaml
refuse "much.yaml:3: data: the weight of book.txt is 'much', which is no number" data --config much.yaml
refuse "--eval-data: $scratch/a.txt=1: all of it is evaluated, so it takes no weights" data --model tiny --data a.txt --seq-len 64 --eval-data "$scratch/a.txt=1"
refuse "the weight 0 of" $d book.txt=1,chats.jsonl=0
cp a.txt a=5
mkdir plain && cp model/config.json model/tokenizer.json plain
run plain data --model plain --data ids.jsonl --seq-len 64 --samples 0 # masked ids need no chat template
run named data --model tiny --data a=5 --samples 0
check() { # TEXT CONTENT [NAME]
    printf "$2" >"${3:-bad.jsonl}"
    refuse "$1" $d "${3:-bad.jsonl}"
}

# Rows under other file names are read as rows, or refused; below a directory they get a remark.
mkdir names
for name in a.ndjson a.jsonlines a.JSONL a.Ndjson; do
    printf '{"text": "the first"}\n{"text": "the second"}\n' >$name
    run named data --model model --data $name --samples 0
    says named.out 'data: 2 documents'
done
check "bad.txt holds rows, which are read of files named .jsonl: mv '$scratch/bad.txt' '$scratch/bad.txt.jsonl'" '{"text": "a"}\n' bad.txt
check "bad.JSON holds rows, which are read of files named .jsonl: mv '$scratch/bad.JSON' '$scratch/bad.jsonl'" '{"text": "a"}\n' bad.JSON
check 'part-00000 is a JSON list; rows are read one a line' '[{"text": "a"}]\n' part-00000
printf '{"text": "a"}\n' >names/part-00000
run named data --model model --data names --samples 0
says named.out 'names/part-00000 holds rows and is read as a text'
check 'bad.jsonl:2: broken JSON: ' '{"text": "a b"}\n{"text": "b\n'
check 'bad.jsonl:1: message 1 has no role' '{"messages": [{"content": "a"}]}\n'
check 'bad.jsonl:2: message 2 has no role' '{"prompt": "a", "completion": "b"}\n{"messages": [{"role": "user", "content": "a"}, {"content": "a"}]}\n'
check 'bad.jsonl:1: turn 1 is from ' '{"conversations": [{"from": "nobody", "value": "a"}]}\n'
check "bad.jsonl:2: it is a conversation, and the file's first row is a text" '{"text": "a b"}\n{"messages": []}\n'
check 'bad.jsonl:2: it has no list "input_ids"' '{"input_ids": [1, 2]}\n{"text": "a"}\n'
check 'bad.jsonl:1: place 2 of its input_ids is 5000, and ids of the vocabulary end at ' '{"input_ids": [1, 5000]}\n'
check 'bad.jsonl:1: it holds several documents (position_ids)' '{"input_ids": [1, 2, 3, 4], "position_ids": [0, 1, 0, 1]}\n'
check 'ids.bin.gz: files of token ids are not read compressed' 'abcd' ids.bin.gz
check 'all files are empty' '' bad.txt
check 'bad.txt.gz is damaged: ' 'no archive' bad.txt.gz
check 'bad.bin has neither llm.c' 'abcd' bad.bin
check "bad.tar is an archive of files, which is not read as it is: unpack it" 'abcd' bad.tar
check "/bad.jsonl.bz2' | zstd -o '$scratch/bad.jsonl.zst'" 'BZh9' bad.jsonl.bz2
check "bad.pdf is a PDF, which is not read as it is: pdftotext" '%%PDF-1.4' bad.pdf
mkdir mixed && cp bad.pdf bad.tar mixed && echo a b >mixed/a.txt
refuse "; nor is bad.tar read: a directory with what is no text" $d mixed
mv mixed/bad.tar mixed/$(printf 'z%0220d' 0).tar
refuse "; nor is 1 more read: a directory with what is no text" $d mixed
rm mixed/*.tar mixed/*.pdf && printf '\377\376a\0' >mixed/wide.txt
refuse "wide-utf8.txt'" $d mixed
check "bad.parquet is damaged: its footer has " 'PAR1abcdPAR1' bad.parquet
mkdir shards && cp "$source"/tests/golden/parquet/types.parquet shards/0.parquet && cp shards/0.parquet shards/1.parquet
run shards data --model model --data shards --samples 1
says shards.out 'data: 18 documents'
check 'bad.jsonl:1: broken JSON: duplicate object key' '{"text": "a", "text": "b"}\n'
check 'bad.jsonl:1: not JSON: duplicate object key' '{"messages": [{"role": "user", "content": "a"}], "messages": []}\n'
check 'bad.jsonl:1: place 2 of its "mask" is neither 0 nor 1' '{"input_ids": [1, 2], "mask": [1, 2]}\n'
check 'bad.jsonl:1: its "labels" is no list of 2 numbers' '{"input_ids": [1, 2], "labels": [1]}\n'
check 'bad.jsonl:1: place 1 of its "input_ids" is no whole number' '{"input_ids": [true, 2]}\n'
check 'bad.jsonl:1: the "weight" of message 2 is neither 0 (it is only read) nor 1' '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0.5}]}\n'
check 'bad.jsonl:1: the "train" of message 2 is neither 0' '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "train": "no"}]}\n'
check 'bad.jsonl:1: history is not a list of pairs' '{"instruction": "a", "output": "b", "history": "c"}\n'
check 'are empty: there is no token' '{"text": ""}\n'
check "/wide-utf8.jsonl'" '\377\376a\0b\0' wide.jsonl
printf '{"input_ids": [1, 2, 3], "labels": [-100, -100, -100]}\n%.0s' 1 2 3 4 5 6 7 8 9 10 >untrained.jsonl
refuse "nothing can be trained: no document has a token to predict" data --model model --seq-len 8 --packing concat --data untrained.jsonl
refuse "nothing can be trained: of 10 documents 0 are too long" data --model model --seq-len 8 --data untrained.jsonl
refuse "--data: nothing of untrained.jsonl can be trained: of 10 documents 0 are too long" $d book.txt=1,untrained.jsonl=1
refuse "book.txt is given twice: give it once" $d book.txt=1,chats.jsonl=1,book.txt=2
refuse "the weight nan of book.txt is not above 0" $d book.txt=nan,chats.jsonl=1
refuse "book.txt has less than 1/65536 of all sequences" $d book.txt=1e-9,chats.jsonl=1
refuse "document 1 in $scratch/book.txt has " $d book.txt --too-long refuse
refuse "ids.jsonl holds token ids and $scratch/book.txt a text" data --model tiny --data ids.jsonl,book.txt --seq-len 64
refuse "one of ids.jsonl and book.txt holds token ids and the other texts" data --model tiny --data ids.jsonl=1,book.txt=1 --seq-len 64
sed 's/"vocab_size": 1000/"vocab_size": 300/' model/config.json >c && mkdir small && cp model/tokenizer.json small && mv c small/config.json
refuse "the model's embedding has 300 rows: it is another model's tokenizer" data --model small --data book.txt --seq-len 64
# A table's rows have nulls for missing values; some programs write a byte order mark, or other ends of lines.
printf '\357\273\277{"messages": null, "input_ids": null, "text": "a b"}\r\n\r\n{"text": "c d", "messages": null}' >odd.jsonl
run odd data --model model --data odd.jsonl --samples 2
says odd.out "data: 2 documents, "
grep -q '^a【 b】$' odd.out || { fail "the text behind a byte order mark"; cat odd.out; }
printf '{"id": 18446744073709551615, "text": "a b"}\n' >odd.jsonl
run odd data --model model --data odd.jsonl --samples 0
says odd.out "data: 1 document, "
printf '{"id": 18446744073709551615, "text": "a b", "messages": [{"role": "user", "content": "c"}]}\n' >odd.jsonl
refuse "odd.jsonl:1: not JSON: too big integer" data --model model --data odd.jsonl
printf '{"id": 18446744073709551615, "text": "a b", "input_ids": [1, 2]}\n' >odd.jsonl
refuse "odd.jsonl:1: broken JSON: too big integer" data --model model --data odd.jsonl
printf '{"messages": null, "prompt": "a", "completion": "b", "system": null, "tools": null}\n' >odd.jsonl
run odd data --model model --data odd.jsonl --samples 0
says odd.out "chats: 1 conversation in 1 sample"
printf '{"text": ""}\n{"text": "a b"}\n{"input_ids": []}\n' | sed 3d >odd.jsonl && : >none.txt
run odd data --model model --data odd.jsonl,none.txt,book.txt --samples 0
says odd.out "remark: 2 empty documents are left out: files without a byte, or rows without a token"
mkdir -p books/in && cp a.txt books && ln -s .. books/in/loop && echo hidden >books/.hidden
run common data --model tiny --data books/a.txt=1,books=1 --eval-data books/a.txt,b.txt --seq-len 64 --samples 0
says common.out "remark: $scratch/books/a.txt is in two sources of --data, and is read by the weights of both"
says common.out "==== --eval-data"
says common.out "data: 2 documents, "
says common.out "remark: $scratch/books/a.txt is in --data and in --eval-data: what is evaluated is trained, too"
rm -r books
printf 'a\377b and more\n' >broken.txt
run broken data --model model --data broken.txt --samples 0
grep -q "^remark: 1 broken characters in the text (it is no valid UTF-8) are read as U+FFFD, many of them in $scratch/broken.txt: " broken.out || { fail "invalid UTF-8 is not said"; cat broken.out; }
printf '\357\273\277a b and more\n' >mark.txt
run mark data --model model --data mark.txt --samples 1
grep -q '^a【 b and more$' mark.out || { fail "a byte order mark is read as text"; cat mark.out; }

# Rows in a .json file are refused if --data names it, and read as a text if a directory has it among others.
mkdir code && printf '[{"text": "Yes"}]\n' >code/i18n.json && cp a.txt code
run code data --model model --data code --samples 0
says code.out "remark: $scratch/code/i18n.json holds rows and is read as a text, as the other files of its directory"
says code.out "data: 2 documents, "
cp code/i18n.json code/j.json
run code data --model model --data code --samples 0
says code.out "remark: 2 files, as $scratch/code/i18n.json, hold rows and are read as texts"
refuse "i18n.json is a JSON list" data --model model --data code/i18n.json,code
refuse "i18n.json is a JSON list" data --model model --data 'code/*.json'

# Programs and pictures in a directory are not read as texts; files that --data names are read as their owner says.
printf '\177ELF\002\001\001\000\000' >code/prog && printf 'x\000' >code/zero.txt
refuse "code/prog is no text: it has zero bytes; nor is zero.txt read" data --model model --data code
run named data --model model --data 'code/*.txt' --samples 0
says named.out "data: 2 documents, "
printf 'abc' >code/tool.bin
refuse "code/tool.bin has neither llm.c's header" data --model model --data code
exit $failures
