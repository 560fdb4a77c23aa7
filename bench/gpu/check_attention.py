"""Flash attention on the GPU against fp64 in PyTorch: masks, GQA, head dims, values of another width, odd lengths, both families of kernels, and
sm_80's both backward modes. `--small`: few shapes, for compute-sanitizer. Prints one line per shape and exits 1 if any is wrong."""
import sys
import torch

import kernels
import timing

RECORDS = []
MODES = {kernels.DETERMINISTIC: "fixed", kernels.FAST: "fast "}

# Relative L2 errors. Rounding P, dS and o to bf16 errs by 2^-8 / sqrt(3) = 2.3e-3 each, with random signs; inputs are exact.
TOLERANCE = {"o": 4e-3, "lse": 2e-6, "dq": 6e-3, "dk": 6e-3, "dv": 4e-3}


def mask_of(name, sq, sk):
    """lo, hi (inclusive, global key numbers), q0 and k0 of a named mask."""
    q = torch.arange(sq)
    zero = torch.zeros(sq, dtype=torch.int64)
    if name == "causal":  # the last query sees the last key
        return zero, q + (sk - sq), sk - sq, 0
    if name == "full":
        return zero, zero + sk - 1, 0, 0
    if name == "window":
        return (q + (sk - sq) - 63).clamp(min=0), q + (sk - sq), sk - sq, 0
    if name == "documents":  # of 100 tokens
        return q // 100 * 100, q, 0, 0
    if name == "ring":  # keys that begin at 1000, queries at 1000 - sq/2: the first half has none
        return zero, q + 1000 - sq // 2, 1000 - sq // 2, 1000
    if name == "empty":
        return zero + 5, zero + 4, 0, 0
    raise ValueError(name)


def reference(q, k, v, do, lo, hi, k0, scale, cap):
    """o, lse, dq, dk, dv in fp64; q [sq,hq,d], k [sk,hk,d], v [sk,hk,w]. Delta is that of o in bf16: with few keys it cancels most of dP, and what
    is left would be o's rounding."""
    q, k, v, do = (x.double() for x in (q, k, v, do))
    group = q.shape[1] // k.shape[1]
    wide_k, wide_v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    of_group = lambda x: x.view(x.shape[0], k.shape[1], group, x.shape[2]).sum(2)
    keys = torch.arange(k.shape[0], device=q.device) + k0
    allowed = (keys[None] >= lo[:, None]) & (keys[None] <= hi[:, None])
    s = torch.einsum("qhd,khd->hqk", q, wide_k) * scale
    slope = 1 - torch.tanh(s / cap) ** 2 if cap else 1.0
    s = cap * torch.tanh(s / cap) if cap else s
    s = s.masked_fill(~allowed, float("-inf"))
    lse = torch.logsumexp(s, -1)
    p = torch.exp(s - torch.where(allowed.any(-1), lse, torch.zeros_like(lse))[..., None])
    o = torch.einsum("hqk,khd->qhd", p, wide_v)
    delta = (o.bfloat16().double() * do).sum(-1).T
    ds = p * (torch.einsum("qhd,khd->hqk", do, wide_v) - delta[..., None]) * scale * slope
    return {"o": o, "lse": lse, "dq": torch.einsum("hqk,khd->qhd", ds, wide_k),
            "dk": of_group(torch.einsum("hqk,qhd->khd", ds, q)), "dv": of_group(torch.einsum("hqk,qhd->khd", p, do))}


def error(got, want):
    """Relative L2 error; NaN and misplaced infinities count as infinite."""
    infinite = torch.isinf(want)
    if not torch.equal(torch.isinf(got), infinite) or bool(torch.isnan(got).any()):
        return float("inf")
    got, want = got.double()[~infinite], want[~infinite]
    return float((got - want).norm() / want.norm().clamp(min=1e-30))


def nan_like(*shape, dtype=torch.float32):
    return torch.full(shape, float("nan"), dtype=dtype, device="cuda")


def run_ours(lib, shape, x, lo, hi, offsets, device, stored, accumulate_from, cap):
    """Runs the kernels and returns their results; delta comes from `stored`, the reference's o in bf16."""
    sq, sk, hq, hk, d = shape
    w = x["v"].shape[2]
    attrs = kernels.attention_attrs(sq, sk, hq, hk, d, *offsets, accumulate=int(accumulate_from is not None), cap=cap, value_dim=w)
    o, lse = nan_like(sq, hq, w, dtype=torch.bfloat16), nan_like(hq, sq)
    dq = nan_like(sq, hq, d)
    dk, dv = [t.clone() for t in accumulate_from] if accumulate_from else (nan_like(sk, hk, d), nan_like(sk, hk, w))
    lib.attention("attn_fwd", attrs, [o, lse, x["q"], x["k"], x["v"], lo, hi], device)()
    compute_delta, delta = kernels.delta_of(lib, stored, x["do"])
    compute_delta()
    lib.attention("attn_bwd", attrs, [dq, dk, dv, x["q"], x["k"], x["v"], delta, lse, x["do"], lo, hi], device)()
    torch.cuda.synchronize()
    return {"o": o, "lse": lse, "dq": dq, "dk": dk, "dv": dv}


