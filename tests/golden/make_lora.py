#!/usr/bin/env python3
"""Golden data of adapters from PEFT, computed in fp64 and stored in fp32; as make_golden.py, which see for the environment.

    /tmp/venv-golden/bin/pip install peft accelerate
    /tmp/venv-golden/bin/python tests/golden/make_lora.py [CASE ...]

Dropout is that of src/ops/dropout.h: the masks of a module, Philox4x32-10 and all, are made here again and take the place of torch's.

Each case is a folder: config.json and model.safetensors of the base, adapter/ as PEFT's save_pretrained writes it before any step, and
golden.safetensors, golden.json with ten AdamW steps beside five (loss10, gnorm10, step10.NAME); names are those of the adapter's file
without "base_model.model.".
"""
import json
import os
import shutil
import sys

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM, CodeGenConfig, Gemma2Config, GPTNeoXConfig, PhiConfig, Qwen3_5TextConfig, Qwen3Config

import make_golden as golden

STEPS = 10
SEED = 9  # RIG_SEED of tests/engine/rig.h
BASE = "base_model.model."

# name: base, document lengths, LoraConfig's words, whether B begins at zero
CASES = {
    "lora-gqa": (golden.llama(4, 2, 16, dim=32, ffn=48), [40, 25], dict(r=4, lora_alpha=8, target_modules="all-linear"), True),
    "lora-tied": (golden.llama(2, 1, 16, dim=32, ffn=48, tied=True), [50],
                  dict(r=3, lora_alpha=7, use_rslora=True, target_modules=["q_proj", "v_proj", "mlp.down_proj"], modules_to_save=["norm"]), False),
    "lora-gpt2": (golden.gpt2(dim=32), [50, 14], dict(r=4, lora_alpha=4, target_modules="all-linear", fan_in_fan_out=True), False),
    "lora-phi3": (golden.phi3(), [40], dict(r=5, lora_alpha=10, target_modules=r".*layers\.\d+\.(self_attn\.(qkv|o)|mlp\.gate_up)_proj"), False),
    "lora-neox": (golden.tiny(GPTNeoXConfig, rope_parameters=dict(golden.DEFAULT_ROPE, partial_rotary_factor=0.25), dim=32,
                              intermediate_size=24, num_hidden_layers=1), [30, 11], dict(r=4, lora_alpha=8, target_modules="all-linear"), False),
    # queries, values and keys in one matrix, in this order
    "lora-codegen": (golden.gptj(CodeGenConfig), [33, 14], dict(r=4, lora_alpha=8, target_modules=["qkv_proj", "fc_in"]), False),
    "lora-qwen3": (golden.small(Qwen3Config, heads=4, kv_heads=2, head_dim=16), [33],
                   dict(r=4, lora_alpha=8, target_modules="all-linear", rank_pattern={"q_proj": 2, r"layers.1.mlp.up_proj": 6}, alpha_pattern={"o_proj": 3}), False),
    "lora-dropout": (golden.llama(4, 2, 16, dim=32, ffn=48), [40, 25], dict(r=4, lora_alpha=8, target_modules="all-linear", lora_dropout=0.1), False),
    "lora-dropout-gpt2": (golden.gpt2(dim=32), [37, 14],
                          dict(r=3, lora_alpha=4, target_modules="all-linear", fan_in_fan_out=True, lora_dropout=0.3), False),
    "lora-ends": (golden.llama(2, 1, 16, dim=32, ffn=48), [40, 25],
                  dict(r=4, lora_alpha=8, target_modules=["embed_tokens", "lm_head", "v_proj"], rank_pattern={"embed_tokens": 3}, lora_dropout=0.1), False),
    "lora-ends-tied": (golden.small(Gemma2Config, heads=2, kv_heads=1, head_dim=16), [33],
                       dict(r=5, lora_alpha=6, use_rslora=True, target_modules=["embed_tokens", "lm_head"]), False),
    "lora-ends-gpt2": (golden.gpt2(dim=32), [37, 14], dict(r=4, lora_alpha=4, target_modules=["wte", "c_proj"], fan_in_fan_out=True), True),
    "lora-qwen3_5": (golden.tiny(Qwen3_5TextConfig, num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_hidden_layers=1,
                                 layer_types=[golden.FULL]), [33, 14], dict(r=4, lora_alpha=8, target_modules="all-linear", lora_dropout=0.1), False),
    # a head with a bias, which is in the adapter's file, too
    "lora-ends-phi": (golden.tiny(PhiConfig, num_hidden_layers=1, rope_parameters=dict(golden.DEFAULT_ROPE, partial_rotary_factor=0.5)), [33, 14],
                      dict(r=4, lora_alpha=8, target_modules=["q_proj", "fc1", "lm_head"]), False),
    # single rows of embedding and head, which ltrain reads and does not train: only the first step's loss and gradients are compared
    "lora-tokens": (golden.llama(2, 1, 16, dim=32, ffn=48), [33],
                    dict(r=2, lora_alpha=4, target_modules=["v_proj"], trainable_token_indices={"lm_head": [7, *range(90, 120)], "embed_tokens": [200, *range(40, 80), 3]}),
                    False),
    "lora-tokens-tied": (golden.llama(2, 1, 16, dim=32, ffn=48, tied=True), [33],
                         dict(r=2, lora_alpha=4, target_modules=["v_proj"], trainable_token_indices=[200, *range(40, 80), 3]), False),
}


def fnv1a(text):
    h = 0xcbf29ce484222325
    for byte in text.encode():
        h = (h ^ byte) * 0x100000001b3 % 2**64
    return h


