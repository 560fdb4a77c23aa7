#!/usr/bin/env python3
"""Writes logprobs.json: by transformers in fp64, the log-probability of each token of a golden case given those before it.

    /tmp/venv-golden/bin/python tests/golden/make_logprobs.py
"""
import json
import os

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
CASE = "llama-gqa"
model = AutoModelForCausalLM.from_pretrained(os.path.join(HERE, CASE), dtype=torch.float64)
tokens = load_file(os.path.join(HERE, CASE, "golden.safetensors"))["tokens"].long()
with torch.no_grad():
    scores = model(tokens[None]).logits[0].log_softmax(-1)
each = [0.0] + [scores[i, tokens[i + 1]].item() for i in range(len(tokens) - 1)]
with open(os.path.join(HERE, "logprobs.json"), "w") as f:
    json.dump({"model": CASE, "tokens": tokens.tolist(), "logprobs": each}, f)
    f.write("\n")
