#!/usr/bin/env python3
"""One training step in fp32 of a model with experts (48 million parameters: 6 layers of 384 with 64 experts of 96, 8 of them a token) beside
transformers' fastest experts, beside ltrain's own dense model of equal products, and with everything on drives; one thread each, in turn.

bench_experts.py BUILD [TOKENS [ROUNDS]], default 4096 tokens, 3 rounds. Offloads to a directory below the present one."""
import json, os, statistics, sys, tempfile

import bench

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20
PEER = [os.path.join(bench.PEERS, "bin", "python"), os.path.join(HERE, "peer_experts.py")]
# tokens a second of transformers times the first number, its peak memory times the second
MARKS = {4096: (1.3, 0.40), 16384: (1.7, 0.25)}


def ours(build, model, tokens, where, *placement):
    """Seconds of the second step of two, and the peak resident bytes."""
    text, out = os.path.join(where, "text"), os.path.join(where, f"run{len(os.listdir(where))}")
    with open(text, "w") as f:
        f.write("".join(chr(97 + i * i % 26) for i in range(4 * tokens)))
    _, peak = bench.run([os.path.join(build, "src", "cli", "ltrain"), "--model", model, "--data", text, "--seq-len", str(tokens), *placement, "--threads", "1",
                   "--steps", "2", "--out", out])
    return json.loads(open(os.path.join(out, "metrics.jsonl")).readlines()[-1])["seconds"], peak


def peer(model, tokens):
    out, peak = bench.run([*PEER, model, str(tokens), "1", "grouped_mm"])
    return json.loads(out)["seconds"], peak


def steps_in_turn(contenders, rounds):
    """Calls all contenders (name to function that returns seconds and peak bytes) once a round; medians of seconds and of peaks in MiB, name to number."""
    seen = {k: [] for k in contenders}
    for _ in range(rounds):
        for name, measure in contenders.items():
            seen[name].append(bench.calm(measure)[0])
            bench.say(f"{name}: {seen[name][-1][0]:.2f} s, {seen[name][-1][1] / MIB:.0f} MiB")
    return {k: statistics.median(x[0] for x in v) for k, v in seen.items()}, {k: statistics.median(x[1] for x in v) / MIB for k, v in seen.items()}


def main():
    build, tokens = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4096
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    with tempfile.TemporaryDirectory(dir=".") as where:  # on a drive, for what is offloaded
        model = os.path.join(where, "model")
        bench.run([*PEER, "--make", model])
        contenders = {"resident": lambda: ours(build, model, tokens, where, "--offload", "none"),
                      "nvme": lambda: ours(build, model, tokens, where, "--offload", "nvme"),
                      "dense": lambda: ours(build, os.path.join(model, "dense"), tokens, where, "--offload", "none"),
                      "transformers": lambda: peer(model, tokens)}
        seconds, peak = steps_in_turn(contenders, rounds)
    speed, memory = MARKS.get(tokens, (None, None))
    case = f"experts, {tokens} tokens"
    bench.report(f"training step, {case}", tokens / seconds["resident"], {"transformers": tokens / seconds["transformers"], "dense": tokens / seconds["dense"]},
                 "tokens/s", {"transformers": speed, "dense": 0.8} if speed else {})
    bench.report(f"peak resident memory, {case}", peak["resident"], {"transformers": peak["transformers"]}, "MiB", {"transformers": 1 / memory} if memory else {},
                 better="lower")
    bench.report(f"training step, {case}, all on nvme", tokens / seconds["nvme"], {"resident": tokens / seconds["resident"]}, "tokens/s", {"resident": 0.9})
    bench.report(f"peak resident memory, {case}, all on nvme", peak["nvme"], {"resident": peak["resident"]}, "MiB", {"resident": 2.0}, better="lower")


if __name__ == "__main__":
    main()
