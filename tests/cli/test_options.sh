#!/bin/sh
# Options of data: refused if they do nothing on the command line, remarked if in a file. Also: documents cut to each length of a
# curriculum; epochs of each source in the coming steps; another type of ids at a resume.
. "${LTRAIN_SOURCE_ROOT:?}/tests/cli/helpers.sh"
forgive_leaks

make_model model
make_book 40
sed 's/.*/{"body": "&"}/' book.txt >rows.jsonl
sed 's/.*/{"prompt": "Which word?", "completion": "&"}/' book.txt >chats.jsonl
echo '{"input_ids": [5, 6, 7, 8], "labels": [-100, -100, 7, 8]}' >ids.jsonl
for i in 1 2 3 4 5 6 7 8 9; do printf '\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0\5\0\0\0\6\0\0\0\7\0\0\0\10\0\0\0'; done >raw.bin

# ---- options and the kinds of files that they apply to ----
try() { # FILE KIND OPTION VALUE OF-KIND ARGUMENT...
    file=$1 kind=$2 option=$3 value=$4 of=$5
    shift 5
    [ $kind != raw ] || [ $option = token-type ] || set -- "$@" --token-type u16
    [ $kind != rows ] || [ $option = text-column ] || set -- "$@" --text-column body
    if [ $kind = $of ] || [ $of = all ]; then
        run tried data --model model --samples 0 --data $file "--$option" $value "$@"
    else
        refuse "ltrain: --$option is of " data --model model --samples 0 --data $file "--$option" $value "$@"
        says err "of which the data have none: leave it out"
    fi
}
for source in book.txt:text rows.jsonl:rows chats.jsonl:chats ids.jsonl:ids raw.bin:raw; do
    file=${source%:*} kind=${source#*:}
    try $file $kind text-column body rows
    [ $kind = raw ] || try $file $kind token-type u16 raw
    try $file $kind chat-template chatml chats
    try $file $kind train-on last chats
    try $file $kind chat-turns whole chats
    try $file $kind token-cache kept all
done
run mixed data --model model --data book.txt=1,chats.jsonl=1 --samples 0 --train-on last
run mixed data --model model --data book.txt --eval-data chats.jsonl --samples 0 --train-on last --seq-len 64
refuse "(they are read as bytes; --tokenizer DIR names a tokenizer): leave it out" data --model tiny --data rows.jsonl --text-column body
refuse "--token-cache is of tokens that are kept for the next run" data --model tiny --data book.txt --token-cache kept
printf 'model: model\ndata: book.txt\ntrain-on: last\ntext-column: body\n' >ltrain.yaml
run file data --samples 0
says file.out "remark: train-on is of conversations in .jsonl files, of which the data have none: it does nothing"
says file.out "remark: text-column is of rows of text in .jsonl files"
refuse "--train-on is of conversations" data --train-on last
rm ltrain.yaml
for option in "packing concat" "too-long drop" "eval-fraction 0.1"; do
    refuse "--${option% *} is of documents in sequences" data --model tiny --data book.txt --${option% *} ${option#* }
    refuse "--${option% *} is for training" eval --model tiny --eval-data book.txt --lengths 64 --${option% *} ${option#* }
done
refuse "--data is for training" eval --model tiny --eval-data book.txt --lengths 64 --data book.txt
refuse "--train-on is of data, and ltrain sample reads none" sample --model tiny --train-on all --prompt a
refuse "--data-changed is for a run that is resumed" --model tiny --data book.txt --seq-len 64 --data-changed continue
refuse "--train-on is of conversations" eval --model tiny --eval-data book.txt --lengths 64 --train-on last

# ---- unknown keys of config.json, and positions beyond the model's ----
mkdir odd
sed 's/"model_type"/"attention_flavour": 3, "max_position_embeddings": 2048, "model_type"/' model/config.json >odd/config.json
plan="plan --model odd --seq-len 8k --machine l4 --effort quick"
run odd $plan
[ "$(grep -c attention_flavour odd.out)" = 1 ] || fail "an unknown key is not said once"
says odd.out "warning: config.json has attention_flavour, which ltrain does not know: it computes as if that were not there (--strict-config refuses it)"
refuse "odd/config.json: ltrain does not know attention_flavour; without --strict-config" $plan --strict-config
says odd.out "rope: base 10000, no scaling, 2,048 positions"
says odd.out "is beyond the 2,048 positions (max_position_embeddings of config.json) that the model was made for: --rope yarn:4 stretches them"
for kind in yarn llama3 dynamic; do
    run $kind $plan --rope $kind:4
    says $kind.out "$kind with factor 4 from 2,048 positions"
done
mkdir phi3
cp "$LTRAIN_SOURCE_ROOT/tests/golden/phi3-short/config.json" phi3
run longrope plan --model phi3 --seq-len 64 --machine l4 --effort quick
run phi3 plan --model phi3 --seq-len 64 --machine l4 --effort quick --rope yarn:4
says phi3.out "warning: of models of type phi3 transformers loads none with this scaling"
mkdir ministral3
cp "$LTRAIN_SOURCE_ROOT/tests/golden/mistral3-wrapped/config.json" ministral3
run own plan --model ministral3 --seq-len 64 --machine l4 --effort quick
run other plan --model ministral3 --seq-len 64 --machine l4 --effort quick --rope linear:2
says other.out "warning: of models of type ministral3 transformers computes none without llama_4_scaling_beta"
grep -q "llama_4_scaling_beta" own.out && fail "a model's own scaling is warned about"
grep -q "transformers loads none" longrope.out yarn.out && fail "scalings that transformers knows are warned about"
grep -q "is beyond" yarn.out llama3.out && fail "positions that are stretched far enough are warned about"
run short $plan --rope yarn:2
says short.out "is beyond the 4,096 positions (max_position_embeddings of config.json) that the model was made for: --rope yarn:4 stretches them"
mkdir narrow whole
cp "$LTRAIN_SOURCE_ROOT/tests/golden/moe/qwen3-moe-latent/config.json" narrow
grep -v moe_latent_size narrow/config.json >whole/config.json
run narrow plan --model narrow --seq-len 64 --machine l4 --effort quick
run whole plan --model whole --seq-len 64 --machine l4 --effort quick
says narrow.out "warning: of models of type qwen3_moe transformers computes none with moe_latent_size (6): what is exported is for ltrain alone"
grep -q "moe_latent_size" whole.out && fail "experts of whole rows are warned about"
mkdir gptj
cp "$LTRAIN_SOURCE_ROOT/tests/golden/gptj/config.json" gptj
run within plan --model gptj --seq-len 96 --machine l4 --effort quick
run beyond plan --model gptj --seq-len 128 --machine l4 --effort quick
says beyond.out "is beyond the 96 positions (n_positions of config.json) that the model was made for, and transformers computes no others"
grep -q "is beyond" within.out && fail "positions that a model has are warned about"
grep -q -e "--rope" beyond.out && fail "a scaling is advised where none can be had"
refuse "--rope yarn: give KIND:FACTOR, as yarn:4, with one of linear, llama3, dynamic and yarn and a factor above 1 and at most 1000000, or none" $plan --rope yarn
refuse "--rope yarn:1e300: give KIND:FACTOR" $plan --rope yarn:1e300

# ---- lengths ----
mkdir documents
for i in 1 2 3 4 5 6; do head -c $((i * 50)) book.txt >documents/$i; done
tiny="--model tiny --effort quick --threads 1 --lr 1e-3"
run long $tiny --data documents --seq-len 128@1,512@1,256 --too-long drop --steps 3 --out long
says long.out "data: sequences of 512: "
says long.out "data: sequences of 256: "
grep -q '^data: sequences of 128: .* 900 dropped, .*; 0 documents split, 4 dropped, 0 truncated$' long.out || { fail "what the shortest length drops"; cat long.out; }
grep -q '^data: sequences of 256: .* 300 dropped, .*; 0 documents split, 1 dropped, 0 truncated$' long.out || { fail "what the middle one drops"; cat long.out; }
says long.out "data: 6 documents (0 split, 4 dropped, 0 truncated), "

# ---- --epochs: the steps that the sequences need, with any number of sequences a step; the settings keep the steps ----
head -c 1280 book.txt >ten.txt # ten sequences of 128
run passes $tiny --data ten.txt --seq-len 128 --batch 4 --epochs 2 --save-every 1 --out passes
says passes.out "steps: 5: 2 epochs of 10 sequences, 4 a step"
says passes.out "data: 2 epochs in 5 steps"
says passes.out "step 5/5 "
grep -qx "steps: 5" passes/config.yaml && grep -qx "epochs: 0" passes/config.yaml || fail "a run with --epochs keeps other steps"
run part $tiny --data ten.txt --seq-len 128 --epochs 0.25 --out part
says part.out "steps: 3: 0.25 epochs of 10 sequences, 1 a step"
run further --resume passes --epochs 3
says further.out "steps: 8: 3 epochs of 10 sequences, 4 a step"
says further.out "step 8/8 "
printf 'epochs: 2\n' >two.yaml
run given --config two.yaml $tiny --data ten.txt --seq-len 128 --steps 1 --out given
says given.out "step 1/1 "
echo 'steps: 4' >four.yaml
for file in two four; do # a file's steps and epochs are a training run's, and a check takes three steps
    run checked check --config $file.yaml $tiny --data ten.txt --seq-len 64
    says checked.out "batch 1, 3 steps"
done
refuse "--epochs is for training, and ltrain check takes a few steps" check $tiny --data ten.txt --seq-len 128 --epochs 1
refuse "--trace: step 6 is after the last one, 5" $tiny --data ten.txt --seq-len 128 --batch 4 --epochs 2 --trace 6 --out traced

# ---- epochs of the coming steps, for each length and with its batch ----
head -c 1280 book.txt >a.txt
tail -c 768 book.txt >b.txt
sequences() { # LENGTH SOURCE
    "$ltrain" data --model tiny --data a.txt=5,b.txt=3 --samples 0 --seq-len $1 | sed -n "/==== $2/,\$s/^sequences of [0-9]*: \([0-9]*\) for training.*/\1/p" | head -n 1
}
epochs() { sed -n "s/^data: .*$2: .* \([0-9.e-]*\) epochs in $3\$/\1/p" $1.out; }
near() { # WHAT A B
    awk -v a="$2" -v b="$3" 'BEGIN { d = a - b; exit !(a != "" && b > 0 && d < 0.005 * b && d > -0.005 * b) }' || fail "$1: $2 and $3"
}
run curriculum $tiny --data a.txt=5,b.txt=3 --seq-len 64@1,128@1,64 --batch 8 --steps 3 --save-every 1 --eval-data book.txt --out curriculum
says curriculum.out "remark: what --eval-data gives is never evaluated: --eval-every N or --eval-before says when"
for name in a b; do # 5 and 3 of each 8 sequences
    [ $name = a ] && share=5 || share=3
    near "epochs of $name" "$(epochs curriculum $name.txt "3 steps")" \
        "$(awk -v n="$(sequences 64 $name.txt)" -v m="$(sequences 128 $name.txt)" -v s=$share 'BEGIN { print 2 * s / n + s / m }')"
done
run batch --resume curriculum --steps 5 --batch 16 --eval-every 6
says batch.out "remark: --eval-every 6 is longer than the run of 5 steps: nothing is evaluated"
near "epochs of a batch of another size" "$(epochs batch a.txt "steps 4 to 5")" "$(awk -v n="$(sequences 64 a.txt)" 'BEGIN { print 20 / n }')"
grep -q '^data: steps 4 to 5 take .* in sequences of 64, ' batch.out || { fail "the steps to come"; cat batch.out; }
grep -q '^data: steps 1 to' batch.out && fail "what is over is counted again"

# ---- ids without a header ----
run ids $tiny --data raw.bin --token-type u16 --seq-len 8 --steps 1 --save-every 1 --out ids
refuse "--token-type: the checkpoint's run read ids of 2 bytes from files without a header, and this one takes ids of 4" --resume ids --steps 2 --token-type u32
run other --resume ids --steps 2 --token-type u32 --data-changed continue
says other.out "resume: ids in files without a header have 4 bytes and had 2: "

# ---- advice ----
# Tiles of a plan that packs several sequences need not divide one: what is proposed with fewer of them has tiles of its own.
run packed plan --model 25m --seq-len 5632 --machine 8xl40s --batch 64 --json
says packed.out '"fits": true'
# A resumed run has as many sequences together as before, and chooses their number anew for a longer length.
# Planning halves a batch of 4, so that it never takes 3.
run together $tiny --data book.txt --seq-len 32 --batch 4 --micro-batch 3 --steps 1 --save-every 1 --out together
run kept --resume together --steps 2
says kept.out "3 together; 2 micro-batches"
run longer --resume together --steps 3 --seq-len 64
says longer.out "resume: settings differ from the checkpoint's: "
says longer.out "(was 3)"
# Eight together promise a sixth in brief trials, and take 1% longer as a whole plan: a sequence is alone. A long look (13 s).
if [ -n "${LTRAIN_LONG:-}" ]; then
    run alone plan --model "$LTRAIN_SOURCE_ROOT/tests/model/configs/Qwen2.5-7B" --seq-len 4k --batch 64 --machine 4xa100-80
    says alone.out "batch: 64 sequences a step, 16 micro-batches"
fi
exit $failures
