#!/usr/bin/env python3
"""Writes logprobs.json: by transformers in fp64, the log-probability of each token given those before it, of a golden case's text, and of
random tokens by a model of experts and a hybrid.

    /tmp/venv-golden/bin/python tests/golden/make_logprobs.py
"""
import json
import os

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
CASE, OTHERS, LENGTH = "llama-gqa", ["experts/qwen3_moe", "hybrid/qwen3_5"], 64


def scores(case, tokens):
    model = AutoModelForCausalLM.from_pretrained(os.path.join(HERE, case), dtype=torch.float64, experts_implementation="eager")
    with torch.no_grad():
        logits = model(tokens[None]).logits[0].log_softmax(-1)
    each = [0.0] + [logits[i, tokens[i + 1]].item() for i in range(len(tokens) - 1)]
    return {"model": case, "tokens": tokens.tolist(), "logprobs": each}


def random_tokens(case):
    config = json.load(open(os.path.join(HERE, case, "config.json")))
    return torch.randint(0, config["vocab_size"], (LENGTH,), generator=torch.Generator().manual_seed(1))


golden = scores(CASE, load_file(os.path.join(HERE, CASE, "golden.safetensors"))["tokens"].long())
golden["others"] = [scores(case, random_tokens(case)) for case in OTHERS]
with open(os.path.join(HERE, "logprobs.json"), "w") as f:
    json.dump(golden, f)
    f.write("\n")
