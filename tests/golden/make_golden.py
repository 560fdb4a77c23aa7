#!/usr/bin/env python3
"""Golden data from PyTorch and transformers, computed in fp64 and stored in fp32.

    python3 -m venv /tmp/venv-golden
    /tmp/venv-golden/bin/pip install torch==2.13.0 transformers safetensors numpy
    /tmp/venv-golden/bin/python tests/golden/make_golden.py [CASE ...]

Each case is a folder: config.json and model.safetensors as save_pretrained writes them, and golden.safetensors with
  tokens, targets, positions, lo   [S] as fp32 numbers; token i attends tokens lo[i]..i (lo: its document's start, or i - window + 1);
                                   target < 0: not counted
  loss [1], logits [ROWS, vocab]   the mean over counted targets, and the logits' last rows, before any update
  grad.NAME                        of that mean loss, for every trained parameter (a tied head's lie in the embedding)
  loss5, gnorm5 [5], step5.NAME    five AdamW steps on the same batch: each step's loss and gradient norm before clipping,
                                   and the trained parameters after the last
golden.json repeats the scalars, the hyperparameters, the document lengths and the frozen globs.
"""
import fnmatch
import json
import os
import sys

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, MistralConfig, Qwen2Config

HERE = os.path.dirname(os.path.abspath(__file__))
ADAMW = dict(lr=1e-3, beta1=0.9, beta2=0.95, eps=1e-3, weight_decay=0.1, clip=1.0, steps=5)
LOGIT_ROWS = 8
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)


def llama(heads, kv_heads, head_dim, dim=64, ffn=96, layers=2, tied=False, rope=None, kind=LlamaConfig, **more):
    return kind(vocab_size=256, hidden_size=dim, intermediate_size=ffn, num_hidden_layers=layers, num_attention_heads=heads,
                num_key_value_heads=kv_heads, head_dim=head_dim, max_position_embeddings=256, tie_word_embeddings=tied,
                rms_norm_eps=1e-5, rope_parameters=rope or dict(rope_type="default", rope_theta=10000.0), **more)


def gpt2(positions=96, dim=64, layers=2):
    return GPT2Config(vocab_size=256, n_positions=positions, n_embd=dim, n_layer=layers, n_head=2, bos_token_id=None,
                      eos_token_id=None, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)


# name: config, document lengths, globs of frozen parameters
CASES = {
    "llama-gqa": (llama(4, 2, 32), [96], []),
    "llama-tied-docs": (llama(2, 2, 32, ffn=48, tied=True), [40, 1, 55], []),
    "llama-h80": (llama(2, 1, 80, dim=48, ffn=64, layers=1, tied=True), [72], []),
    "llama-mqa7": (llama(7, 1, 32, dim=56, ffn=48, layers=1, tied=True), [61], []),  # dim must be a multiple of heads
    "llama3-rope": (llama(2, 1, 64, ffn=64, layers=1, tied=True, rope=LLAMA3), [128], []),
    "gpt2": (gpt2(), [50, 30], []),
    "llama-frozen": (llama(2, 1, 32, dim=32, ffn=48), [33, 31], ["model.embed_tokens.weight", "model.layers.0.mlp.*"]),
    "mistral-window": (llama(4, 2, 32, ffn=48, layers=1, tied=True, kind=MistralConfig, sliding_window=16), [60, 1, 35], []),
    "qwen2-window": (llama(2, 1, 32, ffn=48, layers=1, tied=True, kind=Qwen2Config, use_sliding_window=True, sliding_window=7,
                           max_window_layers=0), [50, 30], []),
    # a table much longer than the run: rows behind its last position have no gradient, but AdamW's weight decay shrinks them here,
    # while a run of ltrain leaves them as they are; so step5's are compared as far as the run's positions reach
    "gpt2-positions": (gpt2(positions=1024, dim=32, layers=1), [50, 41], []),
}


