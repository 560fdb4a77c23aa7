#!/bin/sh
# Runs on .parquet are those on the same rows as .jsonl, bit for bit: chats from a directory of shards, ids; resumed, on two ranks, and with
# the tokens that an earlier run has kept. A run that goes on notices another shard.
. "${LTRAIN_SOURCE_ROOT:?}/tests/cli/helpers.sh"
forgive_leaks
golden=$source/tests/golden/parquet

# Writes small weights for the model.
command -v python3 >/dev/null || exit 77
make_model model
python3 - model <<'END'
import array, json, random, struct, sys
h, m, v, draw = 64, 128, 1000, random.Random(1).uniform
shapes = {"model.embed_tokens.weight": [v, h], "model.norm.weight": [h], "lm_head.weight": [v, h]}
for i in range(2):
    layer = "model.layers.%d." % i
    shapes.update({layer + "self_attn.%s_proj.weight" % x: [h, h] for x in "qkvo"})
    shapes.update({layer + "mlp.%s_proj.weight" % x: [m, h] if x != "down" else [h, m] for x in ("gate", "up", "down")})
    shapes.update({layer + "input_layernorm.weight": [h], layer + "post_attention_layernorm.weight": [h]})
header, data = {}, array.array("f")
for name, shape in shapes.items():
    n, first = shape[0] * (shape[1] if len(shape) > 1 else 1), 4 * len(data)
    data.extend(draw(-0.1, 0.1) if len(shape) > 1 else 1.0 for _ in range(n))
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [first, 4 * len(data)]}
text = json.dumps(header).encode()
open(sys.argv[1] + "/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data.tobytes())
END
mkdir chats ids
cp "$golden/chats-snappy-2-delta.parquet" chats/0.parquet
cp "$golden/chats-none-1-plain.parquet" chats/1.parquet
cat "$golden/chats.jsonl" "$golden/chats.jsonl" >chats.jsonl
cp "$golden/ids-dictionary.parquet" ids/0.parquet
cp "$golden/ids.jsonl" .
"$ltrain" --version | grep -q 'with.*Open MPI' && ranks="--ranks 2" || ranks=''

# Prints what of a run's steps its data decide.
steps() { sed 's/"lr".*"tokens":\([0-9]*\),"target_tokens":\([0-9]*\).*/\1 \2/' "$1/metrics.jsonl"; }
# Fails unless two runs have the same steps and models.
same() { # RUN RUN
    steps "$1" >first
    steps "$2" >second
    cmp -s first second && [ "$(wc -l <first)" = 4 ] || { fail "$1 and $2 differ:"; cat first second; }
    cmp -s "$1/hf/model.safetensors" "$2/hf/model.safetensors" || fail "the models of $1 and $2 differ"
}
for kind in chats ids; do
    set -- --model model --seq-len 64 --batch 2 --steps 4 --save-every 2 --threads 1 --effort quick --token-cache kept
    run text "$@" --data $kind.jsonl --out $kind-text
    run table "$@" --data $kind --out $kind-table
    same $kind-text $kind-table
    grep '^chats:' text.out >said || true
    grep '^chats:' table.out | cmp -s - said || { fail "other chats are counted:"; cat said table.out; }

    # A run that is stopped after two steps and goes on, by the tokens that are kept.
    run half "$@" --data $kind --steps 2 --out $kind-half
    says half.out "kept from an earlier run"
    run half --resume $kind-half --steps 4
    says half.out "kept from an earlier run"
    same $kind-text $kind-half

    # Two ranks read the same rows of both.
    run text "$@" --data $kind.jsonl $ranks --out $kind-text-ranks
    run table "$@" --data $kind $ranks --out $kind-table-ranks
    same $kind-text-ranks $kind-table-ranks
done

# Changed shards are tokenized anew, and a run that goes on refuses them.
cp "$golden/chats-lz4-1-plain.parquet" chats/0.parquet
run other data --model model --data chats --seq-len 64 --samples 0 --token-cache kept
grep -q 'kept from an earlier run' other.out && fail "tokens of another file are taken"
run table --model model --data chats --seq-len 64 --steps 2 --save-every 2 --effort quick --out changed
cp "$golden/types.parquet" chats/0.parquet
refuse "chats/0.parquet" --resume changed --steps 4
exit $failures
