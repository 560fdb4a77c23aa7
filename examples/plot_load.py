#!/usr/bin/env python3
"""Load of experts over the steps of runs, as SVG: plot_load.py RUN [RUN ...] > load.svg. Above the loss, below the tokens of the busiest
expert by the mean of all: the mean of the layers, and (thin) the least even layer."""
import json, os, sys

WIDTH, HEIGHT, LEFT, TOP, GAP = 640, 180, 56, 40, 44
COLOURS = ["#1b6ca8", "#c8553d", "#4d7c3a", "#7a4da0"]


def read(run):
    steps = [json.loads(line) for line in open(os.path.join(run, "metrics.jsonl"))]
    steps = [s for s in steps if "expert_load" in s]
    if not steps:
        sys.exit(f"plot_load: {run}/metrics.jsonl has no step of a model with experts")
    return steps


def panel(top, title, lines, last):
    """One diagram: lines of (values by step, colour, width), from 0 to the largest value."""
    most = max(max(v) for v, _, _ in lines) * 1.05
    x = lambda i: LEFT + i * WIDTH / max(1, last - 1)
    y = lambda v: top + HEIGHT * (1 - v / most)
    out = [f'<text x="{LEFT}" y="{top - 8}" class="title">{title}</text>',
           f'<path d="M{LEFT},{top}V{top + HEIGHT}H{LEFT + WIDTH}" class="axis"/>']
    for k in range(5):
        v = most * k / 4
        out.append(f'<text x="{LEFT - 6}" y="{y(v) + 4:.1f}" class="tick" text-anchor="end">{v:.1f}</text>')
    for values, colour, width in lines:
        points = " ".join(f"{x(i):.1f},{y(v):.1f}" for i, v in enumerate(values))
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
    out += [f'<text x="{x(i):.1f}" y="{top + HEIGHT + 16}" class="tick" text-anchor="middle">{i + 1}</text>' for i in (0, last // 2, last - 1)]
    return out


def main():
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return
    runs = [(os.path.basename(r.rstrip("/")), read(r), COLOURS[i % len(COLOURS)]) for i, r in enumerate(sys.argv[1:])]
    last = max(len(steps) for _, steps, _ in runs)
    below = TOP + HEIGHT + GAP
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 24} {below + HEIGHT + 48}" font-family="sans-serif">',
           '<style>.title{font-size:13px;fill:#333}.tick{font-size:11px;fill:#555}.axis{fill:none;stroke:#999}</style>',
           '<rect width="100%" height="100%" fill="#fff"/>']
    out += panel(TOP, "loss", [([s["loss"] for s in steps], colour, 1.6) for _, steps, colour in runs], last)
    load = []
    for _, steps, colour in runs:
        load += [([s["expert_load"] for s in steps], colour, 1.8), ([s["expert_load_worst"] for s in steps], colour, 0.7)]
    out += panel(below, "tokens of the busiest expert, by the mean of all (thin: the least even layer)", load, last)
    for i, (name, _, colour) in enumerate(runs):
        out.append(f'<text x="{LEFT + 150 * i}" y="{below + HEIGHT + 38}" fill="{colour}" font-size="12">{name}</text>')
    print("\n".join(out + ["</svg>"]))


if __name__ == "__main__":
    main()
