"""Prints how well plans that use an earlier run's times predict steps of another length, on a quiet machine.

Of each shape a run of one length leaves its observed.yaml, with which a run of another length is planned; its planned and
measured seconds of a step (the median of those that begin with an update) stand side by side. The mark is 5%."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

MARK = 0.05
# name: options, tokens of the first run, tokens of the second
SHAPES = {
    "25m resident": ("--model 25m --offload none", 1024, 4096),
    "25m on drives": ("--model 25m --offload nvme", 1024, 4096),
    "moe-20m resident": ("--model moe-20m --offload none", 1024, 4096),
    "25m discrete": ("--model 25m --device cpu:discrete --offload cpu", 4096, 2048),
}
STEPS = 8


def write_text(path):
    """Writes a text of pseudo-random words, long enough for all steps."""
    x = 1
    with open(path, "w") as f:
        for _ in range(60000):
            x = x * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
            f.write("w%x " % (x >> 44))


def train(ltrain, options, tokens, out, observed):
    """Trains and returns planned and measured seconds of a step."""
    command = [ltrain, *options.split(), "--data", "text.txt", "--seq-len", str(tokens), "--steps", str(STEPS), "--out", out, "--observed", observed]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    steps = [json.loads(line) for line in open(out + "/metrics.jsonl")][2:]
    return steps[-1]["planned_seconds"], statistics.median(s["seconds"] for s in steps)


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("ltrain")
    args.add_argument("shape", nargs="*", help=", ".join(SHAPES))
    args = args.parse_args()
    ltrain = os.path.abspath(args.ltrain)
    missed = 0
    print("| shape | tokens | planned before | took | tokens | planned with it | took | error |\n|---|---|---|---|---|---|---|---|")
    for name in args.shape or SHAPES:
        options, first, second = SHAPES[name]
        with tempfile.TemporaryDirectory() as directory:
            os.chdir(directory)
            write_text("text.txt")
            before, took = train(ltrain, options, first, "first", "no")
            planned, measured = train(ltrain, options, second, "second", "first/observed.yaml")
            os.chdir("/")
        error = planned / measured - 1
        missed += abs(error) > MARK
        print("| %s | %d | %.3g s | %.3g s | %d | %.3g s | %.3g s | %+.1f%%%s |" % (name, first, before, took, second, planned, measured, 100 * error, "" if abs(error) <= MARK else " MISSED"), flush=True)
    sys.exit(missed > 0)


main()
