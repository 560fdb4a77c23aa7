#!/usr/bin/env python3
"""Golden data of adapters beside a base in NF4: qlora-gqa, as the cases of make_lora.py, which see, with more:

    loss10, gnorm10, step10.NAME  of PEFT in fp64 on top of the numbers that bitsandbytes makes of its NF4, as a plain base
    loss_nf4                      of PEFT and bitsandbytes themselves, in fp32
    double/, plain/               the base as transformers saves it quantised, with and without double quantisation

Rows are multiples of 64 numbers: of others bitsandbytes 0.50 takes wrong scales for most blocks where a processor has AVX-512
(dequantizeBlockwise4bitCpu counts blocks row by row, quantize_4bit through the flattened matrix; with one row both are the same).

    /tmp/venv-golden/bin/python tests/golden/make_qlora.py
"""
import json
import os
import shutil

os.environ["TORCHDYNAMO_DISABLE"] = "1"

import bitsandbytes as bnb
import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

import make_golden as golden
from make_lora import STEPS, name_of

NAME, SEED = "qlora-gqa", 200
WORDS = dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "o_proj", "down_proj"])


def quantised(folder, double=True):
    words = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=double, bnb_4bit_compute_dtype=torch.float32)
    return AutoModelForCausalLM.from_pretrained(folder, quantization_config=words, dtype=torch.float32, device_map="cpu", attn_implementation="sdpa")


def loss_of(model, batch):
    """Returns the loss as golden.forward does, in the model's type."""
    tokens, targets, positions, lo = (torch.from_numpy(a) for a in batch)
    i = torch.arange(len(tokens))
    seen = (i[None, :] <= i[:, None]) & (i[None, :] >= lo[:, None])
    mask = torch.where(seen, 0.0, -torch.inf)[None, None]
    logits = model(input_ids=tokens[None], attention_mask=mask, position_ids=positions[None], use_cache=False).logits[0]
    return torch.nn.functional.cross_entropy(logits, targets, ignore_index=-1)


def train(model, base, batch, forward):
    trained = {name_of(k): p for k, p in model.named_parameters() if p.requires_grad}
    a = golden.ADAMW
    optimizer = torch.optim.AdamW(trained.values(), lr=a["lr"], betas=(a["beta1"], a["beta2"]), eps=a["eps"], weight_decay=a["weight_decay"])
    losses, norms, out = [], [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = forward(base, batch)
        loss.backward()
        if step == 0:
            out.update({"grad." + k: p.grad.float().numpy().copy() for k, p in trained.items()})
        norms.append(torch.nn.utils.clip_grad_norm_(trained.values(), a["clip"]).item())
        losses.append(loss.item())
        optimizer.step()
        if step == 4:
            out.update({"step5." + k: p.detach().float().numpy().copy() for k, p in trained.items()})
    out.update({"step10." + k: p.detach().float().numpy().copy() for k, p in trained.items()})
    return losses, norms, out, sorted(trained)


def write_case(name, word, base, batch, lookup, theirs):
    """golden.safetensors and golden.json of that folder: PEFT in fp64 on top of `base` with the numbers of `lookup`, as a plain model, and
    what bitsandbytes itself has given."""
    folder = os.path.join(golden.HERE, name)
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="sdpa")
    with torch.no_grad():
        for module, w in lookup.items():
            plain.get_submodule(module).weight.copy_(w)
    model = PeftModel.from_pretrained(plain, os.path.join(folder, "adapter"), is_trainable=True)
    golden.to_fp64(plain)
    losses, norms, out, trained = train(model.double().train(), plain, batch, lambda m, b: golden.forward(m, b)[0])

    out.update({k: a.astype(np.float32) for k, a in zip(("tokens", "targets", "positions", "lo"), batch)})
    save_file({k: np.ascontiguousarray(v.astype(np.float32)) for k, v in out.items()}, os.path.join(folder, "golden.safetensors"))
    info = dict(case=name, base=word, seq_len=65, documents=[40, 25], targets=int((batch[1] >= 0).sum()), freeze=[], adamw=dict(golden.ADAMW, steps=STEPS),
                loss5=losses[:5], gnorm5=norms[:5], loss10=losses, gnorm10=norms, **theirs, trained=trained, zero=False, torch=torch.__version__,
                bitsandbytes=bnb.__version__)
    with open(os.path.join(folder, "golden.json"), "w") as f:
        json.dump(info, f, indent=1)
        f.write("\n")
    for key, value in theirs.items():
        if key.startswith("loss"):
            apart = max(abs(a - b) for a, b in zip(losses, value if isinstance(value, list) else [value]))
            print(f"{name}: loss {losses[0]:.6f} -> {losses[-1]:.6f}; {key} of PEFT and bitsandbytes in fp32 differs by {apart:.2g}")


def main():
    torch.manual_seed(SEED)
    folder = os.path.join(golden.HERE, NAME)
    shutil.rmtree(folder, ignore_errors=True)
    config = golden.llama(4, 2, 16, dim=64, ffn=64, tied=True)  # rows of whole blocks: see above
    config._attn_implementation = "sdpa"
    base = AutoModelForCausalLM.from_config(config)
    golden.randomize(base, SEED)
    base.save_pretrained(folder)
    for double in (True, False):
        quantised(folder, double).save_pretrained(os.path.join(folder, "double" if double else "plain"))

    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, bias="none", **WORDS))
    g = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "lora_B" in key:
                p.copy_(0.1 * torch.randn(p.shape, generator=g))
    adapter = os.path.join(folder, "adapter")
    model.save_pretrained(adapter)
    os.remove(os.path.join(adapter, "README.md"))
    for path in (os.path.join(folder, x, "generation_config.json") for x in ("", "double", "plain")):
        if os.path.exists(path):
            os.remove(path)
    path = os.path.join(adapter, "adapter_config.json")
    with open(path) as f:
        written = json.load(f)
    written["base_model_name_or_path"] = ".."
    written["target_modules"].sort()
    with open(path, "w") as f:
        json.dump(written, f, indent=2)
    batch = golden.make_batch([40, 25], SEED, 65, config.vocab_size)

    four = quantised(folder)
    lookup = {name: bnb.functional.dequantize_4bit(m.weight.data, m.weight.quant_state)
              for name, m in four.named_modules() if isinstance(m, bnb.nn.Linear4bit)}
    assert len(lookup) == 14 and all(w.dtype == torch.float32 for w in lookup.values())
    nf4 = PeftModel.from_pretrained(four, adapter, is_trainable=True).train()
    losses_nf4, norms_nf4, _, _ = train(nf4, nf4, batch, loss_of)

    write_case(NAME, "nf4", folder, batch, lookup, dict(loss_nf4=losses_nf4, gnorm_nf4=norms_nf4))


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    main()
