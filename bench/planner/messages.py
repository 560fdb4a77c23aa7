#!/usr/bin/env python3
"""How long steps of several ranks are predicted to take, and how much of them compute waits for messages among all ranks, before and
after a change: `bench/planner/messages.py [--only TEXT] [--effort E] BEFORE AFTER`.

BEFORE and AFTER are two ltrain programs. Meshes and batches are given, so that both plan the same; the planner decides the rest."""
import argparse
import json
import pathlib
import subprocess
import sys

LLAMA_70B = str(pathlib.Path(__file__).resolve().parents[2] / "tests/model/configs/Llama-3.3-70B-Instruct")
MODELS = {"70b": LLAMA_70B}

# model, machine, mesh, tokens, sequences a step, ZeRO stage, further options
PROBLEMS = (
    [("8b", "8xa100-80", "dp=8", "8k", 128, z, []) for z in (1, 2, 3)]
    + [("8b", "8xa100-80", "dp=8", n, 64, 3, []) for n in ("1k", "2k", "4k", "16k", "32k")]
    + [("8b", "8xa100-80", "dp=8", "4k", b, 3, []) for b in (8, 16)]
    + [("8b", "8xa100-40", "dp=8", n, 32, 3, []) for n in ("4k", "16k", "64k")]
    + [("8b", "4xh100", "dp=4", n, 32, z, []) for n in ("4k", "32k") for z in (2, 3)]
    + [("8b", "2xh100", "dp=2", n, 16, z, []) for n in ("8k",) for z in (1, 2, 3)]
    + [("8b", "16xh100", "dp=4,ulysses=4", "64k", 16, 3, []), ("8b", "16xh100", "dp=2,ulysses=8", "128k", 8, 2, []),
       ("8b", "8xh100", "dp=2,ulysses=4", "32k", 16, 3, []), ("8b", "8xh100", "dp=2,ring=4", "64k", 8, 3, []),
       ("8b", "64xh100", "dp=64", "4k", 256, 1, []), ("8b", "64xh100", "dp=64", "4k", 256, 2, []),
       ("8b", "64xh100", "dp=64", "8k", 512, 3, []), ("8b", "8xrtx4090", "dp=8", "8k", 32, 3, [])]
    + [("70b", "64xh100", "dp=64", n, b, 3, []) for n, b in (("1k", 512), ("2k", 512), ("4k", 512), ("8k", 512), ("16k", 128), ("32k", 64))]
    + [("70b", "64xh100", "dp=64", "8k", 128, z, []) for z in (1, 2)]
    + [("70b", "64xh100", "dp=16,ulysses=4", "64k", 32, 3, []), ("70b", "64xh100", "dp=8,ulysses=8", "128k", 16, 3, []),
       ("70b", "64xh100", "dp=8,ulysses=8", "128k", 16, 2, []), ("70b", "32xh100", "dp=4,ulysses=8", "64k", 16, 3, []),
       ("70b", "8xh200", "dp=8", "8k", 64, 3, []), ("70b", "16xa100-80", "dp=16", "4k", 64, 3, []),
       ("70b", "64xa100-80", "dp=64", "8k", 256, 3, [])])


def plan(program, problem, effort):
    model, machine, mesh, tokens, batch, zero, more = problem
    command = [program, "plan", "--model", MODELS.get(model, model), "--dtype", "bf16", "--machine", machine, "--mesh", mesh, "--seq-len",
               tokens, "--batch", str(batch), "--zero", str(zero), "--effort", effort, "--json", *more]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        return json.loads(done.stdout)
    except ValueError:
        sys.stderr.write(" ".join(command) + "\n" + done.stderr)
        return None


def figures(p):
    """Seconds a step, exposed and busy seconds of messages among all ranks, GiB of the device; None where nothing fits."""
    if p is None or not p["fits"]:
        return None
    world = p["lanes"]["world"]
    return p["step"]["seconds"], world["exposed_seconds"], world["busy_seconds"], p["peak"]["device"] / 2**30


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--only", default="", help="rows that contain this text")
    args.add_argument("--effort", default="normal")
    args.add_argument("before")
    args.add_argument("after")
    args = args.parse_args()
    print("{:62}   before     after          messages exposed: before after   device GiB: before after".format("seconds a step"))
    for problem in PROBLEMS:
        name = "{:4} {:10} {:16} {:>5} batch {:<4} zero {}".format(*problem[:6])
        if args.only not in name:
            continue
        before, after = (figures(plan(program, problem, args.effort)) for program in (args.before, args.after))
        if before and after:
            print("{:60} {:9.3f} {:9.3f} {:6.1f}%   of {:7.3f} {:9.3f} {:7.3f}   {:17.1f} {:5.1f}".format(
                name, before[0], after[0], 100 * (after[0] / before[0] - 1), after[2], before[1], after[1], before[3], after[3]), flush=True)
        else:
            print(name, "does not fit" if not before and not after else "fits %s only" % ("after" if after else "before"), flush=True)


if __name__ == "__main__":
    main()
