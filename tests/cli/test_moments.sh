#!/bin/sh
# --optim-dtype int8: placement changes no bit, ranks change rounding only; beside fp32 moments; stopped and resumed; other types.
. "${LTRAIN_SOURCE_ROOT:?}/tests/cli/helpers.sh"
forgive_leaks
train() { # OUT ARGUMENT...
    out=$1
    shift
    "$ltrain" --model tiny --data text --seq-len 256 --lr 2e-3 --seed 3 --effort quick --threads 1 --out "$out" "$@" >"$out.log" 2>err ||
        { fail "$*"; cat err; }
}
loss() { sed -n "s/^step $2\/.*  loss \([0-9.]*\) .*/\1/p" "$1.log"; }
near() { # WHAT MARGIN A B
    awk -v a="$3" -v b="$4" -v m="$2" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d <= m && d >= -m) }' || fail "$1: $3 and $4"
}

awk 'BEGIN { srand(5); for (i = 0; i < 900; i++) printf "%c%c%c ", 97 + int(rand() * 26), 97 + i % 26, 97 + int(rand() * 3) }' >text

train one --steps 24 --optim-dtype int8
train far --steps 24 --optim-dtype int8 --device cpu:discrete --offload nvme
cmp -s one/hf/model.safetensors far/hf/model.safetensors || fail "placement changed the model"
train fp32 --steps 24
near "beside fp32 moments" 0.02 "$(loss one 24)" "$(loss fp32 24)"
cmp -s one/hf/model.safetensors fp32/hf/model.safetensors && fail "moments in int8 are those in fp32"
for mesh in dp=2 ring=2 ulysses=2,ring=2; do
    case $mesh in *,*) ranks=4 ;; *) ranks=2 ;; esac
    for stage in 0 1 3; do
        [ $stage = 3 ] || [ $mesh = ring=2 ] || continue
        train "m$mesh$stage" --steps 6 --optim-dtype int8 --ranks $ranks --mesh $mesh --zero $stage --batch 2
    done
done
train m1 --steps 6 --optim-dtype int8 --batch 2
for run in mdp=23 mring=20 mring=21 mring=23 mulysses=2,ring=23; do
    near "$run" 2e-4 "$(loss $run 6)" "$(loss m1 6)"
done

# A saved run resumes to the same bits; then with other types, which is reported.
train half --steps 12 --save-every 12 --optim-dtype int8
"$ltrain" --resume half --steps 24 >half.log 2>err || { fail "resuming"; cat err; }
cmp -s half/hf/model.safetensors one/hf/model.safetensors || fail "a run that was resumed differs"
cp -r half other
"$ltrain" --resume other --steps 26 --optim-dtype bf16 >other.log 2>err || { fail "int8 to bf16"; cat err; }
says other.log "optim-dtype bf16 (was int8)"
"$ltrain" --resume other --steps 28 --optim-dtype int8 --save-every 1 >other.log 2>err || { fail "bf16 to int8"; cat err; }
says other.log "optim-dtype int8 (was bf16)"

status=0
"$ltrain" --model tiny --data text --seq-len 256 --optim-dtype int8 --tiles group=1000 >out 2>err || status=$?
[ $status = 2 ] || fail "blocks that groups cut end with $status"
says err "take a multiple of 256"
[ $failures = 0 ]
