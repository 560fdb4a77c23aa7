#!/usr/bin/env python3
"""PyTorch and transformers: one training step in fp32 of the model in a directory. peer_experts.py DIR TOKENS THREADS [IMPLEMENTATION];
prints seconds and loss as JSON; IMPLEMENTATION of experts: grouped_mm (the fastest on CPUs), eager. A step of 512 tokens warms up.
peer_experts.py --make DIR writes the model with experts, DIR/dense that with an MLP of equal products."""
import json, os, sys

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

import torch
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3MoeConfig

from peer_step import step

SHAPE = dict(hidden_size=384, num_hidden_layers=6, num_attention_heads=6, num_key_value_heads=2, head_dim=64, vocab_size=8192, tie_word_embeddings=True,
             max_position_embeddings=32768)


def make(where):
    torch.manual_seed(0)
    experts = Qwen3MoeConfig(num_experts=64, num_experts_per_tok=8, moe_intermediate_size=96, intermediate_size=768, norm_topk_prob=True, **SHAPE)
    for config, to in ((experts, where), (Qwen3Config(intermediate_size=768, **SHAPE), os.path.join(where, "dense"))):
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(to)


def main():
    if sys.argv[1] == "--make":
        return make(sys.argv[2])
    where, tokens, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    kind = {"experts_implementation": sys.argv[4]} if len(sys.argv) > 4 else {}
    model = AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32, attn_implementation="sdpa", **kind)
    model.config.use_cache = False
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    step(model, optimizer, 512, False)
    seconds, loss = step(model, optimizer, tokens, False)
    print(json.dumps({"seconds": seconds, "loss": loss, "parameters": sum(p.numel() for p in model.parameters())}))


if __name__ == "__main__":
    main()
