#!/usr/bin/env python3
"""Perplexity and loss by position of a model by `ltrain eval` and by transformers, on the same windows, in fp32.

    peer_eval.py LTRAIN MODEL TEXT [LENGTH [STRIDE]]

Needs torch and transformers. Exit status 1 if the mean losses differ by more than 1e-5, or a bucket's by more than 1e-4.
"""
import json
import math
import subprocess
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()


def peer(model_dir, text, length, stride):
    """Windows as src/data/windows.h has them, of one document."""
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32, attn_implementation="eager").eval()
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    total, count, seen = 0.0, 0, {}
    windows = 1 + math.ceil(max(0, len(ids) - length) / stride)
    for w in range(windows):
        first = w * stride
        window = ids[first : first + length]
        with torch.no_grad():
            logits = model(torch.tensor([window])).logits[0]
        targets = ids[first + 1 : first + 1 + len(window)]
        begin = length - stride if w > 0 else 0
        losses = torch.nn.functional.cross_entropy(logits[begin : len(targets)].double(), torch.tensor(targets[begin:]), reduction="none")
        for i, loss in enumerate(losses.tolist(), begin):
            total += loss
            count += 1
            bucket = seen.setdefault(1 << ((i + 1).bit_length() - 1), [0.0, 0])
            bucket[0] += loss
            bucket[1] += 1
    return {"loss": total / count, "tokens": count, "windows": windows, "seen": {k: v[0] / v[1] for k, v in seen.items()}}


def main():
    ltrain, model_dir, path = sys.argv[1:4]
    length = int(sys.argv[4]) if len(sys.argv) > 4 else 1024
    stride = int(sys.argv[5]) if len(sys.argv) > 5 else length
    ours = json.loads(
        subprocess.check_output(
            [ltrain, "eval", "--model", model_dir, "--eval-data", path, "--lengths", str(length), "--stride", str(stride),
             "--dtype", "fp32", "--device", "cpu", "--json"]
        )
    )
    with open(path, encoding="utf-8") as f:
        theirs = peer(model_dir, f.read(), length, stride)
    ppl, position = ours["results"]
    worst = max(abs(b["loss"] - theirs["seen"][b["from"]]) for b in position["seen"])
    apart = abs(ppl["loss"] - theirs["loss"])
    print(f"windows of {length}, {stride} apart: {ppl['windows']} here, {theirs['windows']} there; "
          f"tokens predicted: {ppl['tokens']} and {theirs['tokens']}")
    print(f"loss       {ppl['loss']:.9f} here  {theirs['loss']:.9f} there  differ by {apart:.2e}")
    print(f"perplexity {ppl['perplexity']:.7f} here  {math.exp(theirs['loss']):.7f} there")
    print(f"bits per byte {ppl['bits_per_byte']:.6f}")
    for b in position["seen"]:
        print(f"  {b['from']:6} to {b['to']:6} tokens seen: {b['loss']:.7f} here  {theirs['seen'][b['from']]:.7f} there")
    good = apart <= 1e-5 and worst <= 1e-4 and ppl["tokens"] == theirs["tokens"]
    print("pass" if good else "FAIL", f"(worst bucket differs by {worst:.2e})")
    sys.exit(not good)


if __name__ == "__main__":
    main()
