"""Products of experts beside PyTorch's dense product of as many multiplications (cuBLASLt): published layers, each with tokens spread over
its experts and with all tokens to the same k; first some rows of every result against products of the experts' own rows. Then routing,
sorting, gating and adding up, beside a device copy. `--seconds N` for all of it. Writes experts.json; exits 1 if a result is wrong."""
import argparse
import sys
import torch

import kernels
import timing
from bench_elements import attrs, bf16, fp32
from kernels import BF16, F32

# name: tokens of a chunk, width, width of an expert, experts, experts of a token
LAYERS = {"qwen3-30b-a3b": (8192, 2048, 768, 128, 8), "gpt-oss-20b": (8192, 2880, 2880, 32, 4), "glm-4.5-air": (8192, 4096, 1408, 128, 8),
          "mixtral-8x7b": (8192, 4096, 14336, 8, 2)}
WORST = 0.02  # of the largest number: bf16 has 8 bits
SOFTMAX, WRITES = 0, 0


def ints(*shape):
    return torch.empty(shape, device="cuda", dtype=torch.int32)


class Layer:
    """A layer's tensors, sorted by the kernels themselves."""

    def __init__(self, lib, rows, width, inner, experts, k, spread):
        self.lib, self.rows, self.width, self.inner, self.experts, self.k, self.n = lib, rows, width, inner, experts, k, rows * k
        self.route = attrs("route", rows=rows, experts=experts, k=k, kind=SOFTMAX)
        self.logits = fp32(rows, experts)
        if not spread:
            self.logits[:, :k] += 100
        self.ids, self.p, self.counts, self.work = ints(rows, k), fp32(rows, k), ints(experts), ints(-(-rows // 64) * 3 * experts)
        self.order, self.place, self.offsets = ints(self.n), ints(self.n), ints(experts + 1)
        self.x, self.acc = bf16(rows, width), fp32(rows, width)
        self.gate_up, self.act, self.dp = bf16(self.n, 2 * inner), bf16(self.n, inner), fp32(self.n)
        self.w_in, self.w_out = bf16(experts, 2 * inner, width), bf16(experts, width, inner)
        self.dw = fp32(experts, 2 * inner, width)
        self.y = bf16(self.n, width)

    def product(self, to, x, w, order, transposed=1):
        a = attrs("experts", rows=self.n, out=to.shape[1], experts=self.experts, count=self.experts, per=self.k, transposed=transposed,
                  x_type=BF16, w_type=BF16, y_type=BF16, result=WRITES)
        setattr(a.experts, "in", x.shape[1])
        return self.lib.op("experts", a, [to, x, w, self.offsets, order, None, None])

    def gradient(self, dw, dy, x, order):
        a = attrs("experts", rows=self.n, out=dy.shape[1], experts=self.experts, count=self.experts, per=self.k, transposed=1, x_type=BF16,
                  y_type=BF16, result=WRITES)
        setattr(a.experts, "in", x.shape[1])
        return self.lib.op("experts_grad", a, [dw, dy, x, self.offsets, order, None, None, None])

    def calls(self):
        gated = attrs("gated", rows=self.rows, dim=self.inner, width=self.width, k=self.k, experts=self.experts, dtype=BF16)
        combine = attrs("combine", rows=self.rows, dim=self.width, k=self.k, experts=self.experts, y_type=BF16, dtype=BF16)
        op = self.lib.op
        return {
            "route": op("route", self.route, [self.ids, self.p, self.counts, None, None, self.logits, None, None, self.work]),
            "permute": op("permute", self.route, [self.order, self.place, self.offsets, self.ids]),
            "in": self.product(self.gate_up, self.x, self.w_in, self.order),
            "gated": op("gated", gated, [self.act, self.gate_up, self.p, self.place]),
            "out": self.product(self.y, self.act, self.w_out, None),
            "combine": op("combine", combine, [self.acc, self.y, self.place, None, None, None]),
            "dx": self.product(self.y, self.gate_up, self.w_in, None, 0),
            "dw": self.gradient(self.dw, self.gate_up, self.x, self.order),
            "gated_grad": op("gated_grad", gated, [self.gate_up, self.act, self.dp, self.p, self.place, None, None, None]),
        }

    def of_expert(self, e):
        begin, end = self.offsets[e].item(), self.offsets[e + 1].item()
        return begin, end, self.order[begin:end].long() // self.k


def differs(got, want, what):
    """Prints and returns 1 if two results differ by more than bf16 lets them."""
    if got.numel() == 0:
        return 0
    error = ((got.float() - want.float()).abs().max() / want.float().abs().max().clamp(min=1e-6)).item()
    if error <= WORST:
        return 0
    print(f"{what}: off by {error:.3g} of the largest")
    return 1


def check(layer, calls, name):
    """Returns the number of wrong results: sorting by PyTorch's stable sort, products of some experts by its products."""
    bad = 0
    for step in ("route", "permute", "in", "gated", "out", "combine"):
        calls[step]()
    order = layer.ids.flatten().long().sort(stable=True).indices
    if not torch.equal(order, layer.order.long()):
        print(f"{name}: rows are in another order than a stable sort's")
        return 1
    calls["dw"]()
    gate, up = layer.gate_up.float().chunk(2, 1)
    weight = layer.p.flatten()[layer.order.long()]
    bad += differs(layer.act, weight[:, None] * torch.nn.functional.silu(gate) * up, f"{name} gated")
    tokens = torch.arange(0, layer.rows, 97, device="cuda")
    bad += differs(layer.acc[tokens], layer.y.float()[layer.place.long()[tokens]].sum(1), f"{name} combine")
    fullest = int((layer.offsets[1:] - layer.offsets[:-1]).argmax())
    for e in {0, layer.experts - 1, fullest}:
        begin, end, rows = layer.of_expert(e)
        bad += differs(layer.gate_up[begin:end], layer.x[rows] @ layer.w_in[e].T, f"{name} in, expert {e}")
        bad += differs(layer.y[begin:end], layer.act[begin:end] @ layer.w_out[e].T, f"{name} out, expert {e}")
        bad += differs(layer.dw[e], layer.gate_up[begin:end].T @ layer.x[rows], f"{name} dw, expert {e}")
    calls["dx"]()
    begin, end, _ = layer.of_expert(fullest)
    return bad + differs(layer.y[begin:end], layer.gate_up[begin:end] @ layer.w_in[fullest], f"{name} dx, expert {fullest}")


def dense_of(layer):
    """PyTorch's products with as many multiplications."""
    x, w, v = layer.y, layer.w_in[0], layer.w_out[0]
    return {"dense in": lambda: x @ w.T, "dense out": lambda: layer.act @ v.T, "dense dx": lambda: layer.gate_up @ w,
            "dense dw": lambda: layer.gate_up.T @ x}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    lib, bad = kernels.Kernels(), 0
    result = {"machine_before": timing.machine(), "layers": {}}
    src, dst = torch.randn(1 << 28, device="cuda"), torch.empty(1 << 28, device="cuda")
    for name, shape in LAYERS.items():
        for spread in (True, False):
            layer, of = Layer(lib, *shape, spread), f"{name} {'spread' if spread else 'to the same experts'}"
            calls = layer.calls()
            wrong = check(layer, calls, of)
            bad += wrong
            times = timing.take_turns(dict(calls, **dense_of(layer), copy=lambda: dst.copy_(src)), options.seconds / len(LAYERS) / 2, 10.0)
            ms = {call: t["median_ms"] for call, t in times.items()}
            ratio = {call: ms[f"dense {call}"] / ms[call] for call in ("in", "out", "dx", "dw")}
            result["layers"][of] = {"ms": ms, "of_dense": ratio, "wrong": wrong}
            print(f"{of:36s} of dense: " + "  ".join(f"{call} {r:.2f}" for call, r in ratio.items()) + "; us: " +
                  "  ".join(f"{call} {1000 * ms[call]:.0f}" for call in ("route", "permute", "gated", "gated_grad", "combine")))
            del layer, calls
            torch.cuda.empty_cache()
    result["machine_after"] = timing.machine()
    timing.write("experts.json", result)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
