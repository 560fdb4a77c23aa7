#!/usr/bin/env python3
"""Starts ltrain with hostile command lines: `tools/hostile.py LTRAIN SECONDS SEED`.

LTRAIN is best built with -Db_sanitize=address,undefined. Every run must end within two minutes with a status from 0 to 3, without a
sanitizer's report, and with a sentence if it fails. Runs lie in a directory of their own. The last line counts them.
"""
import argparse
import collections
import os
import random
import subprocess
import tempfile
import time

COMMANDS = {"train": "--data text --seq-len 64 --steps 1 --effort quick", "plan": "--seq-len 128 --machine h100 --effort quick",
            "data": "--data text", "eval": "--lengths 64 --eval-data text --effort quick", "sample": "--max-new-tokens 2 --prompt a",
            "check": "--data text --seq-len 64 --steps 1 --effort quick"}
VALUES = {
    "lora": "r=4 r=4,targets=q_proj r=1,rank-pattern=q_proj:8 r=4096 r=4,targets=embed_tokens,dropout=0.5 r=0 targets=(((",
    "tiles": "rows=8 rows=1 rows=64,heads=1,loss=1,group=1 rows=63,loss=17 rows=0 heads=99", "offload": "cpu none nvme params=cpu,acts=nvme params=",
    "alpha": "0 1 0.3 2", "mesh": "dp=1 dp=2 ring=2 ulysses=2 dp=99999999 ring=-1", "zero": "0 1 2 3 4", "dtype": "bf16 fp32 fp8",
    "optim-dtype": "bf16 int8", "betas": "0,0 0.5,0.999 1,1 0.9", "lr": "0 1e30 1e-30 nan", "eval-fraction": "0.5 0.999 0.001 1",
    "epochs": "0.001 1 1e300", "rope": "yarn:2 linear:3 llama3:8 dynamic:1000000 yarn:1e300 none", "rope-base": "1 1e15 inf",
    "base": "nf4 int8 none", "tasks": "needle ppl,position shuffled,counting", "depths": "1 0,100 33 101", "top-k": "1 100000",
    "temperature": "0 1000 1e300", "stop-at": "a a,b ,", "seq-len": "2 3 63 64@1,128@1,65 1g 99999999999999999999", "device": "cpu:discrete cuda:999",
    "link-gbps": "1e-6 1e6", "keep-inputs": "1 2 65536", "prefetch": "0 1e6", "lengths": "2 2..70 63 8k..1k", "stride": "1 64",
    "max-new-tokens": "1 500 1g", "batch": "1 3 4096", "grad-accum": "1 5", "seed": "0 18446744073709551615 -1", "weight-decay": "0 1e30",
    "packing": "concat best-fit split", "device-mem": "1 1M 100M 999999P", "host-mem": "1 1M", "nvme-max": "0 1M", "nvme-path": ". /proc missing",
    "freeze": "* *norm* x", "machine": "8xh200 1024xh100 0xh100", "nvme": "4x7GB/s none 1e300x1GB/s", "model": "tiny gpt2-tiny text missing /dev/null",
    "data": "text=0.5,text=0.5 text=nan missing .", "tokenizer": "bytes text missing", "chat-template": "chatml text missing", "threads": "1 0 4097"}
SANITIZERS = {"ASAN_OPTIONS": "exitcode=99:allocator_may_return_null=1", "UBSAN_OPTIONS": "halt_on_error=1:exitcode=98:print_stacktrace=1",
              "OMP_NUM_THREADS": "1", "LTRAIN_PROGRESS_AFTER": "1000000"}


def command_line(rng):
    command = rng.choice(sorted(COMMANDS))
    words = ([] if command == "train" else [command]) + ["--model", rng.choice(["tiny", "gpt2-tiny"]), *COMMANDS[command].split()]
    for _ in range(rng.choice([1, 1, 2, 3])):
        key = rng.choice(sorted(VALUES))
        words += ["--" + key, rng.choice(VALUES[key].split())]
    if rng.random() < 0.2:
        words[rng.randrange(len(words))] = rng.choice(["", "%s%n", "\x01", "a" * 5000, "--", "-", "=", "--model="])
    return words


def fault_of(done):
    """What is wrong with a finished run; None: nothing."""
    if done.returncode not in (0, 1, 2, 3) or "Sanitizer" in done.stderr or "runtime error" in done.stderr:
        return f"status {done.returncode}: {done.stderr[-2000:]}"
    if done.returncode != 0 and "ltrain: " not in done.stderr:
        return f"status {done.returncode} without a sentence: {done.stderr[:200]!r}"
    return None


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("ltrain")
    options.add_argument("seconds", type=float)
    options.add_argument("seed", type=int)
    a = options.parse_args()
    rng, statuses, faults, end = random.Random(a.seed), collections.Counter(), 0, time.time() + a.seconds
    while time.time() < end:
        words = command_line(rng)
        with tempfile.TemporaryDirectory() as directory:
            with open(os.path.join(directory, "text"), "w") as f:
                f.write("To be or not to be. " * 400)
            try:
                done = subprocess.run([os.path.abspath(a.ltrain), *words], cwd=directory, stdin=subprocess.DEVNULL, capture_output=True,
                                      timeout=120, env={**os.environ, **SANITIZERS}, encoding="utf8", errors="replace")
                fault = fault_of(done)
                statuses[done.returncode] += 1
            except subprocess.TimeoutExpired:
                fault = "no end within two minutes"
        if fault:
            faults += 1
            print("not ok:", [w[:80] for w in words], fault, flush=True)
    print(f"{sum(statuses.values())} runs, {faults} faults, by status: {dict(sorted(statuses.items()))}")
    return faults > 0


if __name__ == "__main__":
    raise SystemExit(main())
