#!/bin/sh
# PEFT 0.21.2 (transformers 5.24.0, torch 2.13.0): what target_modules="all-linear" adapts of a mixture of experts depends on the family, and nothing says
# so. Of qwen3_moe, mixtral, olmoe and glm4_moe, whose experts and routers are bare parameters, it adapts the stacked experts and the router ("mlp.gate", as
# target_parameters "gate.weight"): a router that training was meant to leave alone moves. Of gpt_oss and granitemoe it adapts attention and nothing else.
# Fails where that changes.
# What follows for ltrain: --lora all-linear takes experts of all families and no router; a target that names routers adds them, and PEFT's adapters of
# routers are read.
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
          "head_dim": 16}
models = {
    "qwen3_moe": {"moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "glm4_moe": {"moe_intermediate_size": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "layer_types": ["full_attention"] * 2},
    "granitemoe": {"num_local_experts": 4, "num_experts_per_tok": 2},
}
seen = {}
for name, own in models.items():
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **common, **own), dtype=torch.float32)
    adapted = [n for n, _ in get_peft_model(model, LoraConfig(r=2, target_modules="all-linear")).named_parameters() if "lora_A" in n and "layers.1." in n]
    seen[name] = any("experts" in n for n in adapted), any(".mlp.gate." in n for n in adapted), any("q_proj" in n for n in adapted)
    print("%-11s experts %-5s router %-5s attention %s" % (name, *seen[name]))
wrong = [n for n, s in seen.items() if s != ((n not in ("gpt_oss", "granitemoe"),) * 2 + (True,))]
if wrong:
    print("otherwise now:", *wrong)
    sys.exit(1)
P
