#!/usr/bin/env python3
"""What ltrain exports, read by transformers: every case of this folder is trained for a step with a learning rate of 0, and of the export the
parameters must be the case's own, and the loss of the text the one that ltrain printed.

    /tmp/venv-golden/bin/python tests/golden/check_export.py build/src/cli/ltrain [CASE ...]
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

HERE = os.path.dirname(os.path.abspath(__file__))


def quantised(source):
    with open(os.path.join(source, "config.json")) as f:
        return "quantization_config" in json.load(f)  # which nobody trains whole


def vocabulary(source):
    with open(os.path.join(source, "config.json")) as f:
        config = json.load(f)
    return config.get("text_config", config)["vocab_size"]


def check(ltrain, case, folder):
    source, run, seq = os.path.join(HERE, case), os.path.join(folder, case), 64
    text = os.path.join(folder, "text")
    most = min(251, vocabulary(source))
    with open(text, "wb") as f:
        f.write(bytes((i * i * 31 + i * 7) % most for i in range(seq + 1)))
    subprocess.run([ltrain, "--model", source, "--data", text, "--seq-len", str(seq), "--steps", "1", "--lr", "0", "--out", run,
                    "--offload", "none", "--device-mem", "512M", "--host-mem", "512M"],
                   check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(run, "metrics.jsonl")) as f:
        loss = json.loads(f.readline())["loss"]
    with open(os.path.join(source, "config.json")) as f:
        wrapped = "text_config" in f.read()
    model = (AutoModelForImageTextToText if wrapped else AutoModelForCausalLM).from_pretrained(os.path.join(run, "hf"), dtype=torch.float32, attn_implementation="eager").eval()
    before = {k: v for x in glob.glob(os.path.join(source, "model*.safetensors")) for k, v in load_file(x).items()}
    after = {k: v for x in glob.glob(os.path.join(run, "hf", "model*.safetensors")) for k, v in load_file(x).items()}
    assert before.keys() == after.keys() and all(torch.equal(before[k], after[k]) for k in before), case
    tokens = torch.tensor([[(i * i * 31 + i * 7) % most for i in range(seq + 1)]])
    with torch.no_grad():
        logits = model(input_ids=tokens[:, :seq], use_cache=False).logits[0]
    there = torch.nn.functional.cross_entropy(logits.double(), tokens[0, 1:]).item()
    assert abs(there - loss) < 2e-6 * loss, (case, there, loss)
    print(f"{case}: loss {loss:.7f}, transformers {there:.7f}")


if __name__ == "__main__":
    cases = sys.argv[2:] or sorted(os.path.basename(os.path.dirname(x)) for x in glob.glob(os.path.join(HERE, "*", "golden.json")) if not quantised(os.path.dirname(x)))
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            check(os.path.abspath(sys.argv[1]), case, folder)
