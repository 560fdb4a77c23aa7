"""Scans of linear attention, their gradients and convolutions at the shapes of published hybrids: first a short one beside the recurrence,
token by token in fp64 with autograd, and what ranks that share a sequence add beside it; then TFLOP/s beside a dense product's, and beside
flash-linear-attention's chunk_gated_delta_rule where that is installed; and the times of a piece's summary, of that of its gradients, and of the
fold of 16 pieces' states for an eighth of the heads. `--seconds N` for all of it. Writes scans.json; exits 1 if a result is wrong."""
import argparse
import sys
import torch

import kernels
import timing
from bench_elements import attrs, bf16, fp32
from kernels import BF16

# name: kind, rows of a chunk, heads, key heads, columns of a key, of a value
LAYERS = {"qwen3.5-0.8b": (0, 8192, 16, 16, 128, 128), "qwen3.5-9b": (0, 4096, 32, 16, 128, 128), "qwen3.5-27b": (0, 4096, 48, 16, 128, 128),
          "granite-4-h": (1, 4096, 128, 1, 128, 64), "kimi-linear-48b": (2, 4096, 32, 32, 128, 128)}
DELTA, SSD, CHANNELS, CHUNK, WIDTH, PIECES = 0, 1, 2, 64, 4, 16
WORST = 0.02  # norm-wise: operands of products are bf16


