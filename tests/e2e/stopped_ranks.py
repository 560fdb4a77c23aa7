#!/usr/bin/env python3
"""Ranks that are stopped for a while at random moments (SIGSTOP, SIGCONT): `stopped_ranks.py LTRAIN`.

Each trial is a run of its own that must end like an undisturbed one: the same losses and gradient norms, the same model, bit for
bit. Runs whose --comm-timeout is shorter than the stop must end with status 1 and one sentence of each rank, and no crash, over
shared memory and over TCP. Usually a few trials; LTRAIN_LONG=1: 20 of each length on 2 and on 4 ranks, and 100 that break, of
which LTRAIN_JOBS (2) run at a time. LTRAIN_SEED repeats a choice of moments. Exit status 77: this machine cannot do it."""
import concurrent.futures
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

LONG = "LTRAIN_LONG" in os.environ
LENGTHS = (1, 3, 10, 30)  # seconds
STEPS = 60 if LONG else 30
PATIENCE = 300  # a run that takes longer hangs
PATIENCE_OF_RANKS = 4  # where they are to lose it; a loaded machine that goes on answers sooner
ARGUMENTS = (
    "--model tiny --data ../corpus.txt --seq-len 256 --device cpu:discrete --offload nvme --threads 1 --effort quick "
    "--tiles rows=64,loss=64,group=4096 --save-every 25 --keep 2 --out run"
).split()
TRANSPORTS = {
    "shared memory": {},
    "TCP": {"OMPI_MCA_btl": "tcp,self", "OMPI_MCA_btl_tcp_if_include": "lo"},
}


class Run:
    """An ltrain of several ranks in a directory of its own."""

    def __init__(self, home, ranks, arguments=(), transport="shared memory", steps=STEPS):
        self.home = tempfile.mkdtemp(dir=home)
        self.err = os.path.join(self.home, "err")
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **TRANSPORTS[transport])
        command = [program, *ARGUMENTS, "--ranks", str(ranks), "--mesh", f"dp={ranks}", "--steps", str(steps), *arguments]
        with open(os.path.join(self.home, "out"), "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(command, cwd=self.home, env=environment, stdout=out, stderr=err)

    def rank(self, number):
        """Returns the process of a rank; None: it does not exist (yet, or any more)."""
        wanted = b"OMPI_COMM_WORLD_RANK=%d" % number
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{pid}/cwd") == self.home and open(f"/proc/{pid}/comm").read() == name:
                    if wanted in open(f"/proc/{pid}/environ", "rb").read().split(b"\0"):
                        return int(pid)
            except OSError:
                pass
        return None

    def wait_for(self, condition):
        until = time.monotonic() + PATIENCE
        while not condition() and self.process.poll() is None and time.monotonic() < until:
            time.sleep(0.1)

    def said(self):
        return open(self.err, errors="replace").read()

    def end(self):
        """Returns the exit status; None: the run hangs."""
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return None

    def result(self):
        steps = [json.loads(line) for line in open(os.path.join(self.home, "run/metrics.jsonl"))]
        numbers = [(s["step"], s["loss"], s["grad_norm"]) for s in steps if "loss" in s]
        return numbers, open(os.path.join(self.home, "run/hf/model.safetensors"), "rb").read()

    def remove(self):
        shutil.rmtree(self.home)


def tell(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def is_training(run):
    return os.path.exists(os.path.join(run.home, "run/metrics.jsonl"))


def has_trained(run):
    return os.path.exists(os.path.join(run.home, "run/hf"))


def waited_for(home, ranks, victim, moment, seconds, reference):
    """Stops a rank `moment` seconds after its start. seconds 0: during training, which others can say, and until a line has named
    it. Returns the fault, or ""."""
    run = Run(home, ranks)
    run.wait_for(lambda: run.rank(victim) and (seconds or is_training(run)))
    time.sleep(moment)
    pid = run.rank(victim)
    if pid is not None:
        tell(pid, signal.SIGSTOP)
    if pid is None or (not seconds and has_trained(run)):  # it had ended, or no other rank waits for it
        if pid is not None:
            tell(pid, signal.SIGCONT)
        run.end()
        run.remove()
        return waited_for(home, ranks, victim, moment / 2, seconds, reference)
    if seconds:
        time.sleep(seconds)
    else:
        run.wait_for(lambda: f"is stopped (process {pid}" in run.said())
    tell(pid, signal.SIGCONT)
    status, said, wrong = run.end(), run.said(), ""
    if status != 0:
        wrong = f"exit status {status}: {said}"
    elif run.result() != reference:
        wrong = "another result than the undisturbed run's"
    elif re.sub(r"ltrain: (waiting for rank %d on .*, which is stopped|rank %d on .* goes on).*\n" % (victim, victim), "", said):
        wrong = f"said: {said}"
    elif not seconds and ", up to 600 s (--comm-timeout)" not in said:
        wrong = f"nothing is said: {said}"
    run.remove()
    return wrong


def broken(home, transport, moment, wakes):
    """Stops a rank for longer than the others wait, and lets it go on when they leave, which must not crash. Returns the fault,
    or ""."""
    run = Run(home, 2, ("--comm-timeout", str(PATIENCE_OF_RANKS), "--save-every", "0"), transport, 100000)
    run.wait_for(lambda: is_training(run))
    time.sleep(moment)
    victim = random.randrange(2)
    pid = run.rank(victim)
    if pid is None:
        return f"it ended early: {run.end()}: {run.said()}"
    tell(pid, signal.SIGSTOP)
    time.sleep(1.5)
    run.wait_for(lambda: "has not answered" in run.said())
    if wakes:
        tell(pid, signal.SIGCONT)
    status, said, wrong = run.end(), run.said(), ""
    other = 1 - victim
    if status != 1:
        wrong = f"exit status {status}"
    elif not re.search(rf"^ltrain: rank {other}: rank {victim} on .* is stopped \(process {pid}, .*\) and has not answered rank {other} for {PATIENCE_OF_RANKS} s", said, re.M):
        wrong = "the rank that waited does not name the one that stood still"
    elif "Segmentation" in said or "Process received signal" in said:
        wrong = "a crash"
    elif any(len(re.findall(rf"^ltrain: rank {r}: ", said, re.M)) > 1 for r in (0, 1)):
        wrong = "a rank says more than one sentence"
    run.remove()
    return wrong and f"{wrong}: {said}"


def count(name, trials, home):
    """Runs trials, some at a time; returns the number of failed ones."""
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("LTRAIN_JOBS", 2)) if LONG else 1) as pool:
        for wrong in pool.map(lambda trial: trial(), trials):
            bad += bool(wrong)
            if wrong:
                print(f"not ok: {name}: {wrong}", flush=True)
    print(f"{name}: {len(trials) - bad} of {len(trials)} as asked", flush=True)
    return bad