def make_batch(lengths, seed, window):
    """Packed documents. A document's last target is not counted, as is one masked token in the middle of the first document."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 256, sum(lengths))
    targets = np.full(len(tokens), -1)
    positions, lo = np.zeros_like(tokens), np.zeros_like(tokens)
    begin = 0
    for n in lengths:
        targets[begin:begin + n - 1] = tokens[begin + 1:begin + n]
        positions[begin:begin + n] = np.arange(n)
        lo[begin:begin + n] = np.maximum(begin, np.arange(begin, begin + n) - window + 1)
        begin += n
    targets[lengths[0] // 2] = -1
    return tokens, targets, positions, lo


def randomize(model, seed):
    """Larger than the usual initial values, so that every part of the gradient counts; norms and biases are not trivial either."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=g, dtype=torch.float32)
            if p.ndim >= 2:
                p.copy_(0.08 * noise)
            elif name.endswith("bias"):
                p.copy_(0.05 * noise)
            else:
                p.copy_(1 + 0.1 * noise)


def forward(model, batch):
    tokens, targets, positions, lo = (torch.from_numpy(a) for a in batch)
    i = torch.arange(len(tokens))
    seen = (i[None, :] <= i[:, None]) & (i[None, :] >= lo[:, None])
    logits = model(input_ids=tokens[None], attention_mask=seen[None, None], position_ids=positions[None], use_cache=False).logits[0]
    assert logits.dtype == torch.float64
    return torch.nn.functional.cross_entropy(logits, targets, ignore_index=-1), logits


def check_documents(model, batch, lengths, loss):
    """The mask really separates documents and is the model's own window: one by one, without any mask, they give the same loss."""
    total, count, begin = 0.0, 0, 0
    for n in lengths:
        tokens, targets = (torch.from_numpy(a[begin:begin + n]) for a in batch[:2])
        logits = model(input_ids=tokens[None], use_cache=False).logits[0]
        total += torch.nn.functional.cross_entropy(logits, targets, ignore_index=-1, reduction="sum").item()
        count += int((targets >= 0).sum())
        begin += n
    assert abs(total / count - loss) < 1e-12, (total / count, loss)


def to_fp64(model):
    """model.double() and more: transformers' RMSNorm and rotary tables go through fp32 whatever the model's type (as eager attention's
    softmax does, hence sdpa)."""
    model = model.double().train()
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = lambda x, m=module: m.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + m.variance_epsilon)
        if type(module).__name__.endswith("RotaryEmbedding"):
            inv_freq = exact_inv_freq(model.config, module.inv_freq)
            assert module.attention_scaling == 1

            def tables(x, position_ids, inv_freq=inv_freq):
                angle = position_ids[..., None].double() * inv_freq
                angle = torch.cat((angle, angle), dim=-1)
                return angle.cos(), angle.sin()

            module.forward = tables
    return model


def exact_inv_freq(config, fp32):
    """The same formula as transformers' in fp64, checked against its fp32 values."""
    d, r = config.head_dim, config.rope_parameters
    freq = float(r["rope_theta"]) ** -(torch.arange(0, d, 2, dtype=torch.float64) / d)
    if r["rope_type"] == "llama3":
        wavelength = 2 * torch.pi / freq
        low, high = r["low_freq_factor"], r["high_freq_factor"]
        smooth = ((r["original_max_position_embeddings"] / wavelength - low) / (high - low)).clamp(0, 1)
        freq = smooth * freq + (1 - smooth) * freq / r["factor"]
    assert torch.allclose(freq.float(), fp32.float(), rtol=1e-6, atol=0), (freq, fp32)
    return freq


