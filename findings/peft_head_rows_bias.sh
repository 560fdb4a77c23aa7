#!/bin/sh
# PEFT 0.21.2 (transformers 5.24.0, torch 2.13.0): trainable_token_indices on a model's head drops the head's bias. Phi's untied lm_head has one; as soon as
# rows of it are wrapped, and before anything is trained, logits are those without it, and nothing is said. What is seen: with a bias of 0, 1, 2, ... all
# logits are lower by 0, 1, 2, .... Fails where that changes.
# What follows for ltrain: it adds the bias, so that losses of such a run differ from PEFT's and an adapter read by PEFT computes other logits.
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
config = AutoConfig.for_model("phi", vocab_size=16, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, tie_word_embeddings=False)
model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
with torch.no_grad():
    model.lm_head.bias.copy_(torch.arange(16.0))
    ids = torch.tensor([[1, 2, 3]])
    before = model(ids).logits
    wrapped = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"], trainable_token_indices={"lm_head": [3]}))
    lost = (before - wrapped(ids).logits)[0, 0]
print("the logits of untrained rows are lower by", [round(x, 4) for x in lost.tolist()])
assert torch.allclose(lost, torch.arange(16.0), atol=1e-5), "the bias is there"
P
