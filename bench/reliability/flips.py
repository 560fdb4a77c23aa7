#!/usr/bin/env python3
"""Flips one bit in the memory of running trainings, from outside, and counts what each setting finds.

Each trial starts a run of the tiny model in host memory (cpu:discrete, state and activations offloaded), waits for a random step and
moment, and flips a random bit of the device's or the host's arena through /proc/PID/mem, the arena drawn by its size. An outcome is
one of
    found      the run ends with the sentence of a check
    harmless   the run ends well, with the bits of a run that nobody disturbed
    silent     the run ends well, with other bits
    crashed    a signal, or another sentence
A run that ends at a check does not show whether the bit would have changed its model, so the last column compares what was found with
what changed the model unseen.
Needs the right to write to its own children (ptrace scope 0 or 1, or root).
"""
import argparse
import json
import os
import random
import shutil
import subprocess
import tempfile
import time

SETTINGS = {
    "nothing": [],
    "--scrub": ["--scrub"],
    "--verify-every 1": ["--verify-every", "1"],
    "--verify-every 10": ["--verify-every", "10"],
    "--verify-every 100": ["--verify-every", "100"],
    "--verify-every 1 --scrub": ["--verify-every", "1", "--scrub"],
    "--verify-every 10 --scrub": ["--verify-every", "10", "--scrub"],
    "--verify-every 100 --scrub": ["--verify-every", "100", "--scrub"],
}
FOUND = ("changed although nothing wrote there", "differs between two computations", "outside the plan", "checksum")
PAGE = 4096


def arenas(pid, run):
    """Addresses and bytes of the arenas: mappings that are as large as the plan says."""
    with open(os.path.join(run, "plan.json"), encoding="utf-8") as f:
        peak = json.load(f)["peak"]
    wanted = {-(-peak[tier] // PAGE) * PAGE: tier for tier in ("device", "host")}
    found = {}
    with open(f"/proc/{pid}/maps", encoding="utf-8") as f:
        for line in f:
            place, rights = line.split()[:2]
            first, last = (int(x, 16) for x in place.split("-"))
            if rights == "rw-p" and last - first in wanted:
                found[wanted[last - first]] = (first, last - first)
    return found


def lines(path):
    try:
        with open(path, "rb") as f:
            return f.read().count(b"\n")
    except FileNotFoundError:
        return 0


def command(ltrain, steps, extra, out):
    return [ltrain, "--model", "tiny", "--data", "text.txt", "--seq-len", "256", "--offload", "cpu", "--device", "cpu:discrete",
            "--tiles", "rows=64,loss=64,group=4096", "--threads", "1", "--effort", "quick", "--steps", str(steps), *extra,
            "--out", out]


def model_of(run):
    with open(os.path.join(run, "hf/model.safetensors"), "rb") as f:
        return f.read()


def trial(ltrain, steps, extra, rng, right):
    """One run with one flipped bit: (arena, outcome)."""
    shutil.rmtree("run", ignore_errors=True)
    step, delay = rng.randrange(1, steps - 2), rng.random() * 0.02
    with open("errors.txt", "w+", encoding="utf-8") as errors:
        child = subprocess.Popen(command(ltrain, steps, extra, "run"), stdout=subprocess.DEVNULL, stderr=errors)
        while child.poll() is None and lines("run/metrics.jsonl") < step:
            time.sleep(0.0005)
        time.sleep(delay)
        places = arenas(child.pid, "run") if child.poll() is None else {}
        if len(places) < 2:
            child.wait()
            return None
        tier = rng.choices(list(places), [bytes_ for _, bytes_ in places.values()])[0]
        first, size = places[tier]
        try:
            with open(f"/proc/{child.pid}/mem", "r+b", buffering=0) as memory:
                at = first + rng.randrange(size)
                memory.seek(at)
                byte = memory.read(1)[0]
                memory.seek(at)
                memory.write(bytes([byte ^ (1 << rng.randrange(8))]))
        except OSError:
            child.wait()
            return None
        status = child.wait()
        errors.seek(0)
        said = errors.read()
    if status == 0:
        return tier, "harmless" if model_of("run") == right else "silent"
    return tier, "found" if any(words in said for words in FOUND) else "crashed"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ltrain", help="the program, as build-release/src/cli/ltrain")
    parser.add_argument("--trials", type=int, default=167, help="flips for each setting")
    parser.add_argument("--steps", type=int, default=40, help="steps of each run; more than 100, or --verify-every 100 looks at none")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    ltrain, trials, rng = os.path.abspath(given.ltrain), given.trials, random.Random(given.seed)
    here = tempfile.mkdtemp()
    os.chdir(here)
    with open("text.txt", "w", encoding="utf-8") as f:
        f.write("".join(rng.choice("etaoin shrdlu\n") for _ in range(200000)))
    subprocess.run(command(ltrain, given.steps, [], "reference"), check=True, stdout=subprocess.DEVNULL)
    right = model_of("reference")
    print(f"{'':28}  found harmless   silent  crashed   found of found and silent")
    for name, extra in SETTINGS.items():
        count = {}
        while sum(count.values()) < trials:
            outcome = trial(ltrain, given.steps, extra, rng, right)
            if outcome:  # else the run had ended before
                count[outcome] = count.get(outcome, 0) + 1
        sums = {o: sum(n for (_, x), n in count.items() if x == o) for o in ("found", "harmless", "silent", "crashed")}
        not_harmless = sums["found"] + sums["silent"]
        share = f"{100 * sums['found'] / not_harmless:.0f}%" if not_harmless else "-"
        print(f"{name:28}" + "".join(f"{sums[o]:9}" for o in sums) + f"   {share}", flush=True)
        for tier in ("device", "host"):
            print(f"    {tier:24}" + "".join(f"{count.get((tier, o), 0):9}" for o in sums), flush=True)
    shutil.rmtree(here)


if __name__ == "__main__":
    main()
