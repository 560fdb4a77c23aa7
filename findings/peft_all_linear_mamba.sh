#!/bin/sh
# PEFT 0.21.2 (transformers 5.24.0, torch 2.13.0): target_modules="all-linear" is refused for some models with Mamba-2 layers and taken for others. For
# nemotron_h and falcon_h1 it raises "Module 'out_proj' is incompatible with Mamba-based models ... remove it from `target_modules`", although the shorthand
# chose that name itself; lists without it are the only way. For bamba, whose mixers are the same, out_proj gets an adapter and nothing is said. Fails where
# that changes.
# What follows for ltrain: --lora all-linear leaves out_proj out for nemotron_h, and adapts it where PEFT does, so that adapters load there.
set -eu
w=$(mktemp -d)
trap 'rm -rf "$w"' EXIT
python3 -m venv "$w/venv"
"$w/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.24.0 peft==0.21.2
cd "$w"
TRANSFORMERS_VERBOSITY=error "$w/venv/bin/python" -W ignore - <<'P'
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

torch.manual_seed(0)
common = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
mixers = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_chunk_size": 8}
models = {
    "nemotron_h": {"hybrid_override_pattern": "M*", "num_hidden_layers": 2, "mamba_num_heads": 4, "mamba_head_dim": 8, "ssm_state_size": 8, "n_groups": 1},
    "falcon_h1": dict(mixers, num_hidden_layers=1, mamba_n_heads=4, mamba_d_ssm=32),
    "bamba": dict(mixers, num_hidden_layers=2, attn_layer_indices=[1]),
}
seen = {}
for name, own in models.items():
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **common, **own), dtype=torch.float32)
    try:
        adapted = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear"))
        seen[name] = "adapts out_proj" if any("out_proj.lora_A" in n for n, _ in adapted.named_parameters()) else "leaves out_proj out"
    except ValueError as e:
        seen[name] = "raises: %.80s" % str(e).partition("] ")[2]
    print("%-11s %s" % (name, seen[name]))
assert all(seen[n].startswith("raises: Module 'out_proj' is incompatible with Mamba-based models") for n in ("nemotron_h", "falcon_h1")), "it is taken"
assert seen["bamba"] == "adapts out_proj", "bamba is treated otherwise"
P
