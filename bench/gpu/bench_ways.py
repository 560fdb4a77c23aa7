"""Candidates for Hopper's backward attention (bench/gpu/ways, built by tools/gpu-check.sh bench-ways) beside the kernel and cuDNN: same
process, same tensors, taking turns. bf16, one sequence, causal, head dim 64.

`--seconds N` for all of it. Their gradients must be the kernel's: dQ in its bits, as far as dK and dV are added in its order (a query
head for each KV head) those, too, else nearly. Writes ways.json."""
import argparse
import glob
import os
import statistics
import sys
import torch

import bench_attention
import kernels
import timing

DIM = 64
LENGTHS = [16384, 32768, 65536, 131072, 4096, 8192]  # the lengths that decide come first
HEADS = [(32, 8), (64, 64), (32, 32)]
NEAR = 1e-4  # relative L2 error of fp32 sums that are added in another order


def backward(lib, x, out, gradients):
    """A function that enqueues a backward pass, delta included as in PyTorch's."""
    length, hq, _ = x["q"].shape
    hk = x["k"].shape[1]
    lo, hi = bench_attention.mask_of(length, True)
    compute_delta, delta = kernels.delta_of(lib, out[0], x["do"])
    call = lib.attention("attn_bwd", kernels.attention_attrs(length, length, hq, hk, DIM),
                         [*gradients, x["q"], x["k"], x["v"], delta, out[1], x["do"], lo, hi], lib.device)
    return lambda: (compute_delta(), call())


def forward(lib, x):
    length, hq, _ = x["q"].shape
    lo, hi = bench_attention.mask_of(length, True)
    o, lse = torch.empty_like(x["q"]), torch.empty(hq, length, device="cuda")
    lib.attention("attn_fwd", kernels.attention_attrs(length, length, hq, x["k"].shape[1], DIM), [o, lse, x["q"], x["k"], x["v"], lo, hi], lib.device)()
    return o, lse


def compare(want, call, gradients, same_order):
    """Compares two runs of a candidate with the kernel's gradients, and says whether they are right."""
    names = ("dq", "dk", "dv")

    def run():
        for g in gradients:
            g.fill_(float("nan"))
        call()
        return [g.clone() for g in gradients]
    got = run()
    repeated = all(torch.equal(a, b) for a, b in zip(got, run()))
    equal = [n for n, a, b in zip(names, got, want) if torch.equal(a, b)]
    errors = {n: float((a - b).norm() / b.norm()) for n, a, b in zip(names, got, want)}
    right = repeated and all(e < NEAR for e in errors.values()) and set(names if same_order else ("dq",)) <= set(equal)
    return {"right": right, "repeated": repeated, "equal": equal, "errors": errors}


def measure(libs, length, hq, hk, seconds):
    sets = bench_attention.sets_of(length, hq, hk, DIM)
    outs = [forward(libs["kernel"], x) for x in sets]
    gradients = [torch.empty(length, h, DIM, device="cuda") for h in (hq, hk, hk)]
    calls = {name: [backward(lib, x, out, gradients) for x, out in zip(sets, outs)] for name, lib in libs.items()}
    record = {"length": length, "query_heads": hq, "kv_heads": hk, "input_sets": len(sets), "agreement": {}, "contenders": {}}
    calls["kernel"][0]()
    want = [g.clone() for g in gradients]
    for name in libs:
        if name != "kernel":
            record["agreement"][name] = compare(want, calls[name][0], gradients, hq == hk)
    del want
    turns = {name: bench_attention.rotate(c) for name, c in calls.items()}
    try:
        theirs, _ = bench_attention.theirs(sets, bench_attention.BACKENDS["cudnn"], hq, hk)
        turns["cudnn"] = theirs["backward"]
    except (RuntimeError, torch.OutOfMemoryError) as e:
        record["contenders"]["cudnn"] = {"unavailable": str(e).splitlines()[0]}
    operations = 10 * length * (length + 1) / 2 * hq * DIM
    for name, t in timing.take_turns(turns, seconds).items():
        record["contenders"][name] = dict(t, tflops=operations / t["median_ms"] / 1e9)
    rate = lambda name: record["contenders"][name].get("tflops")
    for name in turns:
        if name != "kernel":
            record[f"{name}_of_kernel"] = rate(name) / rate("kernel")
    return record


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=240)
    options = parser.parse_args()
    libs = {"kernel": kernels.Kernels()}
    for path in sorted(glob.glob(os.path.join(kernels.BUILD, "ways", "libltrain-cuda-*.so"))):
        libs[os.path.basename(path)[len("libltrain-cuda-"):-len(".so")]] = kernels.Kernels(path)
    result = {"machine_before": timing.machine(), "shapes": []}
    shapes = [(n, *heads) for n in LENGTHS for heads in HEADS]
    for length, hq, hk in shapes:
        record = measure(libs, length, hq, hk, max(1.0, options.seconds / len(shapes) - 2.5))
        result["shapes"].append(record)
        print(f"S {length:6d} heads {hq}/{hk}: " + ", ".join(f"{n} {c['tflops']:.0f}" for n, c in record["contenders"].items() if "tflops" in c)
              + "".join(f"; {n}: {', '.join(a['equal'])} equal" for n, a in record["agreement"].items()), flush=True)
        torch.cuda.empty_cache()
        timing.write("ways.json", dict(result, machine_after=timing.machine()))
    wrong = [(r, n, a) for r in result["shapes"] for n, a in r["agreement"].items() if not a["right"]]
    for r, n, a in wrong:
        print(f"WRONG: {n} at S {r['length']} heads {r['query_heads']}/{r['kv_heads']}: {a}")
    for name in libs:
        gains = [r[f"{name}_of_kernel"] for r in result["shapes"] if r["length"] >= 16384 and f"{name}_of_kernel" in r]
        if gains:
            print(f"{name}: {min(gains):.3f} to {max(gains):.3f} of the kernel's rate at 16k to 128k, median {statistics.median(gains):.3f}")
    return 1 if wrong or len(libs) == 1 else 0


if __name__ == "__main__":
    sys.exit(main())
