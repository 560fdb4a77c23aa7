#!/usr/bin/env python3
"""A dynamic programme over layers beside ltrain's mesh: `bench/planner/galvatron.py LTRAIN CLOSED_FORM [OUT]`.

After Galvatron (VLDB 2023): stages outside, and for each layer of a stage a strategy of its own (dp, ulysses, ring, tp, ZeRO stage), with
the cost of passing rows between layers of unlike strategies. The costs are those of the search's own closed form, which CLOSED_FORM
(bench/planner/closed_form.c) prints for every mesh; a layer costs its share of a step in which all layers have its strategy. A layer may
also take 1/4 to 4 times its share of the device's memory, for the seconds that the closed form then gives, so that layers may keep more or
less, or divide their state differently; the shares of a stage's layers add up to its memory. Rows between unlike layers are charged
half their bytes at the rate inside a node, both ways, which is a bound in favour of the programme.

For each request: the best mesh that all layers share in closed form, the programme's best, and the plan of ltrain (`--zero auto`: the
programme chooses stages, too) with its mesh's closed form. Where the programme promises 1% less than the plan's mesh, its mesh is
planned by hand (`--mesh`), if all layers share one, and both plans' seconds are compared.
"""
import collections
import json
import os
import subprocess
import sys
import tempfile

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

import numpy as np

K, M = 1 << 10, 1 << 20
LAYOUTS = 12  # kept for each number of stages, slices and micro-batches: the fastest with the least and with all memory
FILES = {"4x8xa100-80 at 2.6 GB/s": ("a100-80", 4, 8, 3.25e8), "4x4xrtx4090 over 10 GbE": ("rtx4090", 4, 4, 3.125e8),
         "2x8xh100 over 25 GbE": ("h100", 2, 8, 3.9e8)}
REQUESTS = [("8b", 128 * K, 1, "4x8xa100-80 at 2.6 GB/s"), ("8b", 8 * K, 64, "4x8xa100-80 at 2.6 GB/s"),
            ("8b", 128 * K, 1, "4x4xrtx4090 over 10 GbE"), ("8b", 32 * K, 4, "4x4xrtx4090 over 10 GbE"),
            ("8b", 64 * K, 1, "2x8xh100 over 25 GbE"), ("8b", 4 * K, 128, "2x8xh100 over 25 GbE"),
            ("8b", 8 * K, 64, "8xa100-80"), ("8b", 8 * K, 16, "64xh100"), ("8b", 1 * K, 8, "64xh100"),
            ("8b", 8 * K, 128, "8xa100-40"), ("gpt-25b", 8 * K, 64, "32xa100-40"), ("gpt-25b", 2 * K, 256, "8xh100"),
            ("1b", 4 * K, 64, "4xa100-80"), ("1b", 512, 64, "512xh100")]

Layout = collections.namedtuple("Layout", "dp ulysses ring tp zero packed")
Mix = collections.namedtuple("Mix", "seconds pp slices layouts")  # layouts: those of a stage's layers


def read_form(program, request, machine):
    """The model, budgets, and by (stages, slices, micro-batches) each layout's seconds with each budget."""
    model, tokens, batch, _ = request
    text = subprocess.run([program, model, str(tokens), str(batch), machine], capture_output=True, text=True, check=True).stdout.splitlines()
    head = text[0].split()
    about = {"layers": int(head[0]), "dim": int(head[1]), "inside": float(head[2]), "ranks": int(head[3]), "budgets": list(map(float, head[4:]))}
    groups = collections.defaultdict(dict)
    for line in text[1:]:
        f = line.split()
        dp, u, r, tp, pp, c, packed, zero, m = map(int, f[:9])
        if float(f[9]) <= 1:
            groups[pp, c, m][Layout(dp, u, r, tp, zero, packed)] = np.array(list(map(float, f[10:])))
    return about, groups


