#!/bin/sh
# transformers 5.24.0 (torch 2.13.0): of two documents in one row whose position_ids begin again, attention keeps the second apart, and the linear layers of the
# same model do not. In Qwen3.5 the state and the convolution's past of the first document run on into the second; nothing is said. What is seen: the largest
# difference between the second document's logits beside the first and alone, for a model of attention layers (rounding) and one with a linear layer (0.01 and
# more). Fails where that changes. What follows for ltrain: documents of hybrids begin with a state of zeros, and golden data are made of one document at a time.
set -eu
w=$(mktemp -d)
trap 'rm -rf "$w"' EXIT
python3 -m venv "$w/venv"
"$w/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.24.0
cd "$w"
TRANSFORMERS_VERBOSITY=error "$w/venv/bin/python" -W ignore - <<'E'
import torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

def apart(layers):
    torch.manual_seed(0)
    config = Qwen3_5TextConfig(vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=16,
                               linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=2, initializer_range=0.3,
                               pad_token_id=None, layer_types=layers, use_cache=False)
    model = Qwen3_5ForCausalLM(config).eval()
    first, second = torch.randint(0, 64, (1, 20)), torch.randint(0, 64, (1, 12))
    places = torch.cat([torch.arange(20), torch.arange(12)])[None]
    with torch.no_grad():
        packed = model(input_ids=torch.cat([first, second], 1), position_ids=places).logits[:, 20:]
        alone = model(input_ids=second).logits
    difference = (packed - alone).abs().max().item()
    print(", ".join(layers) + ": %.1e" % difference)
    return difference

assert apart(["full_attention", "full_attention"]) < 1e-4
assert apart(["linear_attention", "full_attention"]) > 1e-2
E
