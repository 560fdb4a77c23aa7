#!/usr/bin/env python3
"""Steps beside another program that keeps as many threads busy as there are cores: fairly shared, a step takes twice as long. `bench_busy.py BUILD
[BUILD...]`, or programs in place of builds: side by side, so that a change can be seen. BENCH_BUSY: rounds, three by default; a quarter of a minute each and build."""
import json, os, resource, statistics, subprocess, sys, tempfile

import bench

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

STEPS = 8  # the first two are left out: they touch memory for the first time or have no update
COMMON = ["--model", "tiny", "--seq-len", "2048", "--tiles", "rows=512", "--threads", "2", "--steps", str(STEPS), "--lr", "1e-4"]
PLACES = {"none": [], "nvme": [], "cpu": ["--device", "cpu:discrete"]}


def run(ltrain, work, offload):
    """Seconds of the median step, how often its threads slept, and how often they were sent away."""
    out, before = tempfile.mkdtemp(dir=work), resource.getrusage(resource.RUSAGE_CHILDREN)
    made = subprocess.run([ltrain, *COMMON, "--offload", offload, *PLACES[offload], "--nvme-path", work, "--data", f"{work}/text", "--out", out], capture_output=True, text=True)
    if made.returncode:
        sys.exit(f"{made.args}: {made.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = [json.loads(line)["seconds"] for line in open(f"{out}/metrics.jsonl")][2:]
    return statistics.median(seconds), (after.ru_nvcsw - before.ru_nvcsw) / STEPS, (after.ru_nivcsw - before.ru_nivcsw) / STEPS


def main():
    programs = [os.path.join(b, "src/cli/ltrain") if os.path.isdir(b) else b for b in map(os.path.abspath, sys.argv[1:])]
    rounds, spin, seen = int(os.environ.get("BENCH_BUSY", 3)), [sys.executable, "-c", "while True: pass"], {}
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR", os.getcwd())) as work:
        with open(f"{work}/text", "w") as f:
            f.write("the quick brown fox jumps over the lazy dog\n" * 5000)
        for turn in range(rounds):
            for busy in (0, len(os.sched_getaffinity(0))):
                spinners = [subprocess.Popen(spin) for _ in range(busy)]
                for offload in PLACES:
                    for program in programs[:: -1 if turn % 2 else 1]:
                        stolen, total = bench.ticks()
                        seen.setdefault((program, offload, busy > 0), []).append(run(program, work, offload))
                        now = bench.ticks()
                        bench.say(f"{program} {offload} {'busy' if busy else 'quiet'}: {seen[program, offload, busy > 0][-1]}, the host took {(now[0] - stolen) / max(1, now[1] - total):.1%}")
                for s in spinners:
                    s.kill()
                    s.wait()
    at = {k: [statistics.median(x) for x in zip(*v)] for k, v in seen.items()}
    for program in programs:
        for offload in PLACES:
            quiet, busy = at[program, offload, False], at[program, offload, True]
            bench.report(f"{os.path.relpath(program)}, --offload {offload}: step beside two busy threads", busy[0], {"quiet": quiet[0]}, "s", {"quiet": 1 / 2.2}, "lower",
                         sleeps={"quiet": quiet[1], "busy": busy[1]}, sent_away={"quiet": quiet[2], "busy": busy[2]}, rounds={"quiet": [x[0] for x in seen[program, offload, False]], "busy": [x[0] for x in seen[program, offload, True]]})


if __name__ == "__main__":
    main()
