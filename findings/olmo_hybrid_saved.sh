#!/bin/sh
# transformers 5.24.0 (torch 2.13.0): save_pretrained of OLMo Hybrid cuts a linear-attention layer's convolution into three parts as equal as can be, whatever
# channels queries, keys and values have, and renames the post_attention_layernorm of attention layers, whose published name is another layer's.
# from_pretrained reads such a file back without loss, so nothing is noticed there. What is seen: of 8, 8 and 16 channels tensors of 11, 11 and 10
# rows, named q_conv1d, k_conv1d and v_conv1d. Fails where that changes.
# What follows for ltrain: it reads both forms, and writes the published one, a tensor for the channels of each map (src/engine/thirds.c).
set -eu
w=$(mktemp -d)
trap 'rm -rf "$w"' EXIT
python3 -m venv "$w/venv"
"$w/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.24.0
cd "$w"
TRANSFORMERS_VERBOSITY=error HF_HUB_DISABLE_PROGRESS_BARS=1 "$w/venv/bin/python" - <<'P'
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM

config = AutoConfig.for_model("olmo_hybrid", vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
                              linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=4, linear_value_head_dim=8,
                              layer_types=["linear_attention", "full_attention"], pad_token_id=None, bos_token_id=None, eos_token_id=None,
                              rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
model.save_pretrained("saved")
with safe_open("saved/model.safetensors", "pt") as f:
    rows = {name: f.get_slice(name).get_shape()[0] for name in f.keys()}
layer = "model.layers.0.linear_attn."
maps = [rows[layer + part + "_proj.weight"] for part in "qkv"]
convs = [rows[layer + part + "_conv1d.weight"] for part in "qkv"]
norms = sorted(name.rsplit(".", 2)[1] for name in rows if name.startswith("model.layers.1.") and "layer" in name.rsplit(".", 2)[1])
print("maps", maps, "convolutions", convs, "norms of the attention layer", norms)
assert maps == [8, 8, 16] and convs == [11, 11, 10], "it is cut otherwise"
assert norms == ["feedforward_layer_norm", "post_feedforward_layernorm"], "norms are named otherwise"
again = AutoModelForCausalLM.from_pretrained("saved", dtype=torch.float32).state_dict()
assert all(torch.equal(x, again[name]) for name, x in model.state_dict().items())
print("read back without loss")
P
