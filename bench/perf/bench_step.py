#!/usr/bin/env python3
"""One training step of the 25m preset beside PyTorch eager + transformers: tokens/s, peak resident memory, and executed FLOPs beside
our fp32 product (sgemm, 2048 cubed).

bench_step.py BUILD [TOKENS [ROUNDS [CONTENDER ...]]], default 16384 tokens, 1 round, "resident in 1.7 GB" and PyTorch; there are also "resident" without a bound,
"all on nvme" and PyTorch's "checkpointing"; and, without marks, "in bf16" beside PyTorch's "autocast" (bf16, fp32 parameters, as ours). Offloads to a directory below the present one."""
import collections, json, os, statistics, subprocess, sys, tempfile

import bench

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

HERE = os.path.dirname(os.path.abspath(__file__))
MIB, GIGA = 1 << 20, 1e9
CUBE = "ours 2048 2048 2048 0 0 0"

# Contenders of ltrain: required speed relative to PyTorch, and options of placement
OURS = {"resident": (1.5, ["--offload", "none"]),
        "resident in 1.7 GB": (1.5, ["--offload", "none", "--device-mem", "1700M"]),
        "all on nvme": (1.3, ["--offload", "nvme", "--device-mem", "400M", "--host-mem", "100M"]),
        "in bf16": (None, ["--offload", "none", "--dtype", "bf16"])}
PEERS = {"PyTorch": [], "checkpointing": ["checkpointing"], "autocast": ["bf16"]}


def ours(build, tokens, threads, where, placement):
    """The second step of two, from a directory of its own: seconds, peak bytes, its metrics with executed FLOPs and the seconds of each op."""
    text, out = os.path.join(where, "text"), os.path.join(where, f"run{len(os.listdir(where))}")
    with open(text, "w") as f:
        f.write("".join(chr(97 + i * i % 26) for i in range(4 * tokens)))
    _, peak = bench.run([os.path.join(build, "src", "cli", "ltrain"), "--model", "25m", "--data", text, "--seq-len", str(tokens), *placement,
                   "--threads", str(threads), "--steps", "2", "--trace", "2", "--out", out])
    step = json.loads(open(os.path.join(out, "metrics.jsonl")).readlines()[-1])
    step["executed_flops"] = json.load(open(os.path.join(out, "plan.json")))["step"]["hardware_flops"]
    step["op_seconds"] = collections.Counter()
    for e in json.load(open(os.path.join(out, "trace-000002.json")))["traceEvents"]:
        if e["ph"] == "X" and e["tid"] == 0:
            step["op_seconds"][e["name"].split()[0]] += e["dur"] * 1e-6
    return step["seconds"], peak, step


def peer(tokens, threads, *more):
    out, peak = bench.run([os.path.join(bench.PEERS, "bin", "python"), os.path.join(HERE, "peer_step.py"), str(tokens), str(threads), *more])
    return json.loads(out)["seconds"], peak


def print_report(name, tokens, mark, seconds, peak, step, cube, peers):
    """Ours and the peers': (seconds, peak bytes)."""
    case = f"25m, {tokens} tokens, {name}"
    flops = {k: step.get(k) for k in ("model_flops", "mfu", "loss")}
    marked = peers if mark else {}
    bench.report(f"training step, {case}", tokens / seconds, {k: tokens / v[0] for k, v in peers.items()}, "tokens/s", {k: mark for k in marked}, **flops)
    bench.report(f"peak resident memory, {case}", peak / MIB, {k: v[1] / MIB for k, v in peers.items()}, "MiB", {k: 4.0 for k in marked}, better="lower")
    bench.report(f"executed FLOPs, {case}", step["executed_flops"] / seconds / GIGA, {"sgemm": 2 * 2048**3 / cube / GIGA}, "GFLOP/s", {"sgemm": 0.68} if mark else {},
                 op_seconds=dict(step["op_seconds"].most_common()))


def main():
    build, tokens, rounds, names = sys.argv[1], 16384, 1, ["resident in 1.7 GB", "PyTorch"]
    if len(sys.argv) > 2:
        tokens = int(sys.argv[2])
    if len(sys.argv) > 3:
        rounds = int(sys.argv[3])
    names = sys.argv[4:] or names
    threads = len(os.sched_getaffinity(0))
    seen, step, cube = {k: [] for k in names}, {}, []
    sgemm = bench.Worker(os.path.join(build, "bench", "gemm_bench"), OMP_NUM_THREADS=str(threads), OMP_WAIT_POLICY="passive")
    with tempfile.TemporaryDirectory(dir=".") as where:  # on a drive, for what is offloaded
        for i in range(rounds):
            for k in names[:: -1 if i % 2 else 1]:
                cube += [sgemm(CUBE)["seconds"] for _ in range(5)]
                if k in OURS:
                    seconds, peak, step[k] = ours(build, tokens, threads, where, OURS[k][1])
                else:
                    seconds, peak = peer(tokens, threads, *PEERS[k])
                bench.say(f"{k}: {seconds:.2f} s, {peak / MIB:.0f} MiB")
                seen[k].append((seconds, peak))
    sgemm.close()
    median = {k: [statistics.median(x) for x in zip(*v)] for k, v in seen.items()}
    peers = {k: v for k, v in median.items() if k not in OURS}
    for k in names:
        if k in OURS:
            print_report(k, tokens, OURS[k][0], *median[k], step[k], statistics.median(cube), peers)


if __name__ == "__main__":
    main()
