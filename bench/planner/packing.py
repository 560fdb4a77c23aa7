#!/usr/bin/env python3
"""How long steps of short sequences are predicted to take by the number of sequences computed together (--micro-batch):
`bench/planner/packing.py [--only TEXT] LTRAIN`.

Each row has one sequence after the other, fixed numbers, and the planner's choice with its number."""
import argparse
import json
import pathlib
import subprocess

LLAMA_70B = str(pathlib.Path(__file__).resolve().parents[2] / "tests/model/configs/Llama-3.3-70B-Instruct")
MODELS = {"70b": LLAMA_70B}
TOGETHER = (4, 16, 64)

# model, machine, tokens, sequences a step
REQUESTS = [("1b", "rtx4090", "1k", 64), ("1b", "rtx4090", "4k", 64), ("8b", "h200", "512", 256), ("8b", "h200", "2k", 64),
            ("8b", "h200", "8k", 64), ("8b", "8xa100-80", "1k", 512), ("8b", "8xa100-80", "8k", 128), ("8b", "64xh100", "2k", 2048),
            ("8b", "64xh100", "8k", 512), ("70b", "64xh100", "1k", 4096), ("70b", "64xh100", "4k", 1024)]


def plan(program, request, together):
    """Seconds of the planned step and its sequences together; (None, 1): it does not fit, or the batch is too small."""
    model, machine, tokens, batch = request
    command = [program, "plan", "--model", MODELS.get(model, model), "--dtype", "bf16", "--machine", machine, "--seq-len", tokens,
               "--batch", str(batch), "--micro-batch", str(together), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        p = json.loads(done.stdout)
    except ValueError:
        return None, 1
    return (p["step"]["seconds"], p["step"].get("micro_batch", 1)) if p["fits"] else (None, 1)


def cell(seconds):
    return f"{seconds:9.3g}" if seconds else "        -"


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--only", default="", help="rows that contain this text")
    args.add_argument("ltrain")
    args = args.parse_args()
    print(f"{'seconds a step':>34}  one after the other" + "".join(f"{n:9}" for n in TOGETHER) + "     auto")
    for request in REQUESTS:
        model, machine, tokens, batch = request
        name = f"{model} on {machine}, {batch} x {tokens}"
        if args.only not in name:
            continue
        fixed = [plan(args.ltrain, request, n)[0] for n in (1, *TOGETHER)]
        seconds, together = plan(args.ltrain, request, "auto")
        print(f"{name:>34}  {cell(fixed[0]):>19}" + "".join(cell(s) for s in fixed[1:]) + f"{cell(seconds)} ({together})", flush=True)


if __name__ == "__main__":
    main()
