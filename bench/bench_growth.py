#!/usr/bin/env python3
"""How a step's time and memory grow with the sequence: seconds fitted by a*S + b*S^2, and peak resident memory beside the plan's within fixed budgets.

bench_growth.py BUILD [ROUNDS [MODEL]]: 3 rounds of `tiny` (4k to 64k tokens) by default; `25m` (4k to 32k) takes nine minutes a round. Each run stands between
products of OpenBLAS (2048 cubed), and its seconds are counted in theirs too, since a virtual machine's speed drifts within seconds."""
import json, os, re, statistics, subprocess, sys, tempfile

import bench

CUBE, CUBES = "openblas 2048 2048 2048 0 0 0", 5
LENGTHS = {"tiny": {4096: 12, 8192: 8, 16384: 4, 32768: 3, 65536: 2}, "25m": {4096: 4, 8192: 3, 16384: 2, 32768: 2}}  # tokens: steps
BUDGET = {"tiny": ["--device-mem", "160M", "--host-mem", "32M"], "25m": ["--device-mem", "400M", "--host-mem", "100M"]}
MARK = 0.05       # of the fit
OUTSIDE = 20, 3   # bytes a token (engine/batch.c), percent: what a peak may be beyond the plan and what was resident before the first step


def run(build, model, tokens, steps, placement, where):
    """Seconds of the steps after the first, planned bytes, bytes outside the plan, peak bytes."""
    text, out = f"{where}/text", f"{where}/run{len(os.listdir(where))}"
    with open(text, "w") as f:
        f.write("".join(chr(97 + i * i % 26) for i in range(4 * tokens)))
    made = subprocess.run([f"{build}/src/cli/ltrain", "--model", model, "--data", text, "--seq-len", str(tokens), *placement, "--steps", str(steps), "--verbose", "--out", out],
                          capture_output=True, text=True)
    if made.returncode:
        sys.exit(f"{made.args}: {made.stderr}")
    memory = re.search(r"^memory of rank 0: planned (\d+) \+ (\d+) outside the plan; peak resident (\d+)$", made.stdout, re.M)
    return [json.loads(line)["seconds"] for line in open(f"{out}/metrics.jsonl")][1:], *map(int, memory.groups())


def fit(seconds):
    """a and b of least relative squares, and the largest relative deviation of a length's seconds."""
    rows = [(S / y, S * S / y) for S, y in seconds.items()]
    aa, ab, bb = (sum(r[i] * r[j] for r in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a1, b1 = sum(r[0] for r in rows), sum(r[1] for r in rows)
    a, b = (a1 * bb - b1 * ab) / (aa * bb - ab * ab), (b1 * aa - a1 * ab) / (aa * bb - ab * ab)
    return a, b, {S: (a * S + b * S * S) / y - 1 for S, y in seconds.items()}


def main():
    build, rounds = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3
    model = sys.argv[3] if len(sys.argv) > 3 else "tiny"
    sgemm = bench.Worker(f"{build}/bench/gemm_bench", OMP_NUM_THREADS=str(len(os.sched_getaffinity(0))), OMP_WAIT_POLICY="passive")
    cubes = lambda: [sgemm(CUBE)["seconds"] for _ in range(CUBES)]
    seconds, relative, memory = {}, {}, {}
    with tempfile.TemporaryDirectory(dir=".") as where:
        for i in range(rounds):
            for tokens, steps in list(LENGTHS[model].items())[:: -1 if i % 2 else 1]:
                before = cubes()
                step = run(build, model, tokens, steps, ["--offload", "none"], where)[0]
                cube = statistics.median(before + cubes())
                seconds.setdefault(tokens, []).extend(step)
                relative.setdefault(tokens, []).append(statistics.median(step) / cube)
                bench.say(f"{model}, {tokens} tokens: {statistics.median(step):.3f} s, sgemm {2 * 2048**3 / cube * 1e-9:.0f} GFLOP/s")
        for tokens in LENGTHS[model]:
            memory[tokens] = run(build, model, tokens, 2, ["--offload", "nvme", *BUDGET[model]], where)[1:]
    sgemm.close()
    for what, seen, unit in (("seconds", seconds, "s"), ("seconds counted in sgemm's", relative, "2048-cubed products")):
        a, b, off = fit({S: statistics.median(v) for S, v in seen.items()})
        bench.report(f"step of {model}, {what}: largest deviation from a*S + b*S^2", max(map(abs, off.values())), {"limit": MARK}, "", {"limit": 1.0}, better="lower",
                     a=a, b=b, deviation=off, medians={S: statistics.median(v) for S, v in seen.items()}, unit_of_medians=unit)
    for tokens, (planned, outside, peak) in memory.items():
        allowed = (planned + outside) * (1 + OUTSIDE[1] / 100) + OUTSIDE[0] * tokens
        bench.report(f"peak resident memory of {model} on nvme within {' '.join(BUDGET[model])}, {tokens} tokens", peak / 2**20,
                     {"plan and what is outside it": allowed / 2**20}, "MiB", {"plan and what is outside it": 1.0}, better="lower", planned=planned, outside=outside)


main()
