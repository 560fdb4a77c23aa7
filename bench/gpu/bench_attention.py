"""Flash attention beside PyTorch's cuDNN and flash backends: same process, same tensors, taking turns. bf16, one sequence, causal; one
length in full, too. The deterministic backward in its ways: dQ by a kernel of its own (apart), added in an order (in_order), the same a step later (late).

`--seconds N` for all of it, `--quick` for a few shapes, `--ways` for the ways of the backward pass alone at 16k to 128k. TFLOP/s count the mask: 4 (forward) or 10 (backward) operations per attended
pair, head and head dimension, the same for everybody. Writes attention.json."""
import argparse
import sys
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import kernels
import timing

LENGTHS = [2048, 4096, 8192, 16384, 32768, 65536, 131072]
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "torch_flash": SDPBackend.FLASH_ATTENTION}
BIGGER_THAN_CACHE = 200 << 20  # bytes of input sets to go round: no call finds its inputs in the L2 (50 or 60 MB)


def heads_of(length, ratio):
    """Query and KV heads: enough to fill the GPU, few enough that one backward call stays below about half a second."""
    hq = max(8, min(64, 64 * 16384 // length))
    return hq, max(1, hq // ratio)


def sets_of(length, hq, hk, d):
    """Input sets [rows, heads, d]; several where one would fit into the cache."""
    one = 2 * length * d * (2 * hq + 2 * hk)
    draw = lambda h: torch.randn(length, h, d, device="cuda", dtype=torch.bfloat16)
    return [{"q": draw(hq), "k": draw(hk), "v": draw(hk), "do": draw(hq)} for _ in range(min(4, 1 + BIGGER_THAN_CACHE // one))]


def rotate(calls):
    """One call that does the next of `calls` each time."""
    state = [0]

    def run():
        state[0] = (state[0] + 1) % len(calls)
        calls[state[0]]()
    return run


def mask_of(length, causal):
    """Each query's first and last key."""
    lo = torch.zeros(length, dtype=torch.int32, device="cuda")
    return lo, torch.arange(length, dtype=torch.int32, device="cuda") if causal else lo + (length - 1)


def ways_of(capability, cap):
    """Names and modes of the backward pass."""
    ways = [("backward_apart", kernels.APART)]
    if not cap:
        ways.append(("backward_fast", kernels.FAST))
        if capability == 90:
            ways += [("backward_in_order", kernels.IN_ORDER), ("backward_late", kernels.IN_ORDER_LATE)]
    return ways


def ours(lib, sets, length, hq, hk, d, capability, cap=0.0, causal=True):
    """{forward, backward_apart, backward_fast, backward_in_order, backward_late} of ltrain's kernels for one family."""
    attrs = kernels.attention_attrs(length, length, hq, hk, d, cap=cap)
    lo, hi = mask_of(length, causal)
    o, lse = torch.empty_like(sets[0]["q"]), torch.empty(hq, length, device="cuda")
    dq = torch.empty(length, hq, d, device="cuda")
    dk, dv = torch.empty(length, hk, d, device="cuda"), torch.empty(length, hk, d, device="cuda")
    calls = {}
    device = lib.for_capability(capability)
    results = []  # each set's own output, for its backward pass
    forward = []
    for x in sets:
        out = (torch.empty_like(o), torch.empty_like(lse))
        results.append(out)
        forward.append(lib.attention("attn_fwd", attrs, [out[0], out[1], x["q"], x["k"], x["v"], lo, hi], device))
        forward[-1]()
    calls["forward"] = rotate(forward)

    def backward(x, out, device):  # delta included, as in PyTorch's
        compute_delta, delta = kernels.delta_of(lib, out[0], x["do"])
        call = lib.attention("attn_bwd", attrs, [dq, dk, dv, x["q"], x["k"], x["v"], delta, out[1], x["do"], lo, hi], device)
        return lambda: (compute_delta(), call())
    for name, mode in ways_of(capability, cap):
        device = lib.for_capability(capability, mode)
        calls[name] = rotate([backward(x, out, device) for x, out in zip(sets, results)])
    return calls


def theirs(sets, backend, hq, hk, causal=True):
    """{forward, backward} of a PyTorch backend, and whether K and V had to be expanded for GQA."""
    def attempt(expand):
        forward, backward = [], []
        for x in sets:
            repeat = hq // hk if expand else 1
            q, k, v = (t.transpose(0, 1)[None].detach().requires_grad_() for t in
                       (x["q"], x["k"].repeat_interleave(repeat, 1), x["v"].repeat_interleave(repeat, 1)))
            grad = x["do"].transpose(0, 1)[None]

            def attend(q=q, k=k, v=v):
                with sdpa_kernel([backend]):
                    return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=hq != hk and not expand)

            def infer(attend=attend):
                with torch.no_grad():
                    attend()
            out = attend()
            forward.append(infer)
            backward.append(lambda out=out, q=q, k=k, v=v, grad=grad: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True))
            forward[-1]()
            backward[-1]()
        torch.cuda.synchronize()
        return {"forward": rotate(forward), "backward": rotate(backward)}
    try:
        return attempt(False), False
    except RuntimeError:
        if hq == hk:
            raise
        return attempt(True), True


def check_ways(sets, length, hq, hk, d, lib, causal):
    """Guards against timing wrong kernels: gradients of each way of Hopper's backward pass beside those of two kernels; relative L2 errors. And
    whether the orders repeat their bits."""
    x = sets[0]
    attrs = kernels.attention_attrs(length, length, hq, hk, d)
    lo, hi = mask_of(length, causal)
    o, lse = torch.empty_like(x["q"]), torch.empty(hq, length, device="cuda")
    lib.attention("attn_fwd", attrs, [o, lse, x["q"], x["k"], x["v"], lo, hi], lib.device)()
    compute_delta, delta = kernels.delta_of(lib, o, x["do"])
    compute_delta()

    def gradients(mode):
        out = [torch.full(s, float("nan"), device="cuda") for s in ((length, hq, d), (length, hk, d), (length, hk, d))]
        lib.attention("attn_bwd", attrs, out + [x["q"], x["k"], x["v"], delta, lse, x["do"], lo, hi], lib.for_capability(90, mode))()
        return out
    apart = gradients(kernels.APART)
    result = {"repeats": True}
    for way, mode in (("fast", kernels.FAST), ("in_order", kernels.IN_ORDER), ("late", kernels.IN_ORDER_LATE)):
        got = gradients(mode)
        result[way] = max(float((g - w).norm() / w.norm()) for g, w in zip(got, apart))
        result["repeats"] &= way == "fast" or all(torch.equal(a, b) for a, b in zip(got, gradients(mode)))
    return result


def check_agreement(sets, length, hq, hk, d, lib):
    """Guards the benchmark against timing a wrong kernel: our forward against PyTorch's, first set; relative L2 error."""
    x = sets[0]
    attrs = kernels.attention_attrs(length, length, hq, hk, d)
    lo = torch.zeros(length, dtype=torch.int32, device="cuda")
    hi = torch.arange(length, dtype=torch.int32, device="cuda")
    o, lse = torch.full_like(x["q"], float("nan")), torch.empty(hq, length, device="cuda")
    lib.attention("attn_fwd", attrs, [o, lse, x["q"], x["k"], x["v"], lo, hi], lib.device)()
    rows = slice(max(0, length - 256), length)  # the longest rows, in fp32
    s = torch.einsum("qhd,khd->hqk", x["q"][rows].float(), x["k"].float().repeat_interleave(hq // hk, 1)) * d ** -0.5
    keys = torch.arange(length, device="cuda")
    s.masked_fill_(keys[None, None] > keys[rows][None, :, None], float("-inf"))
    want = torch.einsum("hqk,khd->qhd", torch.softmax(s, -1), x["v"].float().repeat_interleave(hq // hk, 1))
    return float((o[rows].float() - want).norm() / want.norm())


def fractions(record, families):
    """What one contender reaches of another, by the name of the figure."""
    rate = lambda name: record["contenders"].get(name, {}).get("tflops")

    def put(key, a, b):
        if rate(a) and rate(b):
            record[key] = rate(a) / rate(b)
    for capability in families:
        mine = f"ltrain_sm{capability}"
        put(f"sm{capability}_forward_of_cudnn", f"{mine} forward", "cudnn forward")
        put(f"sm{capability}_forward_of_flash", f"{mine} forward", "torch_flash forward")
        for way in ("apart", "fast", "in_order", "late"):
            put(f"sm{capability}_{way}_backward_of_cudnn", f"{mine} backward_{way}", "cudnn backward")
        put(f"sm{capability}_fast_backward_of_flash", f"{mine} backward_fast", "torch_flash backward")
        for way in ("in_order", "late"):
            put(f"sm{capability}_{way}_of_apart", f"{mine} backward_{way}", f"{mine} backward_apart")
        for name in ("forward", "backward_apart"):
            put(f"sm{capability}_capped_{name}_of_plain", f"{mine} capped {name}", f"{mine} {name}")


def measure(lib, length, d, ratio, seconds, causal=True, ways=False):
    """One shape: times and TFLOP/s of everybody; ways: of Hopper's backward pass and cuDNN's alone."""
    hq, hk = heads_of(length, ratio)
    sets = sets_of(length, hq, hk, d)
    pairs = length * (length + 1) / 2 if causal else length * length
    record = {"length": length, "head_dim": d, "query_heads": hq, "kv_heads": hk, "causal": causal, "input_sets": len(sets), "contenders": {}}
    calls = {}
    families = ([90, 80] if lib.device.capability == 90 else [80])[:1 if ways else None]
    wanted = lambda name: not ways or "backward" in name
    for capability in families:
        for name, call in ours(lib, sets, length, hq, hk, d, capability, causal=causal).items():
            if wanted(name):
                calls[f"ltrain_sm{capability} {name}"] = call
        for name, call in ours(lib, sets, length, hq, hk, d, capability, cap=50.0).items() if d == 128 and causal and not ways else ():
            calls[f"ltrain_sm{capability} capped {name}"] = call
    for name, backend in list(BACKENDS.items())[:1 if ways else None]:
        try:
            mine, expanded = theirs(sets, backend, hq, hk, causal)
        except (RuntimeError, torch.OutOfMemoryError) as e:
            record["contenders"][name] = {"unavailable": str(e).splitlines()[0]}
            continue
        if expanded:
            record.setdefault("expanded_kv", []).append(name)
        for direction, call in mine.items():
            if wanted(direction):
                calls[f"{name} {direction}"] = call
    for name, t in timing.take_turns(calls, seconds).items():
        operations = (4 if name.endswith("forward") else 10) * pairs * hq * d
        record["contenders"][name] = dict(t, tflops=operations / t["median_ms"] / 1e9)
    if length <= 32768 and causal:
        record["forward_error"] = check_agreement(sets, length, hq, hk, d, lib)
    if length <= 32768 and 90 in families:
        record["ways"] = check_ways(sets, length, hq, hk, d, lib, causal)
    fractions(record, families)
    return record


def show(record):
    print(f"S {record['length']:6d} {'causal' if record['causal'] else 'full  '} d {record['head_dim']:3d} heads {record['query_heads']}/{record['kv_heads']}: " + ", ".join(
        f"{n} {c['tflops']:.0f}" for n, c in record["contenders"].items() if "tflops" in c), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--ways", action="store_true")
    options = parser.parse_args()
    lib = kernels.Kernels()
    shapes = [(n, d, ratio, True) for n in LENGTHS for d in (128, 64) for ratio in (8, 1)]
    shapes += [(16384, d, ratio, False) for d in (128, 64) for ratio in (8, 1)]
    if options.quick:
        shapes = [(n, 128, 8, True) for n in (4096, 16384)]
    if options.ways:
        shapes = [(n, d, ratio, causal) for n in (16384, 32768, 65536, 131072) for d in (128, 64) for causal, ratio in ((True, 8), (True, 1), (False, 8))]
    result = {"machine_before": timing.machine(), "shapes": []}
    each = options.seconds / len(shapes)
    for length, d, ratio, causal in shapes:
        record = measure(lib, length, d, ratio, max(1.0, each - 2.5), causal, options.ways)  # so many seconds of setting up and of rounds that go over
        result["shapes"].append(record)
        show(record)
        torch.cuda.empty_cache()
        timing.write("attention_ways.json" if options.ways else "attention.json", dict(result, machine_after=timing.machine()))
    wrong = [r for r in result["shapes"] if not r.get("forward_error", 0.0) < 8e-3]
    for r in wrong:
        print(f"WRONG: S {r['length']} d {r['head_dim']}: relative error {r['forward_error']:.1e}")
    apart = [r for r in result["shapes"] if "ways" in r and not (max(r["ways"][w] for w in ("fast", "in_order", "late")) < 8e-3 and r["ways"]["repeats"])]
    for r in apart:
        print(f"WRONG: S {r['length']} d {r['head_dim']}: ways of the backward pass differ: {r['ways']}")
    return 1 if wrong or apart else 0


if __name__ == "__main__":
    sys.exit(main())
