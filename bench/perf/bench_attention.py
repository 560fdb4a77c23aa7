#!/usr/bin/env python3
"""CPU attention beside our fp32 product (sgemm, 2048 cubed) and PyTorch's SDPA, and with sinks and soft caps beside the plain
kernels, in processor seconds; wide heads beside those of 128. bench_attention.py BUILD [peers] [shapes] [long] [bf16] [kinds] [widths]:
parts, default all. bf16's have no marks: beside sgemm they tell whether AMX is used. LTRAIN_BENCH_ISA=portable, avx2 or avx512 takes
these kernels instead of the processor's best (sgemm remains the processor's)."""
import os, sys, time

import bench

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

GIGA = 1e9
HEADS = 8, 2  # query, KV
PARTS = {  # part: heads, rounds, beside PyTorch, type, cases (tokens, head dim, mask, marks of forward and backward beside sgemm)
    "peers": (HEADS, 3, True, "f32", [(8192, 128, "causal", 0.81, 0.79), (8192, 64, "causal", 0.79, 0.79)]),
    "shapes": (HEADS, 5, False, "f32", [(8192, d, "causal", 0.73, 0.73) for d in (80, 96, 256, 512)] +
               [(8192, d, mask, 0.73, 0.73) for d in (64, 128) for mask in ("window1024", "documents2048")]),
    "long": ((4, 1), 1, False, "f32", [(32768, 128, "causal", 0.81, 0.79), (32768, 64, "causal", 0.79, 0.79)]),
    "bf16": (HEADS, 5, True, "bf16", [(8192, d, "causal", None, None) for d in (64, 128)]),
}
KINDS = [(8192, 64, mask, dtype) for mask in ("window128", "causal") for dtype in ("f32", "bf16")]  # ratios to plain attention per attended pair
KINDS_MARK = 0.85
WIDTHS_MARK = 0.80  # required share of the rate at head dim 128
BESIDE_SDPA = {128: (1.25, 1.35), 64: (1.25, 1.5)}  # forward, forward + backward


def peer(tokens, d, dtype, threads):
    """Functions that return seconds: SDPA's forward without gradients, and forward and backward."""
    import torch
    torch.set_num_threads(threads)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (torch.randn(1, h, tokens, d, dtype={"f32": torch.float32, "bf16": torch.bfloat16}[dtype], requires_grad=True) for h in (HEADS[0], HEADS[1], HEADS[1]))
    go = torch.randn_like(q)

    def forward():
        with torch.no_grad():
            t = time.perf_counter()
            sdpa(q, k, v, is_causal=True, enable_gqa=True)
            return time.perf_counter() - t

    def both():
        t = time.perf_counter()
        torch.autograd.grad(sdpa(q, k, v, is_causal=True, enable_gqa=True), (q, k, v), go)
        return time.perf_counter() - t

    return {"SDPA forward": forward, "SDPA both": both}


def case(worker, threads, heads, rounds, beside_peer, dtype, tokens, d, mask, forward_mark, backward_mark):
    worker(f"case {tokens} {d} {mask} {dtype}")
    flops = {}

    def ours(what):
        answer = worker(what)
        flops[what] = answer["flops"]
        return answer["seconds"]

    contenders = {k: (lambda k=k: ours(k)) for k in ("sgemm", "forward", "backward")}
    if beside_peer:
        try:
            contenders.update(peer(tokens, d, dtype, threads))
        except ImportError:
            bench.say("no PyTorch: bench/perf/peers.sh")
    seconds = bench.medians(bench.in_turn(contenders, rounds))
    rate = {k: flops[k] / seconds[k] / GIGA for k in flops}
    name = f"{tokens} tokens, {heads[0]}/{heads[1]} heads of {d}, {mask}{', bf16' * (dtype == 'bf16')}"
    beside, marks = {"sgemm": rate["sgemm"]}, {"sgemm": forward_mark} if forward_mark else {}
    of_peer = BESIDE_SDPA[d] if dtype == "f32" and beside_peer else (None, None)
    if "SDPA both" in seconds:
        beside["PyTorch SDPA"] = flops["forward"] / seconds["SDPA forward"] / GIGA
        if of_peer[0]:
            marks["PyTorch SDPA"] = of_peer[0]
    bench.report(f"attention forward, {name}", rate["forward"], beside, "GFLOP/s", marks)
    bench.report(f"attention backward, {name}", rate["backward"], {"sgemm": rate["sgemm"]}, "GFLOP/s", {"sgemm": backward_mark} if backward_mark else {})
    if "SDPA both" in seconds:
        bench.report(f"attention forward + backward, {name}", seconds["forward"] + seconds["backward"], {"PyTorch SDPA": seconds["SDPA both"]},
                     "s", {"PyTorch SDPA": of_peer[1]} if of_peer[1] else {}, better="lower")


def kinds(build):
    worker = bench.Worker(os.path.join(build, "bench", "attention_bench"), "8", "1", OMP_NUM_THREADS="1")
    for tokens, d, mask, dtype in KINDS:
        worker(f"case {tokens} {d} {mask} {dtype}")
        for what in ("forward", "backward"):
            names = [what, "sinks " + what, "capped " + what]
            seconds = bench.medians(bench.in_turn({k: (lambda k=k: worker(k)["cpu_seconds"]) for k in names}, 5))
            for name in names[1:]:
                bench.report(f"attention {name}, {tokens} tokens, 8/1 heads of {d}, {mask}, {dtype}", seconds[name], {"plain": seconds[what]}, "s",
                             {"plain": KINDS_MARK}, better="lower")
    worker.close()


def widths(build):
    """Head dims 256 and 512 beside 128, a thread's FLOP/s."""
    workers = {d: bench.Worker(os.path.join(build, "bench", "attention_bench"), "2", "1", OMP_NUM_THREADS="1") for d in (128, 256, 512)}
    for dtype in ("f32", "bf16"):
        for d, worker in workers.items():
            worker(f"case 4096 {d} causal {dtype}")
        for what in ("forward", "backward"):
            flops = {}

            def run(d, what=what, flops=flops):
                answer = workers[d](what)
                flops[d] = answer["flops"]
                return answer["cpu_seconds"]

            seconds = bench.medians(bench.in_turn({d: (lambda d=d: run(d)) for d in workers}, 5))
            rate = {d: flops[d] / seconds[d] / GIGA for d in workers}
            for d in (256, 512):
                bench.report(f"attention {what}, 4096 tokens, 2/1 heads of {d}, causal, {dtype}", rate[d], {"heads of 128": rate[128]}, "GFLOP/s",
                             {"heads of 128": WIDTHS_MARK})
    for worker in workers.values():
        worker.close()


def main():
    threads = len(os.sched_getaffinity(0))
    for part in sys.argv[2:] or [*PARTS, "kinds", "widths"]:
        if part in ("kinds", "widths"):
            {"kinds": kinds, "widths": widths}[part](sys.argv[1])
            continue
        heads, rounds, beside_peer, dtype, cases = PARTS[part]
        worker = bench.Worker(os.path.join(sys.argv[1], "bench", "attention_bench"), *map(str, heads), OMP_NUM_THREADS=str(threads))
        for c in cases:
            case(worker, threads, heads, rounds, beside_peer, dtype, *c)
        worker.close()


if __name__ == "__main__":
    main()