def check_gradient(model, batch, trained):
    """Central differences along one direction agree to 1e-7: nothing on the way was rounded to fp32. Moves the parameters."""
    g = torch.Generator().manual_seed(1)
    direction = {k: torch.randn(p.shape, generator=g, dtype=torch.float64) for k, p in trained.items()}
    slope = sum((p.grad * direction[k]).sum().item() for k, p in trained.items())
    ends = []
    with torch.no_grad():
        for move in (1e-6, -2e-6):
            for k, p in trained.items():
                p.add_(move * direction[k])
            ends.append(forward(model, batch)[0].item())
    difference = (ends[0] - ends[1]) / 2e-6
    assert abs(difference - slope) <= 1e-7 * max(1, abs(slope)), (difference, slope)


def make_case(name, config, lengths, frozen, seed):
    torch.manual_seed(seed)
    config._attn_implementation = "sdpa"
    model = AutoModelForCausalLM.from_config(config)
    randomize(model, seed)
    folder = os.path.join(HERE, name)
    model.save_pretrained(folder)
    leftover = os.path.join(folder, "generation_config.json")
    if os.path.exists(leftover):
        os.remove(leftover)
    model = to_fp64(model)
    params = dict(model.named_parameters())  # a tied head appears once, as the embedding
    for pattern in frozen:
        hits = fnmatch.filter(params, pattern)
        assert hits, pattern
        for hit in hits:
            params[hit].requires_grad_(False)
    trained = {k: p for k, p in params.items() if p.requires_grad}
    batch = make_batch(lengths, seed, getattr(config, "sliding_window", None) or sum(lengths))

    out = {k: a.astype(np.float32) for k, a in zip(("tokens", "targets", "positions", "lo"), batch)}
    optimizer = torch.optim.AdamW(
        [dict(params=[p for p in trained.values() if p.ndim >= 2], weight_decay=ADAMW["weight_decay"]),
         dict(params=[p for p in trained.values() if p.ndim < 2], weight_decay=0.0)],
        lr=ADAMW["lr"], betas=(ADAMW["beta1"], ADAMW["beta2"]), eps=ADAMW["eps"])
    losses, norms = [], []
    for step in range(ADAMW["steps"]):
        optimizer.zero_grad()
        loss, logits = forward(model, batch)
        loss.backward()
        if step == 0:
            check_documents(model, batch, lengths, loss.item())
            initial = {k: p.detach().clone() for k, p in trained.items()}
            check_gradient(model, batch, trained)
            with torch.no_grad():  # the walk may not return to the very bits
                for k, p in trained.items():
                    p.copy_(initial[k])
            out["loss"] = np.array([loss.item()], np.float32)
            out["logits"] = logits[-LOGIT_ROWS:].detach().float().numpy()
            for k, p in trained.items():
                out["grad." + k] = p.grad.float().numpy().copy()
        norms.append(torch.nn.utils.clip_grad_norm_(trained.values(), ADAMW["clip"]).item())
        losses.append(loss.item())
        optimizer.step()
    out["loss5"], out["gnorm5"] = np.array(losses, np.float32), np.array(norms, np.float32)
    for k, p in trained.items():
        out["step5." + k] = p.detach().float().numpy().copy()
    save_file({k: np.ascontiguousarray(v) for k, v in out.items()}, os.path.join(folder, "golden.safetensors"))
    info = dict(case=name, seq_len=len(batch[0]), documents=lengths, targets=int((batch[1] >= 0).sum()), freeze=frozen,
                first_logit_row=len(batch[0]) - LOGIT_ROWS, trained=sorted(trained), adamw=ADAMW, loss=losses[0], loss5=losses, gnorm5=norms,
                torch=torch.__version__)
    with open(os.path.join(folder, "golden.json"), "w") as f:
        json.dump(info, f, indent=1)
        f.write("\n")
    print(f"{name}: {sum(os.path.getsize(os.path.join(folder, x)) for x in os.listdir(folder)) / 1e6:.2f} MB, "
          f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, gnorm {norms[0]:.3f}")


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    for number, case in enumerate(CASES):
        if len(sys.argv) == 1 or case in sys.argv[1:]:
            make_case(case, *CASES[case], seed=number + 1)
