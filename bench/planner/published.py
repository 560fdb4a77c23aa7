#!/usr/bin/env python3
"""Plans beside published runs of meshes: `bench/planner/published.py LTRAIN [OUT] [--only WORD] [--jobs N]` prints a table, and writes it to OUT.

Each row of published.csv is planned twice at effort quick: on its own mesh (dp, tp, pp, no slices of sequences, micro-batch, ZeRO, and
the offloading that is named; stages share a model's ends, which needs ZeRO 1) and on the one that ltrain takes, with --micro-batch auto.
Seconds are of a step; a row without has them from its TFLOP/s. TFLOP/s are per GPU, in the source's count and in ours (6 a parameter and
token, causal attention, nothing twice). Nothing is fitted to what was published.

Counts of the sources: 8P: 8 a parameter and token. 96BLSh2: the formula of [Megatron], with the layers' forward pass twice as 8P has it.
Sources:
[BigScience] github.com/bigscience-workshop/bigscience, experiments/gpt2.md at 9e64ede; shapes from its scripts; of each setting the fastest
  run, all with checkpointing of activations and fp16 on nodes of four V100-32GB.
[Megatron] Narayanan et al., arXiv 2104.04473, table 1. [MT-NLG] Smith et al., arXiv 2201.11990, 280, 350 and 420 nodes of 8 A100-80GB.
Machines: data sheets. v100-32 is plans only: 125 TFLOP/s of which products reach 95, 720 GB/s, NVLink 120 GB/s, 10.6 GB/s a GPU across
nodes, PCIe 9 GB/s, 40 GiB of host memory a GPU; bf16 stands for fp16, which has as many bytes.
"""
import argparse
import concurrent.futures
import csv
import json
import os
import subprocess
import tempfile

PLAN_SECONDS = 900
HERE = os.path.dirname(os.path.abspath(__file__))
GPT_CONFIG = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}
V100 = """like: a100-40
name: v100-32
source: data sheet x stated efficiencies
nodes: {nodes}
devices: 4
device-mem: 32GB
host-mem: 160GiB
h2d: 9GB/s
d2h: 9GB/s
inside: 120GB/s
across: 10.6GB/s
peak-flops: {{fp32: 15.7e12, bf16: 125e12}}
gemm: {{fp32: 14e12, bf16: 95e12}}
attention: {{bf16: {{128: {{forward: 50e12, backward: 40e12}}}}, fp32: {{128: {{forward: 8e12, backward: 6e12}}}}}}
memory: 7.2e11
"""
NUMBERS = ("devices", "layers", "width", "heads", "vocab", "tokens", "batch", "dp", "tp", "pp", "micro", "zero")


def read_rows(path):
    with open(path, newline="") as f:
        rows = list(csv.DictReader(f))
    for row in rows:
        row.update({key: int(row[key]) for key in NUMBERS})
        row["parameters"] = 12 * row["layers"] * row["width"]**2 + row["vocab"] * row["width"]
        row["seconds"] = float(row["seconds"] or counted(row) / row["devices"] / float(row["tflops"]) / 1e12)
    return rows


def counted(row):
    """FLOPs of a step in the source's count."""
    tokens = row["batch"] * row["tokens"]
    if row["count"] == "8P":
        return 8 * row["parameters"] * tokens
    layers, width = row["layers"], row["width"]
    return 96 * tokens * layers * width**2 * (1 + row["tokens"] / (6 * width) + row["vocab"] / (16 * layers * width))


def write_model(row, directory):
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "config.json"), "w") as f:
        json.dump({**GPT_CONFIG, "vocab_size": row["vocab"], "n_layer": row["layers"], "n_embd": row["width"], "n_head": row["heads"],
                   "n_positions": row["tokens"]}, f)


def machine(row, directory):
    if row["machine"] != "v100-32":
        return f"{row['devices']}x{row['machine']}"
    path = os.path.join(directory, "machine.yaml")
    with open(path, "w") as f:
        f.write(V100.format(nodes=row["devices"] // 4))
    return path


def plan(ltrain, row, options):
    """The plan as a dictionary, or a sentence."""
    with tempfile.TemporaryDirectory() as directory:
        write_model(row, os.path.join(directory, "gpt"))
        command = [ltrain, "plan", "--json", "--dtype", "bf16", "--effort", "quick", "--model", "./gpt", "--seq-len", str(row["tokens"]),
                   "--batch", str(row["batch"]), "--machine", machine(row, directory), *options]
        try:
            done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=PLAN_SECONDS)
        except subprocess.TimeoutExpired:
            return f"not planned within {PLAN_SECONDS} s"
    if not done.stdout.startswith("{"):
        return done.stderr.strip().replace("ltrain: ", "").split("\n")[-1] or f"exit status {done.returncode}"
    found = json.loads(done.stdout)
    return found if found["fits"] else f"does not fit: {found['misfit']}"


def own_mesh(row):
    """Options for the mesh that was published; stages share the ends of a model, which needs ZeRO 1."""
    mesh = ",".join(f"{name}={row[name]}" for name in ("dp", "tp", "pp") if row[name] > 1) + (",slices=1" if row["pp"] > 1 else "")
    return ["--mesh", mesh, "--zero", str(max(row["zero"], int(row["pp"] > 1))), "--micro-batch", str(row["micro"]), "--offload", row["offload"] or "none"]


def describe(p):
    s = p["strategy"]
    return ",".join(f"{name}={s[name]}" for name in ("dp", "ulysses", "ring", "tp", "pp", "slices") if s.get(name, 1) > 1) + f" zero={s['zero']}"


def rates(row, p):
    if isinstance(p, str):
        return p
    s = p["step"]["seconds"]
    per = 1e12 * s * row["devices"]
    return f"{s:8.4g} s {row['seconds'] / s:5.2f}x {counted(row) / per:6.1f} {p['step']['model_flops'] / per:6.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ltrain")
    parser.add_argument("out", nargs="?")
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=1)
    a = parser.parse_args()
    rows = [r for r in read_rows(os.path.join(HERE, "published.csv")) if a.only in f"{r['source']} {r['note']}"]
    out = open(a.out, "w") if a.out else None

    def say(line):
        print(line, flush=True)
        if out:
            out.write(line + "\n")
            out.flush()

    say(__doc__.split("\n\n", 1)[1])
    say("x: as many times as fast as published; then TFLOP/s in the source's count and in ours")
    ltrain = os.path.abspath(a.ltrain)
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        both = [(row, pool.submit(plan, ltrain, row, own_mesh(row)), pool.submit(plan, ltrain, row, ["--micro-batch", "auto"])) for row in rows]
        for row, own, taken in both:
            mesh = f"dp={row['dp']} tp={row['tp']} pp={row['pp']} zero={row['zero']} {row['offload']}"
            say(f"{row['source']}, {row['note']}: {row['parameters'] / 1e9:.0f}B on {row['devices']} {row['machine']}, {row['batch']} x {row['tokens']} tokens\n"
                f"  published {row['seconds']:8.4g} s        {float(row['tflops']):6.1f}         {mesh}, {row['micro']} a micro-batch\n"
                f"  this mesh {rates(row, own.result())}\n"
                f"  taken     {rates(row, taken.result())}  {'' if isinstance(taken.result(), str) else describe(taken.result())}")


if __name__ == "__main__":
    main()
