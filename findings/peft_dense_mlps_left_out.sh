#!/bin/sh
# PEFT 0.21.2 (transformers 5.24.0, torch 2.13.0): in models whose experts are converted, the usual targets gate_proj, up_proj and down_proj mean the stacks of
# experts alone. MLPs that are plain torch.nn.Linear, of dense layers (qwen3_moe, glm4_moe) and of shared experts (glm4_moe), get no adapter, by their names
# or by "all-linear"; nothing says so, and the saved target_modules no longer has the names. A dense layer's map that is named in full is refused as if it
# were a stack's. Fails where that changes.
# What follows for ltrain: all-linear and these names take dense layers and shared experts, too; their adapters are written as parameters ("up_proj.weight"),
# which PEFT reads.
set -eu
w=$(mktemp -d)
trap 'rm -rf "$w"' EXIT
python3 -m venv "$w/venv"
"$w/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.24.0 peft==0.21.2
cd "$w"
TRANSFORMERS_VERBOSITY=error "$w/venv/bin/python" -W ignore - 2>/dev/null <<'P'
import sys

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

common = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
          "head_dim": 16, "moe_intermediate_size": 16, "num_experts_per_tok": 2}
models = {
    "qwen3_moe": {"num_experts": 4, "mlp_only_layers": [0]},
    "glm4_moe": {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, "n_shared_experts": 1},
}
USUAL = ["gate_proj", "up_proj", "down_proj"]
wrong = 0


def adapt(name, targets):
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **common, **models[name]), dtype=torch.float32)
    plain = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and ".mlp." in n]
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=targets))
    names = {n.replace("base_model.model.", "").split(".lora_")[0] for n, _ in adapted.named_parameters() if "lora_A" in n}
    return plain, names, adapted.peft_config["default"]


for name in models:
    for targets in (USUAL, "all-linear"):
        plain, names, config = adapt(name, targets)
        reached = [n for n in plain if n in names]
        experts = any(".mlp.experts" in n for n in names)
        kept = sorted(set(USUAL) & set(config.target_modules or ()))
        print("%-9s %-34s experts %s, plain maps of MLPs %d of %d, names kept in target_modules %s" % (name, targets, experts, len(reached), len(plain), kept))
        wrong += not experts or bool(reached) or len(plain) != (3 if name == "qwen3_moe" else 6) or bool(kept)
    try:
        adapt(name, ["model.layers.0.mlp.gate_proj"])
        print("%-9s a dense layer's gate_proj in full: adapted" % name)
        wrong += 1
    except ValueError as e:
        print("%-9s a dense layer's gate_proj in full: %s" % (name, e))
sys.exit(wrong > 0)
P
