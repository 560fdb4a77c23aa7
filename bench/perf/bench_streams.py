#!/usr/bin/env python3
"""The whole step: everything on nvme against everything resident, and how time and memory grow with the tokens. BENCH_STREAMS names the
parts to run (default: all): small (tiny model), 25m, growth, memory; BENCH_ROUNDS: how many times as many steps (1)."""
import json, math, os, random, re, signal, statistics, subprocess, sys, tempfile, time

import bench

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

THREADS = 2
SLICE = 1.0  # contenders take turns of this many seconds within a step: the speed of a virtual machine drifts within seconds


class Run:
    """An ltrain that is stopped while others have their turns, and made its first step."""

    def __init__(self, program, directory, model, tokens, options):
        self.out = tempfile.mkdtemp(dir=directory)
        command = [program, "--model", model, "--data", os.path.join(directory, "corpus.txt"), "--seq-len", str(tokens), "--steps", "1000",
                   "--threads", str(THREADS), "--nvme-path", directory, "--out", self.out, *options.split()]
        self.log = open(os.path.join(self.out, "log"), "w")
        # passive: on a shared machine, spinning threads would take processors from working ones and distort the times
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, env=dict(os.environ, OMP_WAIT_POLICY="passive"))
        self.metrics = os.path.join(self.out, "metrics.jsonl")
        self.seen, self.hidden, self.cpu = 0, [], []
        self.wait()  # the first step includes work that is done only once

    def wait(self, seconds=math.inf):
        """Until the step's end or for so many seconds, then stopped; whether the step has ended."""
        until, lines = time.perf_counter() + seconds, []
        while len(lines) <= self.seen and time.perf_counter() < until:
            if self.process.poll() is not None:
                sys.exit(f"ltrain ended: {open(self.log.name).read()[-2000:]}")
            lines = open(self.metrics).read().splitlines() if os.path.exists(self.metrics) else []
            time.sleep(0.002)
        self.process.send_signal(signal.SIGSTOP)
        ended = len(lines) > self.seen
        if ended:
            self.seen, self.last = len(lines), json.loads(lines[-1])
        return ended

    def cpu_seconds(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def work(self, seconds):
        """Goes on for so many seconds or to the step's end: the seconds that it took, and whether the step has ended."""
        t = time.perf_counter()
        self.process.send_signal(signal.SIGCONT)
        ended = self.wait(seconds)
        return time.perf_counter() - t, ended

    def close(self):
        self.process.kill()
        self.process.wait()


def steps_in_turn(runs, rounds):
    """At least so many steps of each, in turns of SLICE or a step: name to the seconds of its steps. Whoever has made its steps goes on while others have not, so that all
    meet the same moods of the machine. What drives do for a run while it is stopped is a few blocks a turn."""
    seen, seconds, cpu = {k: [] for k in runs}, dict.fromkeys(runs, 0.0), {k: r.cpu_seconds() for k, r in runs.items()}
    while any(len(steps) < rounds for steps in seen.values()):
        for k, r in runs.items():
            took, ended = r.work(SLICE)
            seconds[k] += took
            if ended:
                now = r.cpu_seconds()
                r.hidden.append(r.last.get("hidden"))
                r.cpu.append(now - cpu[k])
                seen[k].append(seconds[k])
                seconds[k], cpu[k] = 0.0, now
    return seen


def nvme_against_resident(program, directory, model, tokens, rounds):
    runs = {"nvme": Run(program, directory, model, tokens, "--offload nvme"), "resident": Run(program, directory, model, tokens, "--offload none")}
    seen = steps_in_turn(runs, rounds)
    for r in runs.values():
        r.close()
    times = bench.medians(seen)
    bench.report(f"step of {model}, {tokens} tokens, everything on nvme", times["nvme"], {"resident": times["resident"]}, "s", {"resident": 1 / 1.05}, better="lower",
                 steps=seen, cpu_seconds={k: statistics.median(r.cpu) for k, r in runs.items()}, hidden=statistics.median(runs["nvme"].hidden),
                 median_of_ratios=statistics.median(a / b for a, b in zip(seen["nvme"], seen["resident"])),
                 peak_mib={k: (r.last["device_peak_bytes"] + r.last["host_peak_bytes"]) / 2**20 for k, r in runs.items()})


def fit(points):
    """a and b of a S + b S^2 with the least relative squares."""
    s11 = sum((s / t) ** 2 for s, t in points)
    s12 = sum(s**3 / t**2 for s, t in points)
    s22 = sum((s * s / t) ** 2 for s, t in points)
    y1, y2 = sum(s / t for s, t in points), sum(s * s / t for s, t in points)
    d = s11 * s22 - s12 * s12
    return (y1 * s22 - y2 * s12) / d, (y2 * s11 - y1 * s12) / d


def growth(program, directory, model, lengths, rounds):
    runs = {s: Run(program, directory, model, s, "--offload nvme --tiles rows=2048,loss=2048") for s in lengths}
    seen = steps_in_turn(runs, rounds)
    for r in runs.values():
        r.close()
    # means, not medians: disturbances of the machine average out within a long step, but hit some of the short ones only
    wall, cpu = {s: statistics.mean(steps) for s, steps in seen.items()}, {s: statistics.mean(r.cpu) for s, r in runs.items()}
    a, b = fit(list(wall.items()))
    away = {s: wall[s] / (a * s + b * s * s) - 1 for s in lengths}
    ca, cb = fit(list(cpu.items()))
    bench.report(f"step of {model}, {lengths[0]} to {lengths[-1]} tokens: farthest from a S + b S^2", max(map(abs, away.values())), {"5%": 0.05}, "relative", {"5%": 1.0},
                 better="lower", seconds=wall, steps={s: len(steps) for s, steps in seen.items()}, a=a, b=b, away=away, cpu_seconds=cpu, cpu_away={s: cpu[s] / (ca * s + cb * s * s) - 1 for s in lengths},
                 peak_mib={s: (r.last["device_peak_bytes"] + r.last["host_peak_bytes"]) / 2**20 for s, r in runs.items()})


def memory(program, directory, model, lengths, budget):
    """Peak resident memory within fixed budgets beside what it may be: the plan and what is resident before the first step (3% more, as in
    memory_per_rank.py), and 20 bytes a token for a sequence's arrays (engine/batch.c)."""
    for s in lengths:
        out = tempfile.mkdtemp(dir=directory)
        made = subprocess.run([program, "--model", model, "--data", os.path.join(directory, "corpus.txt"), "--seq-len", str(s), "--steps", "2", "--verbose", "--offload", "nvme",
                               "--nvme-path", directory, "--out", out, *budget.split()], capture_output=True, text=True)
        if made.returncode:
            sys.exit(f"{made.args}: {made.stderr}")
        planned, outside, peak = map(int, re.search(r"^memory of rank 0: planned (\d+) \+ (\d+) outside the plan; peak resident (\d+)$", made.stdout, re.M).groups())
        bench.report(f"peak resident memory of {model} on nvme within {budget}, {s} tokens", peak / 2**20,
                     {"plan and what is outside": (1.03 * (planned + outside) + 20 * s) / 2**20}, "MiB", {"plan and what is outside": 1.0}, better="lower", planned=planned,
                     outside=outside)


def main():
    build = os.path.abspath(sys.argv[1])
    program, parts = os.path.join(build, "src", "cli", "ltrain"), os.environ.get("BENCH_STREAMS", "small 25m growth memory").split()
    rounds = int(os.environ.get("BENCH_ROUNDS", 1))
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR", build)) as directory:
        words = [l.strip() for l in open("/usr/share/dict/words")] if os.path.exists("/usr/share/dict/words") else "it was a dark and stormy night".split()
        pick = random.Random(1)
        with open(os.path.join(directory, "corpus.txt"), "w") as f:
            f.write(" ".join(pick.choice(words) for _ in range(400000)))
        if "small" in parts:
            nvme_against_resident(program, directory, "tiny", 16384, 5 * rounds)
        if "25m" in parts:
            nvme_against_resident(program, directory, "25m", 16384, rounds)
        lengths = 4096, 8192, 16384, 32768, 65536
        if "growth" in parts:
            growth(program, directory, "tiny", lengths, 2 * rounds)
        if "memory" in parts:
            memory(program, directory, "tiny", lengths[: -1 if rounds == 1 else None], "--device-mem 160M --host-mem 32M")


if __name__ == "__main__":
    main()
