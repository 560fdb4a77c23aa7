#!/bin/sh
# Tests a kind of block that is added as table rows and files only, with all that a user does: training with any placement of data, adapters,
# merging, evaluation, sampling, reports and refusals. `test_toy.sh PROGRAM`: PROGRAM is ltrain with the toy block's rows.
LTRAIN=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
. "${LTRAIN_SOURCE_ROOT:?}/tests/cli/helpers.sh"
make_book 300
common="--data book.txt --tokenizer bytes --seq-len 192 --tiles rows=48,heads=1,loss=48,group=4096 --steps 4 --lr 1e-2 --effort quick --threads 1"
same() { cmp -s "$1" "$2" || fail "$1 and $2 differ"; }
train() { # NAME OPTION...
    name=$1
    shift
    "$ltrain" train $common --out "$name" "$@" >"$name.out" 2>&1 || { fail "train $*"; cat "$name.out"; }
    grep -o '"loss":[^,]*' "$name/metrics.jsonl" >"$name.losses"
    [ "$(wc -l <"$name.losses")" -ge 4 ] || fail "$name has too few losses"
}

# Results have the same bits wherever data are placed and however much is recomputed, and `ltrain check` passes.
train near --model toy --offload none --alpha 1
train host --model toy --offload params=cpu,grads=cpu,optim=cpu,acts=cpu --alpha window=0.5,full=0.25 --update host
train far --model toy --offload params=nvme,grads=nvme,optim=nvme,acts=nvme --alpha 0 --keep-inputs 3 --device cpu:discrete --update host
for run in host far; do
    same near.losses $run.losses
    same near/hf/model.safetensors $run/hf/model.safetensors
done
run check check $common --model toy --steps 2 --offload acts=nvme --alpha 0
says check.out 'check: pass'

# Adapters can be added to the block's maps; merged into the base, they give the same model, which differs from the base.
train adapter --model near/hf --lora r=4,targets=all-linear --offload none
train adapter_far --model near/hf --lora r=4,targets=all-linear --offload params=nvme,optim=nvme,acts=nvme --alpha 0 --device cpu:discrete
same adapter/hf/adapter_model.safetensors adapter_far/hf/adapter_model.safetensors
says adapter.out '39 linear maps (all-linear)'
train only --model near/hf --lora r=4,targets=in_proj,out_proj --offload none
says only.out '8 linear maps (in_proj,out_proj)'
run merge export --model adapter --to merged
says merge.out 'W + s B A of 39 matrices'
evaluate() { # NAME MODEL
    "$ltrain" eval --model "$2" --eval-data book.txt --tokenizer bytes --seq-len 192 --threads 1 >"$1.out" 2>&1 || fail "eval $2"
    awk 'NF == 7 && $1 == 192 { print $5 }' "$1.out" >"$1.loss"
    [ -s "$1.loss" ] || { fail "eval $2 prints no loss"; cat "$1.out"; }
}
evaluate beside adapter/hf
evaluate merged merged
evaluate base near/hf
same beside.loss merged.loss
cmp -s base.loss merged.loss && fail "the adapter changes nothing"

# Sampling continues a text in the same way wherever weights and state are placed.
"$ltrain" sample --model merged --tokenizer bytes --prompt 'The scan goes on' --temperature 0 --max-new-tokens 24 --threads 1 --offload none >one 2>err </dev/null || { fail sample; cat err; }
"$ltrain" sample --model merged --tokenizer bytes --prompt 'The scan goes on' --temperature 0 --max-new-tokens 24 --threads 1 --offload params=nvme,acts=nvme --nvme-path . >two 2>err </dev/null || { fail sample; cat err; }
[ -s one ] || fail "sample says nothing"
same one two

# Reports name the blocks; a sequence is not split over ranks.
run plan plan $common --model toy --explain
says plan.out '(Blocks of full: attention, MLP, toy scans.)'
says plan.out '(Blocks of no attention: toy scans, MLP.)'
refuse "blocks of toy scans need a sequence whole" plan $common --model toy --ranks 2 --mesh ulysses=2
refuse "needs the op toy_scan, for which GPUs have no kernel: --device cpu computes it" plan --model toy --seq-len 4k --machine h200
[ $failures = 0 ]
