#!/usr/bin/env python3
"""One training step in fp32 of a hybrid (peer_hybrid.py) beside transformers', beside ltrain's own model with full attention in all layers, and with
everything on drives; one thread each, in turn.

bench_hybrid.py BUILD [TOKENS [ROUNDS]], default 4096 tokens, 3 rounds. Offloads to a directory below the present one."""
import json, os, sys, tempfile

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

import bench
import bench_experts

PYTHON = os.path.join(bench.PEERS, "bin", "python")
MAKE = os.path.join(bench_experts.HERE, "peer_hybrid.py")


def peer(model, tokens):
    out, peak = bench.run([*bench_experts.PEER, model, str(tokens), "1"])
    return json.loads(out)["seconds"], peak


def main():
    build, tokens = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4096
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    with tempfile.TemporaryDirectory(dir=".") as where:  # on a drive, for what is offloaded
        model = os.path.join(where, "model")
        bench.run([PYTHON, MAKE, "--make", model])
        contenders = {"resident": lambda: bench_experts.ours(build, model, tokens, where, "--offload", "none"),
                      "nvme": lambda: bench_experts.ours(build, model, tokens, where, "--offload", "nvme"),
                      "full": lambda: bench_experts.ours(build, os.path.join(model, "full"), tokens, where, "--offload", "none"),
                      "transformers": lambda: peer(model, tokens)}
        if tokens > 4096:  # its backward pass is quadratic: minutes, and beyond 15 GiB
            del contenders["transformers"]
        seconds, peak = bench_experts.steps_in_turn(contenders, rounds)
    speed = {k: tokens / x for k, x in seconds.items()}
    case, others = f"hybrid, {tokens} tokens", [k for k in ("transformers", "full") if k in speed]
    bench.report(f"training step, {case}", speed["resident"], {k: speed[k] for k in others}, "tokens/s",
                 {"transformers": 1.6} if "transformers" in speed else {"full": 1.0} if tokens >= 16384 else {})
    if "transformers" in peak:
        bench.report(f"peak resident memory, {case}", peak["resident"], {"transformers": peak["transformers"]}, "MiB", {"transformers": 4.0}, better="lower")
    bench.report(f"training step, {case}, all on nvme", speed["nvme"], {"resident": speed["resident"]}, "tokens/s", {"resident": 0.95})


if __name__ == "__main__":
    main()
