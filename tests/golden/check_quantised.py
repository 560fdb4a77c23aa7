#!/usr/bin/env python3
"""What `ltrain export --quantize` writes, read by transformers and bitsandbytes: of a model in NF4 and in int8 every tensor must be that of the model
which they quantise themselves, and so must the logits.

    /tmp/venv-golden/bin/python tests/golden/check_quantised.py build/src/cli/ltrain [MODEL]
"""
import os
import subprocess
import sys
import tempfile

os.environ["TORCHDYNAMO_DISABLE"] = "1"

import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

HERE = os.path.dirname(os.path.abspath(__file__))
FORMS = dict(nf4=dict(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True), int8=dict(load_in_8bit=True))


def load(folder, **words):
    return AutoModelForCausalLM.from_pretrained(folder, device_map="cpu", attn_implementation="eager", **words).eval()


def state(value):
    if isinstance(value, torch.Tensor) and value.dtype == torch.uint8 and value.dim() == 1 and bytes(value[:1]) == b"{":
        return dict(eval(bytes(value).decode()))  # spaces behind it are no difference
    return value


def check(ltrain, model, form, folder):
    written = os.path.join(folder, form)
    subprocess.run([ltrain, "export", "--model", model, "--to", written, "--quantize", form], check=True)
    ours, theirs = load(written, dtype="auto"), load(model, dtype="auto", quantization_config=BitsAndBytesConfig(**FORMS[form]))
    a, b = ours.state_dict(), theirs.state_dict()
    assert a.keys() == b.keys(), a.keys() ^ b.keys()
    for name in a:
        x, y = state(a[name]), state(b[name])
        assert torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y, name
    ids = torch.arange(40)[None] % ours.config.vocab_size
    with torch.no_grad():
        x, y = ours(ids).logits, theirs(ids).logits
    assert torch.equal(x, y), (x - y).abs().max()
    print(f"{form}: {len(a)} tensors and the logits are equal")


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        for name in FORMS:
            check(os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else os.path.join(HERE, "qlora-gqa"), name, scratch)
