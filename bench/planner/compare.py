#!/usr/bin/env python3
"""Two builds' planners side by side: `bench/planner/compare.py OLD NEW`.

Both plan the same requests in turn. For each: user and system seconds and the most memory of the process, and the predicted
step. `--random N` draws N requests (models, lengths, batches, budgets, machines, efforts; `--seed`), `--marks` takes the five of
docs/planner whose times are watched, `--times K` the median of K runs. The last lines: ratios of times, memory and steps.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

K, M = 1 << 10, 1 << 20
LLAMA_80 = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "vocab_size": 128256,
            "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": M, "rms_norm_eps": 1e-5,
            "rope_theta": 500000.0, "tie_word_embeddings": False}
MARKS = ["--model {80} --seq-len 1m --machine 8xh200 --host-mem 1.9T",
         "--model {80} --seq-len 1m --machine 8xh200 --host-mem 1.9T --effort quick", "--model 8b --max-seq --machine h200",
         "--model 8b --seq-len 128k --machine h200", "--model 8b --seq-len 1m --machine 64xa100-80"]


def drawn(rng):
    """Returns the options of a random request."""
    devices = rng.choice([1, 1, 1, 2, 4, 8, 16])
    sheet = rng.choice(["a100-40", "a100-80", "h100", "h200", "l40s", "rtx4090", "rtx3090", "gh200"])
    model = rng.choice(["25m", "125m", "1b", "8b", "gpt2-125m", "gpt-25b"])
    tokens = int(2 ** rng.uniform(11, 15 if model == "gpt-25b" else 18)) // 64 * 64
    options = ["--model", model, "--seq-len", str(tokens),
               "--machine", f"{devices}x{sheet}" if devices > 1 else sheet]
    if rng.random() < 0.3:
        options += ["--batch", str(devices * rng.choice([1, 2, 8]))]
    if rng.random() < 0.3:
        options += ["--host-mem", f"{int(2 ** rng.uniform(5, 11))}G"]
    if rng.random() < 0.25:
        options += ["--lora", "r=16"]
    if rng.random() < 0.2:
        options += ["--zero", rng.choice(["1", "2", "3"])]
    if rng.random() < 0.15:
        options += ["--alpha", rng.choice(["0", "0.25", "0.5", "1"])]
    return options + ["--effort", rng.choice(["normal", "normal", "quick"])]


def planned(program, options):
    """Returns seconds of processor, MiB, whether the plan fits, and the predicted step."""
    with tempfile.TemporaryFile("w+") as out:
        child = subprocess.Popen([program, "plan", "--json", *options], stdout=out, stderr=subprocess.DEVNULL)
        _, _, used = os.wait4(child.pid, 0)
        out.seek(0)
        text = out.read()
    try:
        plan = json.loads(text)
    except ValueError:
        plan = {"fits": False, "step": None, "refused": True}
    return {"seconds": used.ru_utime + used.ru_stime, "mib": used.ru_maxrss / 1024, "fits": bool(plan["fits"]), "refused": "refused" in plan,
            "tokens": plan.get("seq_len", 0), "step": (plan.get("step") or {}).get("seconds", 0) if plan["fits"] else 0}


def median(runs):
    """Returns the run of median seconds."""
    return sorted(runs, key=lambda r: r["seconds"])[len(runs) // 2]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("old")
    p.add_argument("new")
    p.add_argument("--random", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--marks", action="store_true")
    p.add_argument("--times", type=int, default=1)
    a = p.parse_args()
    rng, ratios, slower, lost, gained = random.Random(a.seed), [], [], 0, 0
    with tempfile.TemporaryDirectory() as dir:
        with open(os.path.join(dir, "config.json"), "w") as f:
            json.dump(LLAMA_80, f)
        requests = [m.replace("{80}", dir).split() for m in MARKS] if a.marks else []
        requests += [drawn(rng) for _ in range(a.random)]
        for options in requests:
            both = [[], []]
            for _ in range(a.times):
                for runs, program in zip(both, (a.old, a.new)):
                    runs.append(planned(program, options))
            old, new = median(both[0]), median(both[1])
            longer = new["step"] / old["step"] - 1 if old["step"] and new["step"] and old["tokens"] == new["tokens"] else 0
            ratios.append((new["seconds"] / old["seconds"], new["mib"] / old["mib"], longer, old["seconds"], new["seconds"]))
            lost += old["fits"] and not new["fits"]
            gained += new["fits"] and not old["fits"]
            print(f"{old['seconds']:7.2f} {new['seconds']:7.2f} s  x{ratios[-1][0]:.2f}   {old['mib']:5.0f} {new['mib']:5.0f} MiB"
                  f"  x{ratios[-1][1]:.2f}   step {old['step']:.6g} {new['step']:.6g} s  {100 * longer:+.2f}%"
                  f"{'' if old['fits'] == new['fits'] else '  FITS: ' + str(old['fits']) + ' ' + str(new['fits'])}"
                  f"{'  REFUSED: ' + str(old['refused']) + ' ' + str(new['refused']) if old['refused'] or new['refused'] else ''}"
                  f"  {' '.join(options).replace(dir, '80-layers')}", flush=True)
    steps = [r[2] for r in ratios]
    print(f"{len(ratios)} requests: time x{statistics.geometric_mean([r[0] for r in ratios]):.2f} (geometric mean), "
          f"x{sum(r[4] for r in ratios) / sum(r[3] for r in ratios):.2f} (sum), "
          f"memory x{statistics.geometric_mean([r[1] for r in ratios]):.2f}")
    print(f"steps: {100 * statistics.mean(steps):+.3f}% on average, from {100 * min(steps):+.2f}% to {100 * max(steps):+.2f}%, "
          f"{sum(s > 0.005 for s in steps)} more than 0.5% slower, {sum(s < -0.005 for s in steps)} more than 0.5% faster; "
          f"{lost} fit no longer, {gained} fit now")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