def check(lib, shape, mask, accumulate=False, cap=0.0, value_dim=0):
    """True if every family and mode agrees with the reference and the deterministic modes repeat their bits."""
    sq, sk, hq, hk, d = shape
    w = value_dim or d
    g = torch.Generator(device="cuda").manual_seed(sq * 7919 + sk + d)
    draw = lambda *s: torch.randn(*s, generator=g, device="cuda", dtype=torch.float32).bfloat16()
    x = {"q": draw(sq, hq, d), "k": draw(sk, hk, d), "v": draw(sk, hk, w), "do": draw(sq, hq, w)}
    lo, hi, q0, k0 = mask_of(mask, sq, sk)
    lo, hi = lo.int().cuda(), hi.int().cuda()
    want = reference(x["q"], x["k"], x["v"], x["do"], lo, hi, k0, d ** -0.5, cap)
    start = [torch.randn(sk, hk, n, generator=g, device="cuda") for n in (d, w)] if accumulate else None
    if accumulate:
        want["dk"], want["dv"] = want["dk"] + start[0].double(), want["dv"] + start[1].double()
    ok = True
    families = sorted({80, lib.device.capability if lib.device.capability == 90 else 80})
    for capability in families:
        for mode in [kernels.DETERMINISTIC] + ([kernels.FAST] if capability == 80 or max(d, w) > 128 else []):
            device = lib.for_capability(capability, mode)
            got = run_ours(lib, shape, x, lo, hi, (q0, k0), device, want["o"].bfloat16().contiguous(), start, cap)
            again = run_ours(lib, shape, x, lo, hi, (q0, k0), device, want["o"].bfloat16().contiguous(), start, cap)
            errors = {n: error(got[n], want[n]) for n in want}
            # where the expected result is exactly zero, a relative error means nothing: the result must be (nearly) zero
            wrong = [n for n in want if not errors[n] <= TOLERANCE[n] and not
                     (float(want[n][~torch.isinf(want[n])].norm()) < 1e-6 and bool(torch.isfinite(got[n].float()).all())
                      and float(got[n].float().norm()) < 1e-2)]
            same = [n for n in want if torch.equal(got[n], again[n])]
            needed = ["o", "lse"] if mode == kernels.FAST else list(want)
            moved = [n for n in needed if n not in same]
            good = not wrong and not moved
            ok = ok and good
            RECORDS.append({"shape": shape, "mask": mask, "value_dim": w, "accumulate": accumulate, "cap": cap, "capability": capability, "mode": mode,
                            "errors": errors, "wrong": wrong, "not_repeated": moved})
            print(f"{'ok ' if good else 'BAD'} sm_{capability} {MODES[mode]} sq {sq} sk {sk} heads {hq}/{hk} d {d}{f'/{w}' if w != d else ''} {mask}"
                  f"{' accumulate' if accumulate else ''}{f' cap {cap:g}' if cap else ''}: " + " ".join(f"{n} {e:.1e}" for n, e in errors.items())
                  + (f" WRONG {wrong}" if wrong else "") + (f" NOT REPEATED {moved}" if moved else ""))
    return ok


def shapes(small):
    if small:
        return [((33, 33, 2, 1, 64), "causal"), ((130, 130, 2, 2, 128), "causal"), ((70, 150, 4, 1, 128), "window")]
    causal = [((n, n, 4, 2, d), "causal") for d in (64, 128) for n in (1, 2, 63, 64, 65, 127, 128, 129, 191, 193, 257, 640, 1111)]
    dims = [((n, n, 2, 1, d), "causal") for d in (32, 40, 80, 96, 112, 160, 192, 256, 320, 512) for n in (65, 300)]
    masks = [((n, m, 8, h, d), mask) for mask in ("full", "window", "causal") for d in (64, 128)
             for n, m, h in ((1, 300, 1), (77, 333, 8), (300, 300, 2))]
    special = [((n, n, 4, 1, d), mask) for mask in ("documents", "ring", "empty") for d in (64, 128) for n in (130, 517)]
    large = [((4096, 4096, 4, 2, d), "causal") for d in (64, 128)]
    return causal + dims + masks + special + large


def main():
    lib = kernels.Kernels()
    small = "--small" in sys.argv
    widest = 512 if lib.device.shared_bytes >= 163 << 10 else 256
    results = [check(lib, shape, mask) for shape, mask in shapes(small) if shape[-1] <= widest]
    if not small:
        results += [check(lib, (200, 260, 4, 2, d), "causal", accumulate=True) for d in (64, 128, 256)]
        results += [check(lib, (n, n, 4, 2, d), mask, cap=cap) for n in (65, 300, 1111) for d in (64, 128, 256)
                    for mask, cap in (("window", 2.0), ("causal", 50.0))]
        results += [check(lib, (n, m, 4, 2, d), mask, value_dim=w, accumulate=mask == "ring", cap=cap)
                    for n, m, mask, cap in ((65, 65, "causal", 0.0), (300, 410, "window", 0.0), (517, 517, "documents", 0.0),
                                            (517, 517, "ring", 0.0), (300, 300, "causal", 3.0))
                    for d, w in ((192, 128), (64, 128), (128, 64), (72, 96))]
        if widest == 512:
            results += [check(lib, (n, n, 2, 1, d), "causal", value_dim=w) for n in (65, 300) for d, w in ((320, 128), (128, 320))]
    if not small:
        timing.write("attention_errors.json", {"machine": timing.machine(), "records": RECORDS})
    print(f"attention: {sum(results)} of {len(results)} shapes agree with fp64")
    return 0 if all(results) else 1


if __name__ == "__main__":
    if "--help" in sys.argv:
        print(__doc__)
        sys.exit()
    sys.exit(main())
