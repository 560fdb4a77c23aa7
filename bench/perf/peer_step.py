#!/usr/bin/env python3
"""PyTorch eager and transformers: one training step of the 25m preset's Llama in fp32. peer_step.py TOKENS THREADS [checkpointing] [bf16];
prints seconds and loss as JSON; bf16: autocast. A step of 512 tokens warms up."""
import json, sys, time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()


def step(model, optimizer, tokens, bf16):
    ids = torch.randint(0, 256, (1, tokens))
    t = time.perf_counter()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return time.perf_counter() - t, loss.item()


def main():
    tokens, threads = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(threads)
    model = LlamaForCausalLM(LlamaConfig(hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=2,
        head_dim=64, vocab_size=8192, tie_word_embeddings=True, max_position_embeddings=tokens, use_cache=False, attn_implementation="sdpa"))
    if "checkpointing" in sys.argv[3:]:
        model.gradient_checkpointing_enable()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    bf16 = "bf16" in sys.argv[3:]
    step(model, optimizer, 512, bf16)
    seconds, loss = step(model, optimizer, tokens, bf16)
    print(json.dumps({"seconds": seconds, "loss": loss, "parameters": sum(p.numel() for p in model.parameters())}))


if __name__ == "__main__":
    main()