def undisturbed(home, ranks):
    began = time.monotonic()
    run = Run(home, ranks)
    if run.end() != 0:
        sys.exit(f"the undisturbed run fails: {run.said()}")
    return run.result(), time.monotonic() - began


def try_lengths(home, ranks, lengths, trials):
    reference, took = undisturbed(home, ranks)
    bad = 0
    for seconds in lengths:
        todo = [
            (lambda victim=random.randrange(ranks), moment=random.random() * took * 0.9: waited_for(home, ranks, victim, moment, seconds, reference))
            for _ in range(trials)
        ]
        bad += count(f"{ranks} ranks, stopped {f'for {seconds} s' if seconds else 'until it is said'}", todo, home)
    return bad


def main():
    if not shutil.which("mpiexec"):
        return 77
    seed = int(os.environ.get("LTRAIN_SEED", time.time_ns() // 1000000 if LONG else 1))
    random.seed(seed)
    print(f"LTRAIN_SEED={seed}", flush=True)
    home = tempfile.mkdtemp(prefix="stopped-")
    with open(os.path.join(home, "corpus.txt"), "w") as f:
        f.write("It was a dark and stormy night; the rain fell in torrents, except at occasional intervals.\n" * 600)
    bad = 0
    try:
        if LONG:
            for ranks in (2, 4):
                bad += try_lengths(home, ranks, LENGTHS, 20)
        else:
            bad += try_lengths(home, 2, (0,), 1)
        for transport in TRANSPORTS:
            todo = [(lambda moment=random.random(), k=k: broken(home, transport, moment, k % 4 != 3)) for k in range(50 if LONG else 1)]
            bad += count(f"stopped for too long, {transport}", todo, home)
    finally:
        shutil.rmtree(home)
    return bad > 0


if len(sys.argv) != 2:
    sys.exit(__doc__)
program = os.path.abspath(sys.argv[1])
name = os.path.basename(program)[:15] + "\n"
sys.exit(main())
