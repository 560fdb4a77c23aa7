#!/usr/bin/env python3
"""Host AdamW beside the memory's limit (the same reads and writes without arithmetic), PyTorch's fused AdamW and DeepSpeed's CPUAdam."""
import os, sys, time

import bench

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

N = 32_000_000  # parameters, 16 bytes each for every contender: far more than caches hold
ROUNDS = 11
GIGA = 1e9


def torch_state(torch):
    p = torch.nn.Parameter(torch.randn(N) * 0.02)
    p.grad = torch.randn(N) * 1e-3
    return p


def timed(f):
    t = time.perf_counter()
    f()
    return time.perf_counter() - t


def peers(threads):
    """Name to a function that makes one update and returns seconds; those that are installed."""
    found = {}
    try:
        import torch
    except ImportError:
        bench.say("no PyTorch: bench/perf/peers.sh")
        return found
    torch.set_num_threads(threads)
    fused = torch.optim.AdamW([torch_state(torch)], lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    found["PyTorch fused"] = lambda: timed(fused.step)
    try:
        from deepspeed.ops.adam import DeepSpeedCPUAdam
        deep = DeepSpeedCPUAdam([torch_state(torch)], lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
        found["DeepSpeed CPUAdam"] = lambda: timed(deep.step)
    except Exception as e:  # DeepSpeed is compiled on first use, which can fail in many ways
        bench.say(f"no DeepSpeed CPUAdam: {e}")
    return found


def main():
    threads = len(os.sched_getaffinity(0))
    ours = bench.Worker(os.path.join(sys.argv[1], "bench", "adamw_bench"), str(N), OMP_NUM_THREADS=str(threads))
    contenders = {k: (lambda k=k: ours(k)["seconds"]) for k in ("stream", "fp32", "bf16")}
    others = peers(threads)
    seconds = bench.medians(bench.in_turn({**contenders, **others}, ROUNDS, warm=2))
    ours.close()
    beside = {"fp32 moments": N / seconds["fp32"] / GIGA, **{k: N / seconds[k] / GIGA for k in others}}
    bench.report("AdamW, bf16 moments", N / seconds.pop("bf16") / GIGA, beside, "G parameters/s", {k: 1.4 for k in beside})
    rate = {k: 28 * N / s / GIGA for k, s in seconds.items()}
    bench.report("AdamW, fp32 moments", rate.pop("fp32"), rate, "GB/s (28 bytes a parameter)", {k: 0.95 if k == "stream" else 1.0 for k in rate})


if __name__ == "__main__":
    main()
