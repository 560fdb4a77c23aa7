#!/usr/bin/env python3
"""Golden data of bases in bitsandbytes' int8 (LLM.int8), on a processor.

    int8.json    codes, scales and the numbers that come back, of matrices that follow from formulas which tests/base/test_rows8.c has, too
    int8-gqa     the base of qlora-gqa as transformers saves it in int8, with its adapter, as the cases of make_lora.py, which see:
                 loss10, gnorm10, step10.NAME  of PEFT in fp64 on top of the numbers that bitsandbytes makes of its int8, as a plain base
                 loss_int8                     of PEFT and bitsandbytes themselves, in fp32, which multiply such numbers, too
                 loss_products                 the first of them where bitsandbytes multiplies 8-bit numbers, as it does to evaluate

    /tmp/venv-golden/bin/python tests/golden/make_int8.py
"""
import json
import os
import shutil

os.environ["TORCHDYNAMO_DISABLE"] = "1"

import bitsandbytes as bnb
import bitsandbytes.functional as F
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

import make_golden as golden
from make_nf4 import crc, numbers
from make_qlora import SEED, loss_of, train, write_case

BASE, NAME = "qlora-gqa", "int8-gqa"
SIZES = [(1, 1), (1, 7), (5, 64), (33, 65), (16, 128), (7, 191), (300, 72), (129, 1000), (64, 4096)]


def case(rows, columns, seed):
    x = torch.from_numpy(numbers(rows * columns, seed)).reshape(rows, columns)
    code, scale, _ = F.int8_vectorwise_quant(x.to(torch.float16))
    y = F.int8_vectorwise_dequant(code, scale)
    return dict(rows=rows, columns=columns, seed=seed, numbers=crc(x.numpy()), code=crc(code.numpy()), scale=crc(scale.numpy()), fp32=crc(y.numpy()),
                bf16=crc(y.to(torch.bfloat16).view(torch.int16).numpy()))


def bits():
    cases = [case(*size, seed) for size in SIZES for seed in (0, 1, 2) if seed == 0 or size[0] * size[1] >= 256]
    with open(os.path.join(golden.HERE, "int8.json"), "w") as f:
        json.dump(dict(bitsandbytes=bnb.__version__, torch=torch.__version__, cases=cases), f, indent=1)
        f.write("\n")
    print(len(cases), "cases")


def quantised(folder):
    words = BitsAndBytesConfig(load_in_8bit=True)
    return AutoModelForCausalLM.from_pretrained(folder, quantization_config=words, dtype=torch.float32, device_map="cpu", attn_implementation="sdpa")


def main():
    base, folder = os.path.join(golden.HERE, BASE), os.path.join(golden.HERE, NAME)
    adapter = os.path.join(folder, "adapter")
    shutil.rmtree(folder, ignore_errors=True)
    quantised(base).save_pretrained(folder)
    if os.path.exists(os.path.join(folder, "generation_config.json")):
        os.remove(os.path.join(folder, "generation_config.json"))
    shutil.copytree(os.path.join(base, "adapter"), adapter)

    eight = quantised(base)
    batch = golden.make_batch([40, 25], SEED, 65, eight.config.vocab_size)
    lookup = {name: F.int8_vectorwise_dequant(m.weight.data, m.weight.SCB.clone()) for name, m in eight.named_modules() if isinstance(m, bnb.nn.Linear8bitLt)}
    assert len(lookup) == 14 and all(w.dtype == torch.float32 for w in lookup.values())
    model = PeftModel.from_pretrained(eight, adapter, is_trainable=True)
    with torch.no_grad():
        products = loss_of(model.eval(), batch).item()
    losses_int8, norms_int8, _, _ = train(model.train(), model, batch, loss_of)

    write_case(NAME, "int8", base, batch, lookup, dict(loss_int8=losses_int8, gnorm_int8=norms_int8, loss_products=products))


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    bits()
    main()
