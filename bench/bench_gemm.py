#!/usr/bin/env python3
"""Matrix products of the 25m preset's step on a chunk of 2048 rows, beside the same call of OpenBLAS with its own threads."""
import os, sys

import bench

ROWS, SECONDS, GIGA = 2048, 1.0, 1e9
WEIGHTS = {"q, o": (512, 512), "k, v": (128, 512), "gate, up": (1408, 512), "down": (512, 1408), "head": (8192, 512)}  # outputs, inputs


def shapes():
    """Name to (m, n, k, A is transposed, B is transposed, accumulate)."""
    for name, (o, i) in WEIGHTS.items():
        yield f"{name} forward", (ROWS, o, i, 0, 1, 0)
        yield f"{name} input gradient", (ROWS, i, o, 0, 0, 0)
        yield f"{name} weight gradient", (o, i, ROWS, 1, 0, 1)
    yield "one row", (1, 4096, 1024, 0, 1, 0)
    yield "k = 64", (4096, 1024, 64, 0, 1, 0)


def main():
    threads = len(os.sched_getaffinity(0))
    worker = bench.Worker(os.path.join(sys.argv[1], "bench", "gemm_bench"), OMP_NUM_THREADS=str(threads))
    for name, shape in shapes():
        line = " ".join(map(str, shape))
        flops = 2 * shape[0] * shape[1] * shape[2]
        rounds = max(5, min(101, int(SECONDS * 50 * GIGA / flops)))
        seconds = bench.medians(bench.in_turn({k: (lambda k=k: worker(f"{k} {line}")["seconds"]) for k in ("ours", "openblas")}, rounds))
        bench.report(f"product, {name}, {shape[0]} x {shape[1]} x {shape[2]}", flops / seconds["ours"] / GIGA,
                     {"OpenBLAS": flops / seconds["openblas"] / GIGA}, "GFLOP/s")
    worker.close()


if __name__ == "__main__":
    main()
