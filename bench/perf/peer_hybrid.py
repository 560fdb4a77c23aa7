#!/usr/bin/env python3
"""Writes Qwen3.5's shape in small: peer_hybrid.py --make DIR. 31.5 million parameters, 8 layers of 512, six of them with a gated delta rule of 8 heads of
128; DIR/full has full attention in all layers. peer_experts.py DIR TOKENS THREADS runs a step of either."""
import os, sys

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

import torch
from transformers import AutoModelForCausalLM, Qwen3_5TextConfig

SHAPE = dict(hidden_size=512, intermediate_size=1024, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=2, head_dim=64, vocab_size=2048,
             linear_num_key_heads=8, linear_num_value_heads=8, linear_key_head_dim=128, linear_value_head_dim=128, linear_conv_kernel_dim=4,
             tie_word_embeddings=True, max_position_embeddings=32768)


def main():
    where = sys.argv[2]
    torch.manual_seed(0)
    kinds = {where: ["linear_attention"] * 3 + ["full_attention"], os.path.join(where, "full"): ["full_attention"] * 4}
    for to, four in kinds.items():
        AutoModelForCausalLM.from_config(Qwen3_5TextConfig(layer_types=2 * four, **SHAPE), dtype=torch.float32).save_pretrained(to)


if __name__ == "__main__":
    main()