def programme(about, key, layouts, rows_seconds):
    """The best strategies of a stage's layers: seconds, and the layout of each layer."""
    quarter = [int(4 * b) for b in about["budgets"]]
    layers, units = -(-about["layers"] // key[0]), 4 * -(-about["layers"] // key[0])
    order = sorted(layouts, key=lambda l: layouts[l][3])[:LAYOUTS // 2] + sorted(layouts, key=lambda l: layouts[l][0])[:LAYOUTS // 2]
    order = list(dict.fromkeys(order))
    best = np.full((len(order), units + 1), np.inf)
    came = []
    for layer in range(layers):
        now, back = np.full_like(best, np.inf), np.full(best.shape + (2,), -1)
        for i, layout in enumerate(order):
            conversion = np.array([0 if order[j][:4] == layout[:4] else rows_seconds for j in range(len(order))])
            reach = (best + conversion[:, None]) if layer else np.zeros((1, units + 1))
            least, source = reach.min(axis=0), reach.argmin(axis=0)
            for b, q in enumerate(quarter):
                if q > units:
                    continue
                cost = np.full(units + 1, np.inf)
                cost[q:] = least[:units + 1 - q] + layouts[layout][b] / layers
                better = cost < now[i]
                now[i][better] = cost[better]
                at = np.nonzero(better)[0]
                back[i][at, 0], back[i][at, 1] = source[at - q], at - q
        best = now
        came.append(back)
    i, u = np.unravel_index(best.argmin(), best.shape)
    seconds, taken = best[i, u], []
    for back in reversed(came):
        taken.append(order[i])
        i, u = back[i, u]
    return Mix(float(seconds), key[0], key[1], taken[::-1])


def mesh_option(layout, pp, slices):
    parts = f",tp={layout.tp}" if layout.tp > 1 else ""
    parts += f",pp={pp},slices={slices}" if pp > 1 else ""
    return ["--mesh", f"dp={layout.dp},ulysses={layout.ulysses},ring={layout.ring}{parts}", "--zero", str(layout.zero)]


def mesh_text(layout, pp, slices):
    text = f"{layout.dp}/{layout.ulysses}/{layout.ring}" + (f" t{layout.tp}" if layout.tp > 1 else "")
    return text + (f" p{pp}/{slices}" if pp > 1 else "") + f" z{layout.zero}" + (f" x{layout.packed}" if layout.packed > 1 else "")


def plan(ltrain, request, machine, more):
    model, tokens, batch, _ = request
    done = subprocess.run([ltrain, "plan", "--json", "--model", model, "--seq-len", str(tokens), "--batch", str(batch), "--machine", machine,
                           *(more or ["--zero", "auto"])], capture_output=True, text=True)
    return json.loads(done.stdout) if done.stdout.startswith("{") else None


def chosen_form(p, groups):
    """The least closed form of the plan's mesh and ZeRO stage, over micro-batches."""
    s = p["strategy"]
    own = [float(f[3]) for (pp, c, _), layouts in groups.items() for l, f in layouts.items()
           if (pp, c) == (s.get("pp") or 1, s.get("slices") or 1) and
           (l.dp, l.ulysses, l.ring, l.tp, l.zero) == (s["dp"], s["ulysses"], s["ring"], s.get("tp") or 1, s["zero"])]
    return min(own, default=float("nan"))


def row(ltrain, form, request, machine):
    """A line of the table, and the programme's seconds over those of ltrain's mesh or, where both were planned, of plans."""
    model, tokens, batch, name = request
    about, groups = read_form(form, request, machine)
    rows = tokens * batch * about["dim"] * 2 / about["ranks"] / about["inside"]  # half of the bytes of bf16 rows, both ways
    shared = min((float(f[3]), key, l) for key, layouts in groups.items() for l, f in layouts.items())
    one = Mix(shared[0], shared[1][0], shared[1][1], [shared[2]])
    mixes = [programme(about, key, layouts, rows * key[0]) for key, layouts in groups.items()
             if min(float(f.min()) for f in layouts.values()) < shared[0]]
    mix = min([one] + mixes, key=lambda m: m.seconds)
    unlike = len(set(mix.layouts))
    p = plan(ltrain, request, machine, [])
    own, s = chosen_form(p, groups), p["strategy"]
    chosen = Layout(s["dp"], s["ulysses"], s["ring"], s.get("tp") or 1, s["zero"], 1)
    gain, note = own / mix.seconds, ""
    if gain > 1.01 and unlike == 1:
        other = plan(ltrain, request, machine, mesh_option(mix.layouts[0], mix.pp, mix.slices))
        if other and other["fits"]:
            gain = p["step"]["seconds"] / other["step"]["seconds"]
            note = f"  planned: {p['step']['seconds']:.4g}, the programme's mesh {other['step']['seconds']:.4g}"
    size = f"{tokens // K}k" if tokens >= K else str(tokens)
    return (f"{model + ' ' + size + ' x ' + str(batch) + ' on ' + name:40} {shared[0]:8.4g} {mesh_text(shared[2], *shared[1][:2]):18}"
            f" {mix.seconds:8.4g} {unlike:2} {shared[0] / mix.seconds:6.3f}  {own:8.4g} {mesh_text(chosen, s.get('pp') or 1, s.get('slices') or 1):18}"
            f" {gain:6.3f}{note}"), gain


def main():
    ltrain, form, out = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None
    lines, worst = [], 0

    def say(text):
        lines.append(text)
        print(text, flush=True)

    say("seconds in closed form; mesh: dp/ulysses/ring tTP pSTAGES/SLICES zZERO xPACKED; layouts: unlike ones among a stage's layers\n"
        f"{'request':40} {'one mesh':>8} {'':18} {'by layer':>8} {'layouts':>2} {'gain':>3}  {'ltrain':>6} {'':18} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as directory:
        for request in REQUESTS:
            machine = request[3]
            if machine in FILES:
                sheet, nodes, devices, across = FILES[machine]
                machine = os.path.join(directory, "machine.yaml")
                with open(machine, "w") as f:
                    f.write(f"like: {sheet}\nnodes: {nodes}\ndevices: {devices}\nacross: {across:g}\n")
            text, gain = row(ltrain, form, request, machine)
            say(text)
            worst = max(worst, gain)
    say(f"{len(REQUESTS)} requests; the programme is at most {100 * (worst - 1):.1f}% better")
    if out:
        with open(out, "w") as f:
            f.write("\n".join(lines) + "\n")
    return worst > 1.01


if __name__ == "__main__":
    sys.exit(main())
