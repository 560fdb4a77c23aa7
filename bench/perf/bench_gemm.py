#!/usr/bin/env python3
"""Matrix products of training steps, beside PyTorch's; where the processor has AMX, those of bf16 matrices, beside the same product by the tiles of fp32 ones and PyTorch's. bench_gemm.py BUILD [fp32] [bf16]: parts, default all."""
import os, sys, time

import bench

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

SECONDS, GIGA = 1.0, 1e9
SPINS = {"GOMP_SPINCOUNT": "1000"}  # for ltrain: threads that spin longer would take processors from the next contender
MODELS = {  # rows of a chunk; weights: outputs, inputs
    "25m": (2048, {"q, o": (512, 512), "k, v": (128, 512), "gate, up": (1408, 512), "down": (512, 1408), "head": (8192, 512)}),
    "1b": (4096, {"q, o": (2048, 2048), "k, v": (512, 2048), "gate, up": (8192, 2048), "down": (2048, 8192)}),
}


def shapes(model):
    """Name to (m, n, k, A is transposed, B is transposed, accumulate)."""
    rows, weights = MODELS[model]
    for name, (o, i) in weights.items():
        yield f"{name} forward", (rows, o, i, 0, 1, 0)
        yield f"{name} input gradient", (rows, i, o, 0, 0, 0)
        yield f"{name} weight gradient", (o, i, rows, 1, 0, 1)


def rounds(flops, rate):
    return max(5, min(101, int(SECONDS * rate / flops)))


def fp32(worker, torch):
    for name, shape in [*shapes("25m"), ("one row", (1, 4096, 1024, 0, 1, 0)), ("k = 64", (4096, 1024, 64, 0, 1, 0))]:
        line = " ".join(map(str, shape))
        flops = 2 * shape[0] * shape[1] * shape[2]
        contenders = {"ours": lambda: worker(f"ours {line}")["seconds"]}
        if torch:
            contenders["PyTorch"] = peer(torch, torch.float32, *shape)
        seconds = bench.medians(bench.in_turn(contenders, rounds(flops, 50 * GIGA)))
        rate = {k: flops / s / GIGA for k, s in seconds.items()}
        bench.report(f"product, {name}, {shape[0]} x {shape[1]} x {shape[2]}", rate.pop("ours"), rate, "GFLOP/s")


def open_peer(threads):
    """PyTorch, or None."""
    os.environ.update(SPINS)
    try:
        import torch
        torch.set_num_threads(threads)
        return torch
    except ImportError:
        return bench.say("no PyTorch: bench/perf/peers.sh")


def peer(torch, dtype, m, n, k, ta, tb, accumulate):
    """A function that returns seconds: C in the operands' type, of a weight gradient as well, as PyTorch has it, and not added to anything."""
    a, b = (torch.randn(*s, dtype=dtype) for s in ((k, m) if ta else (m, k), (n, k) if tb else (k, n)))
    a, b, c = a.T if ta else a, b.T if tb else b, torch.empty(m, n, dtype=dtype)

    def run():
        t = time.perf_counter()
        torch.matmul(a, b, out=c)
        return time.perf_counter() - t

    return run


def bf16(worker, torch):
    cases = [("", "square", (2048, 2048, 2048, 0, 1, 0)), *((f"{m}, ", *s) for m in MODELS for s in shapes(m))]
    for model, name, shape in cases:
        line = " ".join(map(str, shape))
        flops = 2 * shape[0] * shape[1] * shape[2]
        contenders = {k: (lambda k=k: worker(f"{k} {line} bf16")["seconds"]) for k in ("ours", "widened")}
        if torch:
            contenders["PyTorch"] = peer(torch, torch.bfloat16, *shape)
        seconds = bench.medians(bench.in_turn(contenders, rounds(flops, 200 * GIGA)))
        rate = {k: flops / s / GIGA for k, s in seconds.items()}
        bench.report(f"bf16 product, {model}{name}, {shape[0]} x {shape[1]} x {shape[2]}", rate.pop("ours"), rate, "GFLOP/s")


def main():
    parts = sys.argv[2:] or ["fp32", "bf16"]
    threads = len(os.sched_getaffinity(0))
    worker = bench.Worker(os.path.join(sys.argv[1], "bench", "gemm_bench"), OMP_NUM_THREADS=str(threads), **SPINS)
    torch = open_peer(threads)
    if "fp32" in parts:
        fp32(worker, torch)
    if "bf16" in parts and worker("amx")["amx"]:
        bf16(worker, torch)
    worker.close()


if __name__ == "__main__":
    main()
