"""Flash attention beside PyTorch's cuDNN and flash backends: same process, same tensors, taking turns. bf16, one sequence, causal; one
length in full, too. sm_80's backward in both modes; Hopper's has one.

`--seconds N` for all of it, `--quick` for a few shapes. TFLOP/s count the mask: 4 (forward) or 10 (backward) operations per attended
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
BIGGER_THAN_CACHE = 200 << 20  # bytes of the input sets used in turn, so that no call finds its inputs in the L2 cache (50 or 60 MB)


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
    return [("backward", kernels.DETERMINISTIC)] + ([("backward_fast", kernels.FAST)] if capability == 80 and not cap else [])


def ours(lib, sets, length, hq, hk, d, capability, cap=0.0, causal=True):
    """{forward, backward, backward_fast} of ltrain's kernels for one family."""
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

    def backward(x, out, device):  # computes delta, too, as PyTorch's backward does
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
    """Returns the share of another contender's rate that each one reaches, by the name of the figure."""
    rate = lambda name: record["contenders"].get(name, {}).get("tflops")

    def put(key, a, b):
        if rate(a) and rate(b):
            record[key] = rate(a) / rate(b)
    for capability in families:
        mine = f"ltrain_sm{capability}"
        put(f"sm{capability}_forward_of_cudnn", f"{mine} forward", "cudnn forward")
        put(f"sm{capability}_forward_of_flash", f"{mine} forward", "torch_flash forward")
        put(f"sm{capability}_backward_of_cudnn", f"{mine} backward", "cudnn backward")
        put(f"sm{capability}_backward_of_flash", f"{mine} backward", "torch_flash backward")
        put(f"sm{capability}_fast_backward_of_plain", f"{mine} backward_fast", f"{mine} backward")
        for name in ("forward", "backward"):
            put(f"sm{capability}_capped_{name}_of_plain", f"{mine} capped {name}", f"{mine} {name}")


def measure(lib, length, d, ratio, seconds, causal=True):
    """One shape: times and TFLOP/s of everybody."""
    hq, hk = heads_of(length, ratio)
    sets = sets_of(length, hq, hk, d)
    pairs = length * (length + 1) / 2 if causal else length * length
    record = {"length": length, "head_dim": d, "query_heads": hq, "kv_heads": hk, "causal": causal, "input_sets": len(sets), "contenders": {}}
    calls = {}
    families = ([90, 80] if lib.device.capability == 90 else [80])
    for capability in families:
        for name, call in ours(lib, sets, length, hq, hk, d, capability, causal=causal).items():
            calls[f"ltrain_sm{capability} {name}"] = call
        for name, call in ours(lib, sets, length, hq, hk, d, capability, cap=50.0).items() if d == 128 and causal else ():
            calls[f"ltrain_sm{capability} capped {name}"] = call
    for name, backend in BACKENDS.items():
        try:
            mine, expanded = theirs(sets, backend, hq, hk, causal)
        except (RuntimeError, torch.OutOfMemoryError) as e:
            record["contenders"][name] = {"unavailable": str(e).splitlines()[0]}
            continue
        if expanded:
            record.setdefault("expanded_kv", []).append(name)
        for direction, call in mine.items():
            calls[f"{name} {direction}"] = call
    for name, t in timing.take_turns(calls, seconds).items():
        operations = (4 if name.endswith("forward") else 10) * pairs * hq * d
        record["contenders"][name] = dict(t, tflops=operations / t["median_ms"] / 1e9)
    if length <= 32768 and causal:
        record["forward_error"] = check_agreement(sets, length, hq, hk, d, lib)
    fractions(record, families)
    return record


def show(record):
    print(f"S {record['length']:6d} {'causal' if record['causal'] else 'full  '} d {record['head_dim']:3d} heads {record['query_heads']}/{record['kv_heads']}: " + ", ".join(
        f"{n} {c['tflops']:.0f}" for n, c in record["contenders"].items() if "tflops" in c), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    lib = kernels.Kernels()
    shapes = [(n, d, ratio, True) for n in LENGTHS for d in (128, 64) for ratio in (8, 1)]
    shapes += [(16384, d, ratio, False) for d in (128, 64) for ratio in (8, 1)]
    if options.quick:
        shapes = [(n, 128, 8, True) for n in (4096, 16384)]
    result = {"machine_before": timing.machine(), "shapes": []}
    each = options.seconds / len(shapes)
    for length, d, ratio, causal in shapes:
        record = measure(lib, length, d, ratio, max(1.0, each - 2.5), causal)  # leaves 2.5 s for setting up and for rounds that take longer
        result["shapes"].append(record)
        show(record)
        torch.cuda.empty_cache()
        timing.write("attention.json", dict(result, machine_after=timing.machine()))
    wrong = [r for r in result["shapes"] if not r.get("forward_error", 0.0) < 8e-3]
    for r in wrong:
        print(f"WRONG: S {r['length']} d {r['head_dim']}: relative error {r['forward_error']:.1e}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
