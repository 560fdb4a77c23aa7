#!/bin/sh
# peft 0.21.2 (transformers 5.24.0, torch 2.13.0): layers_to_transform does not hold for targets named in full. A module whose whole name stands in target_modules
# is adapted whatever its layer is ("model.layers.0.mlp.down_proj" with layers_to_transform=[1]); only names matched by their ends are asked for their layer, and
# an end of a name without a number before it (lm_head) is adapted, too. Nothing is said. What is seen: the modules with LoRA for three lists. Fails where that
# changes. What follows for ltrain: it reads layers_to_transform as PEFT does, names in full first (src/model/adapters.c).
set -eu
w=$(mktemp -d)
trap 'rm -rf "$w"' EXIT
python3 -m venv "$w/venv"
"$w/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.24.0 peft==0.21.2
cd "$w"
TRANSFORMERS_VERBOSITY=error "$w/venv/bin/python" -W ignore - <<'E'
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

CONFIG = dict(vocab_size=16, hidden_size=16, intermediate_size=32, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=2)

def adapted(targets):
    model = get_peft_model(LlamaForCausalLM(LlamaConfig(**CONFIG)), LoraConfig(target_modules=targets, layers_to_transform=[1]))
    found = sorted({n.split(".lora_A.")[0].removeprefix("base_model.model.") for n, _ in model.named_parameters() if ".lora_A." in n})
    print(", ".join(targets) + ":", ", ".join(found))
    return found

by_end, in_full, without_layer = ["down_proj"], ["model.layers.0.mlp.down_proj"], ["down_proj", "lm_head"]
assert adapted(by_end) == ["model.layers.1.mlp.down_proj"]
assert adapted(in_full) == ["model.layers.0.mlp.down_proj"]
assert adapted(without_layer) == ["lm_head", "model.layers.1.mlp.down_proj"]
E
