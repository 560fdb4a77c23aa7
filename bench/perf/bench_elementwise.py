#!/usr/bin/env python3
"""Element-wise ops beside a plain copy in the same run, in GB/s: operands within a core's own caches, and beyond them. --before WORKER
measures another build's elementwise_bench in turn with this one's."""
import argparse, os

import bench

OPS = "add accum bias bias_grad norm norm_grad rope swiglu swiglu_grad gelu gelu_grad attn_delta loss cast embed embed_grad sumsq fill".split()
ONE_TYPE = {"accum": "fp32", "loss": "fp32", "sumsq": "fp32", "fill": "fp32", "cast": "bf16"}
SIZES = {"256K": 256 << 10, "16M": 16 << 20}  # bytes of an operand
ROUNDS, GIGA = 5, 1e9


def rate(worker, line):
    answer = worker(line)
    return answer["bytes"] / answer["seconds"] / GIGA


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--before", metavar="WORKER")
    a = p.parse_args()
    threads = str(len(os.sched_getaffinity(0)))
    ours = bench.Worker(os.path.join(a.build, "bench", "elementwise_bench"), OMP_NUM_THREADS=threads)
    before = bench.Worker(a.before, OMP_NUM_THREADS=threads) if a.before else None
    for size, n in SIZES.items():
        for op in OPS:
            for dtype in [ONE_TYPE[op]] if op in ONE_TYPE else ["fp32", "bf16"]:
                line = f"{op} {dtype} {n}"
                contenders = {"ours": lambda: rate(ours, line), "copy": lambda: rate(ours, f"stream fp32 {n}")}
                if before:
                    contenders["before"] = lambda: rate(before, line)
                rates = bench.medians(bench.in_turn(contenders, ROUNDS))
                bench.report(f"{op}, {dtype}, {size}", rates.pop("ours"), rates, "GB/s")
    ours.close()
    if before:
        before.close()


if __name__ == "__main__":
    main()
