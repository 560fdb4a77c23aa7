#!/usr/bin/env python3
"""What ltrain exports, read by transformers: every case of this folder is trained for a step with a learning rate of 0, and of the export the
parameters must be the case's own, the loss of the text the one that ltrain printed, and all logits the case's own in transformers.

    /tmp/venv-golden/bin/python tests/golden/check_export.py build/src/cli/ltrain [CASE ...]
"""
import array
import glob
import json
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file

import make_generate

HERE = os.path.dirname(os.path.abspath(__file__))


def quantised(source):
    with open(os.path.join(source, "config.json")) as f:
        return "quantization_config" in json.load(f)  # which nobody trains whole


def vocabulary(source):
    with open(os.path.join(source, "config.json")) as f:
        config = json.load(f)
    return config.get("text_config", config)["vocab_size"]


def logits_of(folder, tokens):
    with torch.no_grad():
        return make_generate.open_base(folder).eval()(input_ids=tokens, use_cache=False).logits[0].double()


def check(ltrain, case, folder):
    source, run, seq = os.path.join(HERE, case), os.path.join(folder, case), 64
    data = os.path.join(folder, "tokens.bin")
    tokens = [(i * i * 31 + i * 7) % vocabulary(source) for i in range(seq + 1)]
    with open(data, "wb") as f:
        array.array("H", tokens).tofile(f)
    subprocess.run([ltrain, "--model", source, "--data", data, "--token-type", "u16", "--seq-len", str(seq), "--steps", "1", "--lr", "0", "--out", run,
                    "--device", "cpu", "--offload", "none", "--device-mem", "512M", "--host-mem", "512M"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(os.path.join(run, "metrics.jsonl")) as f:
        loss = json.loads(f.readline())["loss"]
    before = {k: v for x in glob.glob(os.path.join(source, "model*.safetensors")) for k, v in load_file(x).items()}
    after = {k: v for x in glob.glob(os.path.join(run, "hf", "model*.safetensors")) for k, v in load_file(x).items()}
    assert before.keys() == after.keys() and all(torch.equal(before[k], after[k]) for k in before), case
    text = torch.tensor([tokens])
    theirs, logits = (logits_of(x, text[:, :seq]) for x in (source, os.path.join(run, "hf")))
    apart = ((logits - theirs).norm() / theirs.norm()).item()
    there = torch.nn.functional.cross_entropy(logits, text[0, 1:]).item()
    print(f"{case}: {len(after)} tensors; loss {loss:.7f}, transformers {there:.7f}; logits differ from the case's by {apart:.1e}", flush=True)
    assert abs(there - loss) < 2e-6 * loss and apart < 1e-6, case


if __name__ == "__main__":
    cases = sys.argv[2:] or sorted(os.path.basename(os.path.dirname(x)) for x in glob.glob(os.path.join(HERE, "*", "golden.json")) if not quantised(os.path.dirname(x)))
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            check(os.path.abspath(sys.argv[1]), case, folder)
    print(f"{len(cases)} cases: parameters, losses and logits are equal")
