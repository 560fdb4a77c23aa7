"""Timing on a GPU that is kept busy: contenders take turns for as long as asked, so that all see the same clocks and temperatures."""
import json
import os
import statistics
import subprocess
import time

import torch

from running import replace


def batch_ms(call, repeats):
    """Milliseconds per call, by events around `repeats` calls."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(repeats):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / repeats


def take_turns(calls, seconds, batch=30.0):
    """Times every call of {name: call} in turn, each for about `batch` milliseconds, round by round until `seconds` have passed (three
    rounds at least). Returns {name: {median_ms, min_ms, max_ms, rounds}}. The first round is warm-up."""
    repeats = {}
    for name, call in calls.items():
        call()
        torch.cuda.synchronize()
        repeats[name] = max(1, int(batch / max(batch_ms(call, 1), 1e-3)))
    times = {name: [] for name in calls}
    started = time.monotonic()
    while True:
        for name, call in calls.items():
            times[name].append(batch_ms(call, repeats[name]))
        if time.monotonic() - started >= seconds and len(next(iter(times.values()))) >= 4:
            break
    return {name: {"median_ms": statistics.median(t[1:]), "min_ms": min(t[1:]), "max_ms": max(t[1:]), "rounds": len(t) - 1}
            for name, t in times.items()}


def machine():
    """Describes the machine that the numbers were measured on."""
    query = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.draw,power.limit,temperature.gpu"
    try:
        line = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True,
                              timeout=20).stdout.splitlines()[0]
        state = dict(zip(query.split(","), [v.strip() for v in line.split(",")]))
    except (OSError, IndexError, subprocess.TimeoutExpired):
        state = {}
    p = torch.cuda.get_device_properties(0)
    state.update(device=p.name, processors=p.multi_processor_count, memory_bytes=p.total_memory, torch=torch.__version__,
                 cuda=torch.version.cuda, cudnn=torch.backends.cudnn.version())
    return state


def write(name, result):
    path = os.path.join(os.environ.get("OUT", "."), name)
    replace(path, json.dumps(result, indent=1) + "\n")
    print(f"written: {path}")
