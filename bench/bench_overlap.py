#!/usr/bin/env python3
"""Transfers behind compute, in real runs: cpu:discrete with links throttled so that the busier direction needs 70% and 130% of compute's time.
`bench_overlap.py BUILD [ROUNDS]`: half a minute a round, three by default, after a profile. Compute has one thread, so that copies have a core of
their own, as beside a GPU. Figures are one traced step's: compute's stall is what of the step it does not compute; hidden is the share of the busier lane's seconds that
compute does not stand still for; beside each stands what the plan says. A step during which the host takes processor time is run again."""
import json, os, statistics, subprocess, sys, tempfile

import bench

STEPS = 3  # the last one is traced
COMMON = ["--model", "25m", "--seq-len", "1024", "--tiles", "rows=256", "--threads", "1", "--device", "cpu:discrete", "--offload", "cpu", "--alpha", "1",
          "--update", "host", "--lr", "1e-4"]


def traced(path):
    """Seconds of the step, and busy seconds by lane."""
    events = json.load(open(path))["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    spans, busy = [e for e in events if e.get("ph") == "X"], {}
    for e in spans:
        busy[names[e["tid"]]] = busy.get(names[e["tid"]], 0) + e["dur"] * 1e-6
    return max(e["ts"] + e["dur"] for e in spans) * 1e-6, busy


def run(ltrain, work, gbps):
    """A run's last step, what its lanes did, its plan; and the share of processor time that the host took."""
    def once():
        out = tempfile.mkdtemp(dir=work)
        made = subprocess.run([ltrain, *COMMON, "--data", f"{work}/text", "--steps", str(STEPS), "--trace", str(STEPS), "--out", out, "--link-gbps", f"{gbps:.6g}"],
                              capture_output=True, text=True)
        if made.returncode:
            sys.exit(f"{made.args}: {made.stderr}")
        return *traced(f"{out}/trace-{STEPS:06d}.json"), json.load(open(f"{out}/plan.json"))

    return bench.calm(once, 3)


def main():
    build, rounds = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3
    ltrain, seen = f"{build}/src/cli/ltrain", {0.7: [], 1.3: []}
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR", build)) as work:
        os.environ["XDG_CACHE_HOME"] = f"{work}/cache"
        with open(f"{work}/text", "w") as f:
            f.write("the quick brown fox jumps over the lazy dog\n" * 5000)
        subprocess.run([ltrain, "plan", *COMMON, "--profile", "--out", f"{work}/plan"], capture_output=True, check=True)
        for turn in range(rounds):
            (step, busy, plan), taken = run(ltrain, work, 0)
            most = max(("h2d", "d2h"), key=lambda lane: plan["lanes"][lane]["bytes"])
            moved, compute = plan["lanes"][most]["bytes"] / 1e9, busy["compute"]
            bench.say(f"links free: step {step:.3f} s, compute {compute:.3f} s; {most} moves {moved:.3f} GB in {busy[most]:.3f} s; the host took {taken:.1%}")
            for share in seen:
                gbps = moved / (share * compute)
                (step, busy, plan), taken = run(ltrain, work, gbps)
                link, stall = plan["lanes"][most]["bytes"] / 1e9 / gbps, step - busy["compute"]
                row = {"link_gbps": gbps, "step": step, "compute": busy["compute"], "link": link, "share": link / busy["compute"], "busier": busy[most], "stall": stall / step,
                       "hidden": 1 - stall / busy[most], "over_link": step / link, "planned_step": plan["step"]["seconds"],
                       "planned_stall": plan["step"]["exposed_seconds"] / plan["step"]["seconds"], "host_took": taken}
                bench.say(f"{100 * share:.0f}%: " + ", ".join(f"{k} {v:.4g}" for k, v in row.items()))
                seen[share].append(row)
    at = {share: {k: statistics.median(r[k] for r in rows) for k in rows[0]} for share, rows in seen.items()}
    bench.report("70%: compute's stall, share of the step", at[0.7]["stall"], {"mark": 0.05, "planned": at[0.7]["planned_stall"]}, "", {"mark": 1}, "lower", **at[0.7])
    bench.report("70%: transfers hidden", at[0.7]["hidden"], {"mark": 0.9}, "", {"mark": 1}, **at[0.7])
    bench.report("130%: step over the link's time", at[1.3]["over_link"], {"mark": 1.05}, "", {"mark": 1}, "lower", **at[1.3])


if __name__ == "__main__":
    main()
