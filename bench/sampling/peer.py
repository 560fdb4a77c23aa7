#!/usr/bin/env python3
"""Sampling beside transformers on this machine: `bench/sampling/peer.py LTRAIN MODEL [TOKENS]`.

Both read a text of TOKENS tokens (1024) and write 64 greedily, in fp32, with all cores; then a question by the chat template. The two
take turns, three times; the best of each is printed, and whether the ids are equal. ROUNDS and NEW in the environment are other
numbers of turns and of tokens.
"""
import json
import os
import subprocess
import sys
import tempfile
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

ROUNDS = int(os.environ.get("ROUNDS", 3))
NEW = int(os.environ.get("NEW", 64))
QUESTION = "What is the capital of France, and which river does it lie on?"


def ours(ltrain, model, options):
    out = subprocess.run([ltrain, "sample", "--model", model, "--json", "--temperature", "0", "--repetition-penalty", "1", *options], capture_output=True,
                         text=True, check=True).stdout
    return json.loads(out)


def theirs(model, ids, n, eos):
    ids = torch.tensor([ids])
    with torch.no_grad():
        began = time.perf_counter()
        out = model(ids, use_cache=True)
        prefill = time.perf_counter() - began
        cache, tokens = out.cache if hasattr(out, "cache") else out.past_key_values, [int(out.logits[0, -1].argmax())]
        began = time.perf_counter()
        while len(tokens) < n and tokens[-1] not in eos:
            out = model(torch.tensor([[tokens[-1]]]), cache=cache, use_cache=True)
            tokens.append(int(out.logits[0, -1].argmax()))
        seconds = time.perf_counter() - began
    return prefill, seconds, tokens


def line(name, prefill, n_prompt, seconds, n):
    print(f"  {name:13} prefill {n_prompt / prefill:7.1f} tokens/s   decode {n / seconds:6.1f} tokens/s")


def compare(what, ltrain, path, model, options, ids, n, eos):
    best = {}
    for _ in range(ROUNDS):
        o = ours(ltrain, path, [*options, "--max-new-tokens", str(n)])
        p, s, tokens = theirs(model, ids, n, eos)
        tokens = [t for t in tokens if t not in eos]
        best["o"] = (min(o["prefill_seconds"], best.get("o", (9e9, 9e9))[0]), min(o["seconds"], best.get("o", (9e9, 9e9))[1]))
        best["t"] = (min(p, best.get("t", (9e9, 9e9))[0]), min(s, best.get("t", (9e9, 9e9))[1]))
    print(f"{what}: {o['prompt_tokens']} tokens read, {len(o['tokens'])} written; ids {'equal' if o['tokens'] == tokens else 'differ'}")
    line("ltrain", best["o"][0], o["prompt_tokens"], best["o"][1], len(o["tokens"]))
    line("transformers", best["t"][0], len(ids), best["t"][1], len(tokens))
    return o


if __name__ == "__main__":
    ltrain, path, n = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1024
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    eos = model.generation_config.eos_token_id
    eos = eos if isinstance(eos, list) else [eos]
    text = tokenizer.decode(tokenizer(open(__file__).read() * 20)["input_ids"][:n])
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.write(text)
        f.flush()
        compare("a long text", ltrain, path, model, ["--prompt-file", f.name], tokenizer(text)["input_ids"], NEW, eos)
    ids = tokenizer.apply_chat_template([{"role": "user", "content": QUESTION}], add_generation_prompt=True, return_dict=True)["input_ids"]
    o = compare("a question", ltrain, path, model, ["--chat", "--prompt", QUESTION], ids, NEW, eos)
    print(f"  > {QUESTION}\n  {o['text']}")
