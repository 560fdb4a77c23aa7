#!/usr/bin/env python3
"""The mesh that `ltrain plan` chooses beside every mesh given by hand: `bench/planner/mesh_table.py LTRAIN [OUT]`.

Each of the 80 requests is planned without --mesh, and with every --mesh that is legal for it, on data sheet machines; seconds are the
plans' own, of a step. Meshes that cannot be the best are not planned: every micro-batch gathers and reduces the same bytes among all
ranks on every mesh, and messages share one stream, so that a mesh takes at least its micro-batches times what the plan chosen spends on
these messages in one. At `--effort normal` (which is hours of work; quick is minutes) those whose quick plan takes more than FAR times
the best quick plan are left out, too. The last 20 requests are of nodes with slow links and of few tokens a rank: there meshes
with slices (tp) or stages (pp) of layers are given by hand, too: tp with ZeRO 1, pp without a ring, in the four largest numbers of slices. `--only N` of the requests, evenly spread, `--jobs N` at once, `--keep FILE` keeps what was planned
for the next start.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import threading

PLAN_SECONDS = 1200
FAR = 1.6
SLICE_ROWS = 512
K, M = 1 << 10, 1 << 20


def llama(layers, width, heads, kv, ffn, vocab=128256):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "vocab_size": vocab, "hidden_size": width,
            "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv,
            "head_dim": width // heads if width // heads <= 128 else 128, "max_position_embeddings": 8 * M, "rms_norm_eps": 1e-5,
            "rope_theta": 500000.0, "tie_word_embeddings": False}


CONFIGS = {"3b": llama(28, 3072, 24, 8, 8192), "13b": llama(40, 5120, 40, 40, 13824, 32000), "14b": llama(48, 5120, 40, 8, 13824, 152064),
           "32b": llama(64, 5120, 40, 8, 27648, 152064), "70b": llama(80, 8192, 64, 8, 28672)}
PRESETS = {"1b": (32, 8), "8b": (32, 8), "gpt-25b": (64, 64)}  # heads, KV heads
LORA = "--lora r=16"
# model, tokens, batch, devices, sheet, more options
REQUESTS = [
    ("1b", 1 * K, 4096, 8, "a100-40", ""), ("1b", 2 * K, 512, 8, "h100", ""), ("1b", 4 * K, 64, 4, "a100-80", ""),
    ("1b", 8 * K, 64, 16, "h200", ""), ("1b", 16 * K, 8, 8, "a100-40", ""), ("1b", 32 * K, 4, 16, "h100", ""),
    ("1b", 64 * K, 16, 8, "a100-80", ""), ("1b", 128 * K, 2, 8, "h200", ""), ("1b", 256 * K, 1, 8, "a100-40", ""),
    ("1b", 1 * M, 1, 16, "h100", ""), ("1b", 4 * K, 32, 1, "h100", ""), ("1b", 8 * K, 6, 4, "rtx4090", ""),
    ("3b", 1 * K, 2048, 16, "a100-80", ""), ("3b", 4 * K, 256, 32, "h100", ""), ("3b", 8 * K, 24, 12, "h200", ""),
    ("3b", 32 * K, 8, 8, "a100-40", ""), ("3b", 128 * K, 4, 32, "h100", ""), ("3b", 512 * K, 2, 16, "h200", ""),
    ("3b", 16 * K, 3, 8, "h100", ""), ("3b", 64 * K, 1, 2, "a100-80", ""),
    ("8b", 1 * K, 4096, 64, "h100", ""), ("8b", 2 * K, 1024, 64, "a100-80", ""), ("8b", 8 * K, 512, 64, "h100", ""),
    ("8b", 8 * K, 64, 8, "a100-80", ""), ("8b", 8 * K, 16, 64, "h100", ""), ("8b", 16 * K, 32, 32, "a100-40", ""),
    ("8b", 32 * K, 16, 16, "h200", ""), ("8b", 32 * K, 4, 64, "h100", ""), ("8b", 64 * K, 8, 8, "h100", ""),
    ("8b", 128 * K, 16, 64, "h100", ""), ("8b", 128 * K, 2, 8, "a100-40", ""), ("8b", 128 * K, 1, 32, "a100-40", ""),
    ("8b", 256 * K, 4, 32, "h200", ""), ("8b", 512 * K, 1, 8, "h100", ""), ("8b", 1 * M, 1, 64, "h100", ""),
    ("8b", 1 * M, 2, 32, "a100-80", ""), ("8b", 4 * K, 128, 16, "rtx4090", ""), ("8b", 8 * K, 10, 8, "h200", ""),
    ("8b", 8 * K, 64, 8, "h100", LORA), ("8b", 32 * K, 8, 16, "a100-40", LORA), ("8b", 128 * K, 2, 8, "a100-80", LORA),
    ("8b", 2 * K, 256, 4, "rtx4090", LORA + " --base nf4"), ("8b", 512 * K, 1, 16, "h100", LORA),
    ("13b", 4 * K, 128, 16, "a100-40", ""), ("13b", 16 * K, 16, 32, "h100", ""), ("13b", 64 * K, 2, 8, "h200", ""),
    ("13b", 256 * K, 1, 32, "a100-80", ""),
    ("14b", 8 * K, 40, 40, "h100", ""), ("14b", 32 * K, 8, 16, "h100", ""), ("14b", 128 * K, 4, 16, "a100-80", ""),
    ("gpt-25b", 8 * K, 64, 32, "a100-40", ""), ("gpt-25b", 32 * K, 8, 64, "h100", ""),
    ("32b", 4 * K, 512, 64, "h200", ""), ("32b", 64 * K, 4, 32, "a100-80", ""),
    ("70b", 4 * K, 1024, 64, "h100", ""), ("70b", 8 * K, 64, 64, "a100-80", ""), ("70b", 32 * K, 16, 64, "h100", ""),
    ("70b", 128 * K, 2, 64, "h200", ""), ("70b", 1 * M, 1, 64, "h100", ""), ("70b", 8 * K, 32, 16, "h100", LORA),
]

# Machines with slow links, as files: sheet, nodes, devices of a node, bytes a second of a device to another node.
MACHINES = {"4x8xa100-80 at 2.6 GB/s": ("a100-80", 4, 8, 3.25e8), "4x4xrtx4090 over 10 GbE": ("rtx4090", 4, 4, 3.125e8),
            "2x8xh100 over 25 GbE": ("h100", 2, 8, 3.9e8), "8x8xa100-80 over 100 GbE": ("a100-80", 8, 8, 1.56e9)}
PARTS = [
    ("8b", 128 * K, 1, 32, "4x8xa100-80 at 2.6 GB/s", ""), ("8b", 32 * K, 1, 32, "4x8xa100-80 at 2.6 GB/s", ""),
    ("8b", 8 * K, 64, 32, "4x8xa100-80 at 2.6 GB/s", ""), ("70b", 128 * K, 1, 32, "4x8xa100-80 at 2.6 GB/s", ""),
    ("1b", 256 * K, 1, 32, "4x8xa100-80 at 2.6 GB/s", ""), ("8b", 1 * M, 1, 32, "4x8xa100-80 at 2.6 GB/s", ""),
    ("8b", 128 * K, 1, 16, "4x4xrtx4090 over 10 GbE", ""), ("8b", 32 * K, 4, 16, "4x4xrtx4090 over 10 GbE", ""),
    ("8b", 8 * K, 1, 16, "4x4xrtx4090 over 10 GbE", ""), ("1b", 64 * K, 1, 16, "4x4xrtx4090 over 10 GbE", ""),
    ("8b", 420 * K, 1, 16, "4x4xrtx4090 over 10 GbE", ""),
    ("8b", 64 * K, 1, 16, "2x8xh100 over 25 GbE", ""), ("8b", 4 * K, 128, 16, "2x8xh100 over 25 GbE", ""),
    ("32b", 128 * K, 1, 16, "2x8xh100 over 25 GbE", ""),
    ("8b", 64 * K, 1, 64, "8x8xa100-80 over 100 GbE", ""), ("70b", 32 * K, 8, 64, "8x8xa100-80 over 100 GbE", ""),
    ("70b", 1 * K, 128, 1024, "h100", ""), ("8b", 1 * K, 8, 64, "h100", ""), ("70b", 32 * K, 1, 64, "h100", ""), ("1b", 512, 64, 512, "h100", ""),
]
LAYERS = {"1b": 16, "8b": 32}


def length(tokens):
    return f"{tokens // M}m" if tokens % M == 0 else f"{tokens // K}k" if tokens % K == 0 else str(tokens)


def heads_of(model):
    if model in PRESETS:
        return PRESETS[model]
    return CONFIGS[model]["num_attention_heads"], CONFIGS[model]["num_key_value_heads"]


def shares(request, ranks, slices=1):
    """Every legal (dp, ulysses, ring) of some ranks: no more sequences side by side than the batch has, ulysses that divides the heads."""
    model, _, batch, _, _, _ = request
    heads, kv = (n // slices for n in heads_of(model))
    found = []
    for dp in range(1, ranks + 1):
        if ranks % dp or dp > batch:
            continue
        sharing = ranks // dp
        found += [(dp, u, sharing // u) for u in range(1, sharing + 1) if sharing % u == 0 and heads % u == 0 and (kv % u == 0 or u % kv == 0)]
    return found


def meshes(request):
    """Every legal mesh (dp, ulysses, ring), and of requests in PARTS those with slices or stages of layers (.., tp, pp, slices)."""
    model, tokens, _, devices, sheet, _ = request
    found = shares(request, devices)
    if request not in PARTS:
        return found
    nodes, each = (MACHINES[sheet][1:3] if sheet in MACHINES else (devices // 8, 8))
    layers = LAYERS[model] if model in LAYERS else CONFIGS[model]["num_hidden_layers"]
    for tp in range(2, each + 1):
        if each % tp == 0 and heads_of(model)[1] % tp == 0:
            found += [share + (tp, 1, 1) for share in shares(request, devices // tp, tp)]
    for pp in range(2, min(nodes, layers) + 1):
        for share in shares(request, devices // pp) if nodes % pp == 0 else []:
            most = max(1, tokens // share[1] // SLICE_ROWS).bit_length() - 1
            if share[2] == 1:
                found += [share + (1, pp, 1 << i) for i in range(max(0, most - 3), most + 1)]
    return found


def text_of(request):
    model, tokens, batch, devices, sheet, more = request
    machine = sheet if sheet in MACHINES else f"{devices}x{sheet}"
    return f"{model} {length(tokens)} x {batch} on {machine}{' ' + more if more else ''}"


def mesh_text(mesh):
    text = f"{mesh[0]}/{mesh[1]}/{mesh[2]}"
    if len(mesh) > 3 and mesh[3] > 1:
        text += f" t{mesh[3]}"
    if len(mesh) > 3 and mesh[4] > 1:
        text += f" p{mesh[4]}/{mesh[5]}"
    return text


class Planner:
    """Plans, and what was planned before."""

    def __init__(self, ltrain, directory, keep):
        self.ltrain, self.directory, self.keep, self.lock, self.known = ltrain, directory, keep, threading.Lock(), {}
        if keep and os.path.exists(keep):
            with open(keep) as f:
                for line in f:
                    key, value = json.loads(line)
                    self.known[tuple(key)] = value

    def plan(self, request, mesh, effort):
        """seconds (None: does not fit), mesh, seconds of messages; or a sentence."""
        model, tokens, batch, devices, sheet, more = request
        key = (text_of(request), mesh_text(mesh) if mesh else "auto", effort)
        if key in self.known:
            return self.known[key]
        machine = self.machine_file(sheet) if sheet in MACHINES else f"{devices}x{sheet}"
        command = [self.ltrain, "plan", "--json", "--model", model, "--seq-len", str(tokens), "--batch", str(batch), "--machine",
                   machine, "--effort", effort, *more.split()]
        if mesh:
            command += ["--mesh", "dp={},ulysses={},ring={}".format(*mesh[:3]) + (",tp={},pp={},slices={}".format(*mesh[3:]) if len(mesh) > 3 else "")]
            command += ["--zero", "1"] if len(mesh) > 3 and mesh[3] > 1 else []
        value = self.read(command)
        with self.lock:
            self.known[key] = value
            if self.keep:
                with open(self.keep, "a") as f:
                    f.write(json.dumps([key, value]) + "\n")
        return value

    def machine_file(self, name):
        sheet, nodes, devices, across = MACHINES[name]
        path = os.path.join(self.directory, name.replace(" ", "-").replace("/", "-") + ".yaml")
        with self.lock:
            if not os.path.exists(path):
                with open(path, "w") as f:
                    f.write(f"like: {sheet}\nnodes: {nodes}\ndevices: {devices}\nacross: {across:g}\n")
        return path

    def read(self, command):
        try:
            done = subprocess.run(command, cwd=self.directory, capture_output=True, text=True, timeout=PLAN_SECONDS)
        except subprocess.TimeoutExpired:
            return f"not planned within {PLAN_SECONDS} s"
        if not done.stdout.startswith("{"):
            return done.stderr.strip().replace("ltrain: ", "")
        p = json.loads(done.stdout)
        s = p["strategy"]
        world = p["lanes"]["world"]["busy_seconds"] if "world" in p["lanes"] and s["input_every"] == 1 else 0
        return {"seconds": p["step"]["seconds"] if p["fits"] else None, "world": world,
                "mesh": (s["dp"], s["ulysses"], s["ring"], s.get("tp") or 1, s.get("pp") or 1, s.get("slices") or 1)}


def seconds_of(value):
    return value["seconds"] if isinstance(value, dict) and value["seconds"] else float("inf")


def micro_batches(request, mesh):
    return -(-request[2] // mesh[0])


def may_be_best(request, chosen, mesh):
    """By the bound of messages among all ranks."""
    if seconds_of(chosen) == float("inf") or len(mesh) > 3 or max(chosen["mesh"][3:]) > 1:
        return True
    each = chosen["world"] / micro_batches(request, chosen["mesh"])
    return each * micro_batches(request, mesh) <= chosen["seconds"]


def compare(planner, request, effort):
    """A row of the table."""
    legal = meshes(request)
    chosen = planner.plan(request, None, effort)
    own, best, mesh_of_best, planned = seconds_of(chosen), float("inf"), None, 0
    if len(legal) > 1:
        quick = {mesh: planner.plan(request, mesh, "quick") for mesh in legal if may_be_best(request, chosen, mesh)}
        least = min(map(seconds_of, quick.values()))
        for mesh in sorted(quick, key=lambda m: seconds_of(quick[m])):
            value = quick[mesh]
            if effort != "quick" and seconds_of(value) < float("inf"):
                if seconds_of(value) > FAR * least:
                    continue
                value = planner.plan(request, mesh, effort)
            planned += 1
            if seconds_of(value) < best:
                best, mesh_of_best = seconds_of(value), mesh
    return {"request": text_of(request), "chosen": chosen, "own": own, "best": best, "mesh": mesh_of_best, "legal": len(legal), "planned": planned}


def line_of(row):
    chosen = mesh_text(row["chosen"]["mesh"]) if isinstance(row["chosen"], dict) else row["chosen"]
    if row["mesh"] is None:
        return f"{row['request']:46} {chosen:>15} {row['own']:9.4g}          -         -       - {row['planned']:3} of {row['legal']}"
    return (f"{row['request']:46} {chosen:>15} {row['own']:9.4g} {mesh_text(row['mesh']):>15} {row['best']:9.4g} {row['own'] / row['best']:7.3f}"
            f" {row['planned']:3} of {row['legal']}")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("ltrain")
    options.add_argument("out", nargs="?")
    options.add_argument("--effort", default="normal", choices=["quick", "normal", "best"])
    options.add_argument("--only", type=int, default=len(REQUESTS) + len(PARTS))
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--keep")
    options.add_argument("--parts", action="store_true", help="the last 20 requests alone")
    a = options.parse_args()
    requests = PARTS if a.parts else REQUESTS + PARTS
    a.only = min(a.only, len(requests))
    asked = [requests[i * len(requests) // a.only] for i in range(a.only)]
    lines = []

    def say(text):
        lines.append(text)
        print(text, flush=True)

    with tempfile.TemporaryDirectory() as directory:
        for name, config in CONFIGS.items():
            os.mkdir(os.path.join(directory, name))
            with open(os.path.join(directory, name, "config.json"), "w") as f:
                json.dump(config, f)
        planner = Planner(os.path.abspath(a.ltrain), directory, a.keep)
        say(f"meshes are dp/ulysses/ring tTP pSTAGES/SLICES; seconds of a step; effort {a.effort}; the last column: meshes planned at that effort, of those that are legal\n"
            f"{'request':46} {'chosen':>15} {'seconds':>9} {'best':>15} {'seconds':>9} {'ratio':>7}")
        worst = 0
        with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
            for row in pool.map(lambda r: compare(planner, r, a.effort), asked):
                say(line_of(row))
                if row["mesh"] is not None:
                    worst = max(worst, row["own"] / row["best"])
        say(f"{len(asked)} requests; the mesh chosen takes at most {worst:.3f} times the best one's seconds")
    if a.out:
        with open(a.out, "w") as f:
            f.write("\n".join(lines) + "\n")
    return worst > 1.02


if __name__ == "__main__":
    sys.exit(main())
