#!/usr/bin/env python3
"""Transfers behind compute, in real runs: cpu:discrete with throttled links, parameters, gradients and AdamW on the host. `bench_overlap.py BUILD [ROUNDS]`:
half a minute a round, two by default, after a profile of this machine (BENCH_PROFILE names a directory in which it is kept). The links are as fast as makes

    70%     the busier direction need 70% of compute's time in the pass (forward, backward) in which it has the most to do for compute's time,
    130%    and 130% in the one in which it has the least: then the step is what the transfers take.

Compute has one thread, so that copies have a core of their own, as beside a GPU. Figures are one traced step's: compute's stall is what of the step it does not compute;
hidden is the share of the busier lane's seconds that compute does not stand still for; beside them stands what the plan says. Runs that the host disturbs are repeated."""
import collections, json, os, statistics, subprocess, sys, tempfile

import bench, bench_predicted

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

STEPS = 2  # of which the last is traced
COMMON = ["--seq-len", "512", "--tiles", "rows=128", "--threads", "1", "--device", "cpu:discrete", "--offload", "acts=none,params=cpu,grads=cpu,optim=cpu", "--update", "host",
          "--alpha", "1", "--lr", "1e-4"]
LINKS = "h2d", "d2h"


def traced(path):
    """Seconds of the step; busy seconds by pass and lane; bytes by pass and lane."""
    events, busy, moved = json.load(open(path))["traceEvents"], collections.Counter(), collections.Counter()
    names = {e["tid"]: e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    spans = [e for e in events if e.get("ph") == "X"]
    for e in spans:
        where = "backward" if e["cat"] in "bl" else "forward", names[e["tid"]]
        busy[where] += e["dur"] * 1e-6
        moved[where] += e["args"]["bytes"]
    return max(e["ts"] + e["dur"] for e in spans) * 1e-6, busy, moved


def run(ltrain, work, gbps):
    """A run's last step, its plan, and the share of processor time that the host took."""
    def once():
        out = tempfile.mkdtemp(dir=work)
        made = subprocess.run([ltrain, "--model", f"{work}/llama", *COMMON, "--data", f"{work}/text", "--steps", str(STEPS), "--trace", str(STEPS), "--out", f"{out}/run",
                               "--link-gbps", f"{gbps:.6g}"], capture_output=True, text=True)
        if made.returncode:
            sys.exit(f"{made.args}: {made.stderr}")
        return *traced(f"{out}/run/trace-{STEPS:06d}.json"), json.load(open(f"{out}/run/plan.json"))

    return bench.calm(once, 2)


def measure(ltrain, work, gbps):
    (step, busy, moved, plan), taken = run(ltrain, work, gbps)
    total = lambda x, lane: x["forward", lane] + x["backward", lane]
    compute, most = total(busy, "compute"), max(LINKS, key=lambda lane: total(moved, lane))
    link, stall = total(moved, most) / 1e9 / gbps, step - compute
    return {"link_gbps": gbps, "step": step, "compute": compute, "link": link, "busier": total(busy, most), "stall": stall / step, "hidden": 1 - stall / total(busy, most),
            "over_link": step / link, "planned_step": plan["step"]["seconds"], "planned_stall": plan["step"]["exposed_seconds"] / plan["step"]["seconds"], "host_took": taken}


def main():
    build, rounds = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2
    ltrain, seen = f"{build}/src/cli/ltrain", {"70%": [], "130%": []}
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR", build)) as work:
        os.environ["XDG_CACHE_HOME"] = kept = os.environ.get("BENCH_PROFILE", f"{work}/cache")
        with open(f"{work}/text", "w") as f:
            f.write("the quick brown fox jumps over the lazy dog\n" * 5000)
        bench_predicted.write_model(f"{work}/llama", "llama", d=384, layers=32, vocab=256)
        if not os.path.exists(kept):
            subprocess.run([ltrain, "plan", "--model", f"{work}/llama", *COMMON, "--profile", "--out", f"{work}/plan"], capture_output=True, check=True)
        for turn in range(rounds):
            (step, busy, moved, _), taken = run(ltrain, work, 0)
            need = [max(moved[p, lane] for lane in LINKS) / 1e9 / busy[p, "compute"] for p in ("forward", "backward")]
            bench.say(f"links free: step {step:.3f} s, compute {busy['forward', 'compute']:.3f} + {busy['backward', 'compute']:.3f} s, which is the links' at {need[0]:.3f} and {need[1]:.3f} GB/s;"
                      f" the host took {taken:.1%}")
            for share, gbps in ("70%", max(need) / 0.7), ("130%", min(need) / 1.3):
                seen[share].append(measure(ltrain, work, gbps))
                bench.say(f"{share}: " + ", ".join(f"{k} {v:.4g}" for k, v in seen[share][-1].items()))
    at = {share: {k: statistics.median(r[k] for r in rows) for k in rows[0]} for share, rows in seen.items()}
    bench.report("70%: compute's stall, share of the step", at["70%"]["stall"], {"mark": 0.05, "planned": at["70%"]["planned_stall"]}, "", {"mark": 1}, "lower", **at["70%"])
    bench.report("70%: transfers hidden", at["70%"]["hidden"], {"mark": 0.9}, "", {"mark": 1}, **at["70%"])
    bench.report("130%: step over the link's time", at["130%"]["over_link"], {"mark": 1.05}, "", {"mark": 1}, "lower", **at["130%"])


if __name__ == "__main__":
    main()