def philox(counter, key):
    """Philox4x32-10 of arrays of words."""
    c, k = [np.asarray(x, dtype=np.uint64) for x in counter], [np.uint64(x) for x in key]
    low = np.uint64(0xffffffff)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ k[0], p1 & low, (p0 >> np.uint64(32)) ^ c[3] ^ k[1], p0 & low]
        k = [(k[0] + np.uint64(0x9E3779B9)) & low, (k[1] + np.uint64(0xBB67AE85)) & low]
    return c


class Masked(torch.nn.Module):
    """Dropout of a module's inputs in the sequence whose number is in `sequence`."""
    sequence = 0

    def __init__(self, module, p):
        super().__init__()
        self.number, self.p = fnv1a(module) % 2**32, p

    def forward(self, x):
        tokens, features = x.shape[-2:]
        key = SEED ^ fnv1a("dropout")
        group, token = np.arange((features + 3) // 4), np.arange(tokens)[:, None]
        words = philox(np.broadcast_arrays(group, token, self.number, Masked.sequence), (key % 2**32, key >> 32))
        keep = np.stack(words, axis=-1).reshape(tokens, -1)[:, :features] >= int(self.p * 2**32)
        return x * torch.from_numpy(keep).to(x.dtype) / (1 - self.p)


def mask_dropout(model):
    for name, module in model.named_modules():
        if getattr(module, "lora_dropout", None):
            for adapter, dropout in module.lora_dropout.items():
                if isinstance(dropout, torch.nn.Dropout):
                    module.lora_dropout[adapter] = Masked(name.removeprefix(BASE), dropout.p)


def name_of(key):
    """Returns a key's name in the adapter's file, without its prefix."""
    return key.removeprefix(BASE).replace(".default", "").replace("modules_to_save.", "")


def make_case(name, config, lengths, words, zero, seed):
    torch.manual_seed(seed)
    config._attn_implementation = "eager" if type(config).__name__.startswith("Gemma") else "sdpa"
    folder = os.path.join(golden.HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    base = AutoModelForCausalLM.from_config(config)
    golden.randomize(base, seed)
    base.save_pretrained(folder)
    for leftover in ("generation_config.json",):
        if os.path.exists(os.path.join(folder, leftover)):
            os.remove(os.path.join(folder, leftover))
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", bias="none", **words))
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, p in model.named_parameters():
            if ("lora_B" in key or "lora_embedding_A" in key or "trainable_tokens" in key) and not zero:
                p.copy_(0.1 * torch.randn(p.shape, generator=g))
    model.save_pretrained(os.path.join(folder, "adapter"))
    os.remove(os.path.join(folder, "adapter", "README.md"))
    path = os.path.join(folder, "adapter", "adapter_config.json")
    with open(path) as f:
        written = json.load(f)
    written["base_model_name_or_path"] = ".."
    if isinstance(written["target_modules"], list):
        written["target_modules"].sort()
    with open(path, "w") as f:
        json.dump(written, f, indent=2)
    golden.to_fp64(base)
    model = model.double().train()
    mask_dropout(model)
    trained = {name_of(k): p for k, p in model.named_parameters() if p.requires_grad}
    saved = {k.removeprefix(BASE) for k in load_file(os.path.join(folder, "adapter", "adapter_model.safetensors")) if ".base_layer." not in k}
    assert saved == set(trained), saved ^ set(trained)
    batch = golden.make_batch(lengths, seed, sum(lengths), config.vocab_size)
    out = {k: a.astype(np.float32) for k, a in zip(("tokens", "targets", "positions", "lo"), batch)}
    a = golden.ADAMW
    optimizer = torch.optim.AdamW(
        [dict(params=[p for p in trained.values() if p.ndim >= 2], weight_decay=a["weight_decay"]),
         dict(params=[p for p in trained.values() if p.ndim < 2], weight_decay=0.0)],
        lr=a["lr"], betas=(a["beta1"], a["beta2"]), eps=a["eps"])
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        Masked.sequence = step
        loss, _ = golden.forward(base, batch)
        loss.backward()
        if step == 0:
            for k, p in trained.items():
                out["grad." + k] = p.grad.float().numpy().copy()
                assert not (zero and "lora_A" in k) or (p.grad == 0).all()
        norms.append(torch.nn.utils.clip_grad_norm_(trained.values(), a["clip"]).item())
        losses.append(loss.item())
        optimizer.step()
        if step == 4:
            for k, p in trained.items():
                out["step5." + k] = p.detach().float().numpy().copy()
    for k, p in trained.items():
        out["step10." + k] = p.detach().float().numpy().copy()
    save_file({k: np.ascontiguousarray(v.astype(np.float32)) for k, v in out.items()}, os.path.join(folder, "golden.safetensors"))
    info = dict(case=name, seq_len=len(batch[0]), documents=lengths, targets=int((batch[1] >= 0).sum()), freeze=[], adamw=dict(a, steps=STEPS),
                loss5=losses[:5], gnorm5=norms[:5], loss10=losses, gnorm10=norms, trained=sorted(trained), zero=zero, torch=torch.__version__)
    with open(os.path.join(folder, "golden.json"), "w") as f:
        json.dump(info, f, indent=1)
        f.write("\n")
    size = sum(os.path.getsize(os.path.join(d, x)) for d, _, files in os.walk(folder) for x in files)
    print(f"{name}: {size / 1e6:.2f} MB, loss {losses[0]:.6f} -> {losses[-1]:.6f}, gnorm {norms[0]:.4f}, {len(trained)} trained")


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    for number, case in enumerate(CASES):
        if len(sys.argv) == 1 or case in sys.argv[1:]:
            make_case(case, *CASES[case], seed=100 + number)