class Layer:
    """A layer's tensors; a document begins every 291 rows."""

    def __init__(self, lib, kind, rows, heads, groups, key, value):
        self.lib, self.kind, self.rows, self.heads, self.groups, self.key, self.value = lib, kind, rows, heads, groups, key, value
        ld = 2 * groups * key + heads * value
        self.a = attrs("scan", rows=rows, kind=kind, heads=heads, groups=groups, key_dim=key, value_dim=value, q_first=0, k_first=groups * key,
                       v_first=2 * groups * key, ld=ld, dtype=BF16, scale=1.0 if kind == SSD else key**-0.5, eps=0.0 if kind == SSD else 1e-6)
        decays = (heads, key) if kind == CHANNELS else (heads,)
        self.qkv, self.g, self.beta = bf16(rows, ld), -fp32(rows, *decays).abs() * 0.1, fp32(rows, heads).sigmoid()
        if kind == SSD:
            self.qkv *= 0.2
        self.links = torch.zeros(rows, device="cuda", dtype=torch.int32)
        self.links[::291] = 1
        self.o, self.d_out = bf16(rows, heads * value), bf16(rows, heads * value)
        self.before, self.dstate, self.after = fp32(heads, key, value), fp32(heads, key, value), fp32(heads, key, value)
        self.dqkv, self.dg, self.dbeta = self.qkv.clone(), self.g.clone(), self.beta.clone()
        work = torch.empty(lib.recurrence_workspace("scan_grad", self.a), device="cuda", dtype=torch.uint8)
        self.forward = lib.op("scan", self.a, [self.o, self.after, self.qkv, self.g, self.beta, self.links, self.before, None, work])
        self.backward = lib.op("scan_grad", self.a, [self.dqkv, self.dg, self.dbeta, self.dstate, None, self.d_out, self.links, self.before, None, work])
        c = attrs("conv", rows=rows, cols=ld, ld=ld, first=0, width=WIDTH, silu=1, dtype=BF16)
        self.move, self.own, self.dbefore = fp32(heads, key, key), fp32(heads, key, value), torch.zeros(heads, key, value, device="cuda")
        gates = [self.qkv, self.g, self.beta]
        self.sum = lib.op("scan_sum", self.a, [self.move, self.own, *gates, self.links, work])
        self.grad_sum = lib.op("scan_grad_sum", self.a, [self.dbefore, *gates, self.d_out, self.links, work])
        f = attrs("fold", pieces=PIECES, heads=max(heads // 8, 1), key_dim=key, value_dim=value)
        self.moves, self.owns = fp32(PIECES, f.fold.heads, key, key) * key**-0.5, fp32(PIECES, f.fold.heads, key, value)
        self.states, self.order = torch.empty_like(self.owns), torch.randperm(PIECES, device="cuda", dtype=torch.int32)
        self.fold = lib.op("scan_fold", f, [self.states, self.moves, self.owns, self.order])
        self.conv = lib.op("conv", c, [bf16(rows, ld), None, self.qkv, bf16(ld, WIDTH), None, self.links, None])

    def flops(self):
        token = 2 * CHUNK * (3 * self.key + 2 * self.value) + 6 * self.key * self.value
        return self.rows * self.heads * (token if self.kind != SSD else 2 * CHUNK * (self.key + self.value) + 4 * self.key * self.value)


def recurrence(layer, qkv, g, beta, before):
    """Outputs and the last state, token by token."""
    h, k, v, per = layer.heads, layer.key, layer.value, layer.heads // layer.groups
    q, key, value = qkv.split([layer.groups * k, layer.groups * k, h * v], 1)
    q, key = (x.view(-1, layer.groups, k) for x in (q, key))
    if layer.a.scan.eps > 0:
        q, key = (x * (x.square().sum(-1, keepdim=True) + layer.a.scan.eps).rsqrt() for x in (q, key))
    q, key = (x.repeat_interleave(per, 1) for x in (q * layer.a.scan.scale, key))
    state, out = before, []
    for t in range(layer.rows):
        state = state * (0.0 if layer.links[t] == 1 else g[t].exp().view(h, -1, 1))
        u = value[t].view(h, v)
        if layer.kind != SSD:
            u = u - torch.einsum("hkv,hk->hv", state, key[t])
        state = state + key[t][:, :, None] * (beta[t][:, None] * u)[:, None, :]
        out.append(torch.einsum("hkv,hk->hv", state, q[t]).flatten())
    return torch.stack(out), state


def check_ranks(layer):
    """What passes between ranks, and what it must be: (name, got, right). No document begins in the rows."""
    layer.links.zero_()
    inputs = [x.double().requires_grad_() for x in (layer.qkv, layer.g, layer.beta, layer.before)]
    out, after = recurrence(layer, *inputs)
    own = recurrence(layer, *inputs[:3], torch.zeros_like(inputs[3]))[1]
    layer.sum()
    layer.grad_sum()
    layer.fold()
    states, order = [torch.zeros_like(layer.owns[0], dtype=torch.float64)], layer.order.tolist()
    for piece in order[:-1]:
        states.append(layer.moves[piece].double() @ states[-1] + layer.owns[piece].double())
    moved = layer.move.double() @ layer.before.double() + layer.own.double()
    dbefore, = torch.autograd.grad((out * layer.d_out.double()).sum(), inputs[3])
    return ("own", layer.own, own), ("move", moved, after), ("dbefore", layer.dbefore, dbefore), ("fold", layer.states[order], torch.stack(states))


def check(lib, name, kind, heads, groups, key, value):
    """Returns the number of wrong results at 200 rows."""
    layer, bad = Layer(lib, kind, 200, heads, groups, key, value), 0
    inputs = [x.double().requires_grad_() for x in (layer.qkv, layer.g, layer.beta, layer.before)]
    out, after = recurrence(layer, *inputs)
    want = torch.autograd.grad((out * layer.d_out.double()).sum() + (after * layer.dstate.double()).sum(), inputs)
    layer.forward()
    layer.backward()
    for what, got, right in (*zip(("o", "state", "dqkv", "dg", "dbeta", "dstate"), (layer.o, layer.after, layer.dqkv, layer.dg, layer.dbeta, layer.dstate),
                                  (out, after) + want), *check_ranks(layer)):
        error = ((got.double().view_as(right) - right).norm() / right.norm()).item()
        if not error <= WORST:
            print(f"{name}: {what} is off by {error:.3g}")
            bad += 1
    return bad


def of_fla(layer):
    """flash-linear-attention's scan of the same shape, or nothing."""
    try:
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    except ImportError:
        return {}
    if layer.kind != DELTA:
        return {}
    q, k, v = (bf16(1, layer.rows, layer.heads, n) for n in (layer.key, layer.key, layer.value))
    return {"fla": lambda: chunk_gated_delta_rule(q, k, v, g=layer.g[None], beta=layer.beta[None], use_qk_l2norm_in_kernel=True)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    lib = kernels.Kernels()
    result = {"machine_before": timing.machine(), "layers": {}}
    bad = check(lib, "delta", DELTA, 4, 2, 128, 128) + check(lib, "delta, 256", DELTA, 1, 1, 256, 256) + check(lib, "Mamba-2", SSD, 4, 1, 128, 64)
    bad += check(lib, "channels", CHANNELS, 2, 2, 128, 128)
    x, y = bf16(8192, 8192), bf16(8192, 8192)
    for name, shape in LAYERS.items():
        layer = Layer(lib, *shape)
        calls = dict({"forward": layer.forward, "backward": layer.backward, "sum": layer.sum, "grad_sum": layer.grad_sum, "fold": layer.fold,
                      "conv": layer.conv, "dense": lambda: x @ y}, **of_fla(layer))
        times = timing.take_turns(calls, options.seconds / len(LAYERS), 10.0)
        ms = {call: t["median_ms"] for call, t in times.items()}
        dense = 2 * 8192**3 / ms["dense"]
        share = {call: layer.flops() * factor / ms[call] / dense for call, factor in (("forward", 1.0), ("backward", 2.7))}
        result["layers"][name] = {"ms": ms, "of_dense": share}
        print(f"{name:14s} of a dense product's rate: " + "  ".join(f"{call} {r:.3f}" for call, r in share.items()) + "; us: " +
              "  ".join(f"{call} {1000 * t:.0f}" for call, t in ms.items()))
        del layer, calls
        torch.cuda.empty_cache()
    result["machine_after"], result["wrong"] = timing.machine(), bad
    timing.write("scans.json", result)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
