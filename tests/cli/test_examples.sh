#!/bin/sh
# The examples, on a tiny model with a tokenizer and a chat template: shown, planned and trained as they are, or with fewer tokens if that
# would take long.
. "${LTRAIN_SOURCE_ROOT:?}/tests/cli/helpers.sh"
cp -r "$source/examples" "$scratch/examples"
cd "$scratch/examples"

command -v python3 >/dev/null || exit 77
mkdir ../model
python3 - <<'EOF' # random weights for the ids of that tokenizer
import json, random, struct
DIM, FFN, LAYERS, VOCAB = 32, 64, 2, 512
shapes = {"model.embed_tokens.weight": (VOCAB, DIM), "model.norm.weight": (DIM,)}
for i in range(LAYERS):
    at = f"model.layers.{i}."
    for name in "qkvo":
        shapes[f"{at}self_attn.{name}_proj.weight"] = (DIM, DIM)
    shapes[at + "mlp.gate_proj.weight"] = shapes[at + "mlp.up_proj.weight"] = (FFN, DIM)
    shapes[at + "mlp.down_proj.weight"] = (DIM, FFN)
    shapes[at + "input_layernorm.weight"] = shapes[at + "post_attention_layernorm.weight"] = (DIM,)
random.seed(1)
header, data = {}, b""
for name, shape in shapes.items():
    n = shape[0] * (shape[1] if len(shape) > 1 else 1)
    values = [random.gauss(0, 0.02) if len(shape) > 1 else 1.0 for _ in range(n)]
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * n]}
    data += struct.pack(f"<{n}f", *values)
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open("../model/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB, "hidden_size": DIM, "intermediate_size": FFN,
           "num_hidden_layers": LAYERS, "num_attention_heads": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
           "max_position_embeddings": 2048, "tie_word_embeddings": True, "hidden_act": "silu"}, open("../model/config.json", "w"))
EOF
cp "$source/tests/text/families/starcoder.json" ../model/tokenizer.json
cat >../model/tokenizer_config.json <<'EOF'
{"chat_template": "{% for m in messages %}\n{{ m.role }}:{% if m.reasoning_content and loop.last %} ({{ m.reasoning_content }}){% endif %} {% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}\n<|endoftext|>{% endfor %}{% if add_generation_prompt %}\nassistant: {% endif %}",
 "eos_token": "<|endoftext|>"}
EOF
small="--model ../model --device cpu --threads 1"

for settings in *.yaml; do # every example
    run it data --config "$settings" $small --samples 1
    says it.out "data: "
    says it.out "tokens of ../model/tokenizer.json"
    run it plan --config "$settings" $small --effort quick
    says it.out " fits"
done
run it data --config chat.yaml $small --samples 0
says it.out "chats: 8 conversations in 9 samples (1 cut turn by turn"

run it --config book.yaml $small --effort quick --seq-len 128 --steps 5 --save-every 3
says it.out "eval loss"
[ -f runs/book/hf/model.safetensors ] || fail "no model"
cmp -s ../model/tokenizer.json runs/book/hf/tokenizer.json || fail "the tokenizer is not beside the result"
run it --config chat.yaml $small --effort quick --seq-len 128 --steps 2
says it.out "chats: 8 conversations in 9 samples (1 cut turn by turn" # a run prints it, too
run it eval $small --effort quick --eval-data chats.jsonl --lengths 128 --tasks ppl
says it.out "chats: 8 conversations in 9 samples" # and so does an evaluation
run it --config lora.yaml $small --effort quick --seq-len 128 --steps 2
[ -f runs/lora/hf/adapter_model.safetensors ] || fail "no adapter"
run it --config style.yaml $small --effort quick --seq-len 512 --steps 1 --warmup 0
says it.out "step 0  eval loss"
says it.out "80 conversations in 80 samples"
run it --config curriculum.yaml $small --effort quick --seq-len 64@1,128@1,256 --steps 3
says it.out "step 3: sequences of 256 tokens from here on"
[ "$(grep -c '"loss":[0-9]' runs/curriculum/metrics.jsonl)" = 3 ] || fail "not three losses"
run it --config documents.yaml $small --effort quick --steps 2
says it.out "48 documents"

# The commands of docs/finetune.md run block by block, unchanged except for lengths and steps.
mkdir ../guide
cd ../guide
cp -r ../examples examples
rm -r examples/runs
cp examples/chats.jsonl .
mkdir books && cp examples/book.txt books
for at in . examples; do
    ln -s "$scratch/model" $at/Qwen3-8B
    ln -s "$scratch/model" $at/SmolLM2-135M-Instruct
done
awk '/^    / { if (!inside) n++; inside = 1; sub(/^ +/, ""); printf "%s%s", $0, /\\$/ ? "" : "\n" >"block-" n; next } { inside = 0 }' "$source/docs/finetune.md"
ltrain() { # ARGUMENT...
    case $1 in
    plan) set -- "$@" --effort quick ;;
    data) set -- "$@" --samples 1 ;;
    eval) set -- "$@" --effort quick --device cpu --threads 1 --samples 1 --depths 50% ;;
    sample) set -- "$@" --device cpu --threads 1 --max-new-tokens 4 ;;
    --*) set -- "$@" --effort quick --device cpu --threads 1 --steps 2 --warmup 0 ;;
    esac
    echo "A prompt." | "$ltrain" "$@" >>"$scratch/guide/out" 2>&1 || { echo "ltrain $*" && tail -n 3 "$scratch/guide/out"; return 1; }
}
ran=0
for n in $(seq 40); do
    [ -f block-$n ] && grep -q '^ltrain' block-$n && ! grep -q '^[A-Z]' block-$n || continue
    sed 's/\\ */ /g; s/64k/256/; s/8k\.\.128k/1k..2k/; s/128k/512/; s/-every [0-9]*/-every 1/g' block-$n >commands
    (set -e && . ./commands) || fail "docs/finetune.md: $(head -n 1 block-$n)"
    ran=$((ran + $(grep -c '^ltrain' commands)))
done
[ $ran -ge 12 ] || fail "docs/finetune.md has $ran commands that were run"
for file in runs/mine/hf/adapter_model.safetensors merged/model.safetensors runs/long/hf/adapter_config.json examples/runs/style/hf/README.md; do
    [ -f $file ] || fail "docs/finetune.md: no $file"
done
says out "text: what runs/mine has held out of its training: the last 10% of "
exit $failures
