#!/usr/bin/env python3
"""Golden data of gpt-oss with experts in MXFP4, as it is published: moe/gpt-oss-mxfp4.

    /tmp/venv-golden/bin/python tests/golden/make_mxfp4.py

A case of make_moe.py, which see. Its model is what transformers makes of the files: numbers, which dequantised.safetensors has in bf16.
"""
import json
import os

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Mxfp4Config

import make_golden as golden
import make_moe as moe

NAME = "gpt-oss-mxfp4"
KEYS = dict(hidden_size=32, intermediate_size=64, num_local_experts=4, num_experts_per_tok=2, sliding_window=7, swiglu_limit=0.5)
VALUES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
KEPT = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]


def quantise(weight):
    """Returns the codes and scales of a stack [experts, in, out]."""
    w = weight.float().transpose(1, 2)
    experts, rows, columns = w.shape
    blocks = w.reshape(experts, rows, columns // 32, 32)
    power = torch.floor(torch.log2(blocks.abs().amax(-1).clamp(min=2**-126))) - 2
    scaled = blocks / 2 ** power[..., None]
    code = (scaled.abs()[..., None] - VALUES).abs().argmin(-1) + 8 * (scaled < 0)
    return (code[..., 0::2] | code[..., 1::2] << 4).to(torch.uint8), (power + 127).to(torch.uint8)


def convert(folder):
    """Replaces the stacks in a directory's files, and returns the model that transformers makes of them."""
    path, config = os.path.join(folder, "model.safetensors"), os.path.join(folder, "config.json")
    tensors = load_file(path)
    for name in [n for n in tensors if n.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        tensors[name + "_blocks"], tensors[name + "_scales"] = quantise(tensors.pop(name))
    save_file(tensors, path, metadata={"format": "pt"})
    with open(config) as f:
        words = dict(json.load(f), quantization_config={"modules_to_not_convert": KEPT, "quant_method": "mxfp4"})
    with open(config, "w") as f:
        json.dump(words, f, indent=2)
        f.write("\n")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", device_map="cpu", attn_implementation="eager", experts_implementation="eager",
                                                 quantization_config=Mxfp4Config(dequantize=True))
    numbers = {n: p.detach().clone() for n, p in model.named_parameters() if n.endswith(("gate_up_proj", "down_proj"))}
    assert len(numbers) == 2 and all(p.dtype == torch.bfloat16 for p in numbers.values())
    save_file(numbers, os.path.join(folder, "dequantised.safetensors"))
    return model


if __name__ == "__main__":
    golden.use_exact()
    seed = 31000
    while not moe.attempt(NAME, "gpt_oss", KEYS, -1, moe.DOCUMENTS, seed, convert):
        seed += 1
        assert seed < 31100
