#!/bin/sh
# PEFT 0.21.2 (transformers 5.24.0, torch 2.13.0): layers_to_transform and exclude_modules restrict target_modules alone. What target_parameters names,
# as the stacked experts of a mixture must be, gets an adapter in every layer, and nothing is said: LoraConfig(target_modules=["q_proj"],
# target_parameters=["mlp.experts.gate_up_proj"], layers_to_transform=[1]) of a Qwen3-MoE with two layers adapts the experts of both, and q_proj of
# layer 1 only. adapter_config.json then says layers_to_transform=[1] beside tensors of layer 0. Fails where that changes.
# What follows for ltrain: an adapter's layers_to_transform and exclude_modules do not apply to its target_parameters.
set -eu
w=$(mktemp -d)
trap 'rm -rf "$w"' EXIT
python3 -m venv "$w/venv"
"$w/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.24.0 peft==0.21.2
cd "$w"
TRANSFORMERS_VERBOSITY=error "$w/venv/bin/python" -W ignore - <<'P'
import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

torch.manual_seed(0)


def adapted(**restriction):
    model = Qwen3MoeForCausalLM(
        Qwen3MoeConfig(vocab_size=64, hidden_size=32, intermediate_size=32, moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2,
                       num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=16))
    peft = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"], target_parameters=["mlp.experts.gate_up_proj"], **restriction))
    names = [n for n, _ in peft.named_parameters() if "lora_A" in n]
    layers = lambda part: sorted({int(n.split("layers.")[1].split(".")[0]) for n in names if part in n})
    return layers("q_proj"), layers("experts")


seen = {
    "nothing": adapted(),
    "layers_to_transform=[1]": adapted(layers_to_transform=[1]),
    "exclude_modules of layer 0": adapted(exclude_modules=r".*\.layers\.0\..*"),
}
for restriction, (maps, experts) in seen.items():
    print("%-28s q_proj adapted in layers %s, experts in layers %s" % (restriction, maps, experts))
assert seen["nothing"] == ([0, 1], [0, 1])
assert all(maps == [1] and experts == [0, 1] for name, (maps, experts) in seen.items() if name != "nothing"), "parameters are restricted, too"
P
