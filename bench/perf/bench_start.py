#!/usr/bin/env python3
"""Starting where there is no NVIDIA driver: `ltrain --version`, what `--device auto` adds to a small plan, and the refusal of `--device cuda`. Wall time and
the processors' (user and system), medians of many, in turn."""
import ctypes, os, statistics, subprocess, sys, time

import bench

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

ROUNDS, MARK = 100, 0.010
PLAN = "plan --model tiny --seq-len 256 --effort quick --device"


def started(command, status=0):
    """(wall, processors') seconds of a run."""
    begun = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, word, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - begun
    child.returncode = os.waitstatus_to_exitcode(word)
    if child.returncode != status:
        sys.exit(f"{' '.join(command)}: exit status {child.returncode}, not {status}")
    return wall, usage.ru_utime + usage.ru_stime


def main():
    try:
        ctypes.CDLL("libcuda.so.1")
        sys.exit("there is a driver here")
    except OSError:
        pass
    ltrain = os.path.join(sys.argv[1], "src/cli/ltrain")
    asked = {"version": ("--version", 0), "cpu": (f"{PLAN} cpu", 0), "auto": (f"{PLAN} auto", 0), "cuda": (f"{PLAN} cuda", 2)}
    times = {k: [] for k in asked}
    for i in range(-1, ROUNDS):
        for k in list(asked)[:: -1 if i % 2 else 1]:
            took = started([ltrain] + asked[k][0].split(), asked[k][1])
            if i >= 0:
                times[k].append(took)
    of = lambda k, which: [t[which] for t in times[k]]
    added = lambda which: [a - c for a, c in zip(of("auto", which), of("cpu", which))]
    for case, wall, processors in (("ltrain --version", of("version", 0), of("version", 1)), ("what --device auto adds to a plan", added(0), added(1)),
                                   ("--device cuda is refused", of("cuda", 0), of("cuda", 1))):
        bench.report(case, max(statistics.median(wall), 1e-6), {"mark": MARK}, "s", {"mark": 1}, "lower", least=min(wall),
                     processors=statistics.median(processors), runs=ROUNDS)


if __name__ == "__main__":
    main()
