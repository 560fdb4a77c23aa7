#!/usr/bin/env python3
"""Draws the pictures of docs/: `draw.py rooms >docs/pictures/rooms.svg`, `draw.py step TRACE.json >docs/pictures/step.svg`,
`draw.py lengths docs/pictures/lengths.json >docs/pictures/lengths.svg`.

rooms: the modules of src by floor, from tools/include-law.sh, as wide as they have lines. step: what the lanes of a step are
planned to do, from a trace (--trace N), coloured by what is moved or computed. lengths: the table that lengths.py has planned."""
import json
import math
import os
import sys
from xml.sax.saxutils import escape

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
WIDTH = 960
STYLE = """<style>
 svg { background: #fff; font: 12px sans-serif } text { fill: #222 } .small { font-size: 10px; fill: #555 } .box { stroke: #fff }
 @media (prefers-color-scheme: dark) { svg { background: #111 } text { fill: #ddd } .small { fill: #aaa } .box { stroke: #111 } }
</style>"""
ROOM_COLOURS = {"runs": "#f2c4a0", "compiles": "#a9cbe8", "executes": "#b9dcae", "ground": "#d5d5d5"}


def kind_of(module):
    """Returns the part that a module plays, a key of ROOM_COLOURS."""
    if module in ("cli", "api", "check", "doctor", "eval", "export", "replay", "report", "train", "checkpoint", "profile", "engine"):
        return "runs"
    if module.split("/")[0] in ("plan", "machine", "model", "seqpar", "verify", "program"):
        return "compiles"
    return "executes" if module in ("attention", "recurrence", "offload", "comm", "data", "tasks", "ops", "device", "parquet") else "ground"


def floors():
    """Returns the floors of the include law, the ground last."""
    text = open(os.path.join(ROOT, "tools/include-law.sh")).read()
    return [line.split() for line in text.split("floors='\n")[1].split("'")[0].splitlines()][::-1]


def lines_of(module, others):
    """Counts the lines of a module, without those of modules inside it."""
    top = os.path.join(ROOT, "src", module)
    inside = [os.path.join(ROOT, "src", m) for m in others if m.startswith(module + "/")]
    total = 0
    for folder, _, files in os.walk(top):
        if any(folder == i or folder.startswith(i + "/") for i in inside):
            continue
        for name in files:
            if name.endswith((".c", ".h", ".cu", ".cuh", ".inc")):
                total += sum(1 for _ in open(os.path.join(folder, name), errors="replace"))
    return total


def rooms():
    """Returns the picture of the modules, as SVG."""
    rows = floors()
    modules = [m for row in rows for m in row]
    lines = {m: lines_of(m, modules) for m in modules}
    widest = max(sum(lines[m] for m in row) for row in rows)
    height = 30 * len(rows) + 56
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">', STYLE]
    out.append('<text x="8" y="18">The rooms of src: includes and calls point down only; width: lines of code</text>')
    for i, row in enumerate(rows):
        x, y = 8.0, 28 + 30 * i
        for m in row:
            w = max((WIDTH - 16) * lines[m] / widest, 8 + 6.4 * len(m))
            out.append(f'<rect class="box" x="{x:.1f}" y="{y}" width="{w:.1f}" height="27" fill="{ROOM_COLOURS[kind_of(m)]}"/>')
            out.append(f'<text x="{x + 4:.1f}" y="{y + 17}" style="fill:#222">{escape(m)}</text>')
            x += w + 2
    x = 8
    for kind, what in (("runs", "runs"), ("compiles", "compiles a step"), ("executes", "is executed"), ("ground", "serves all")):
        out.append(f'<rect x="{x}" y="{height - 20}" width="12" height="12" fill="{ROOM_COLOURS[kind]}"/>')
        out.append(f'<text class="small" x="{x + 16}" y="{height - 10}">{what}</text>')
        x += 130
    return "\n".join(out + ["</svg>"])


LANES = ["compute", "h2d", "d2h", "read", "write", "host"]
WHAT = [  # colour, words of an instruction's name, in the legend
    ("#d9694f", ("attn",), "attention"),
    ("#8c6bb1", ("adamw",), "AdamW"),
    ("#4f9a5b", ("param",), "parameters"),
    ("#d8a93a", ("grad", ".m", ".v", "moment"), "gradients, moments"),
    ("#5b8fc7", (), "products, activations"),
]


def colour_of(name):
    """Returns the colour of an instruction by its name."""
    return next(c for c, words, _ in WHAT if not words or any(w in name for w in words))


def step(path):
    """Returns the picture of a traced step, as SVG."""
    trace = json.load(open(path))["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in trace if e.get("name") == "thread_name"}
    # When the plan starts each instruction, and how long it gives it: the same on a busy machine.
    events = [(names[e["tid"]], e["name"], e["args"]["planned_start_us"], e["args"]["planned_us"]) for e in trace if e.get("ph") == "X"]
    end = max(begin + took for _, _, begin, took in events)
    height = 40 * len(LANES) + 76
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">', STYLE]
    out.append('<text x="8" y="18">A step of tiny at 1k tokens with everything on drives: what each lane does, as planned</text>')
    scale = (WIDTH - 90) / end
    for i, lane in enumerate(LANES):
        y = 30 + 40 * i
        out.append(f'<text x="8" y="{y + 20}">{lane}</text>')
        bars = {}  # by pixel columns, so that thousands of instructions stay small
        for of, name, begin, took in events:
            if of == lane:
                for column in range(int(begin * scale * 2), int((begin + took) * scale * 2) + 1):
                    bars.setdefault(column, colour_of(name))
        begin = None
        for column in sorted(bars) + [None]:
            if begin is not None and (column is None or column != last + 1 or bars[column] != bars[begin]):
                out.append(f'<rect x="{82 + begin / 2:.1f}" y="{y}" width="{(last - begin + 1) / 2:.1f}" height="30" fill="{bars[begin]}"/>')
                begin = None
            if begin is None:
                begin = column
            last = column
    x = 8
    for colour, _, what in WHAT:
        out.append(f'<rect x="{x}" y="{height - 20}" width="12" height="12" fill="{colour}"/>')
        out.append(f'<text class="small" x="{x + 16}" y="{height - 10}">{what}</text>')
        x += 150
    out.append(f'<text class="small" x="{WIDTH - 100}" y="{height - 10}">{end / 1e3:.3g} ms</text>')
    return "\n".join(out + ["</svg>"])


PLACE_COLOURS = ("#d9694f", "#5b8fc7", "#4f9a5b")


def panel(model, by_place, left, width, height):
    """Returns the lines of one model's lengths over memory, both axes logarithmic."""
    memory = [int(m) for m in next(iter(by_place.values()))]
    low, high = 10, 25  # 1k to 32m tokens, as powers of two
    x = lambda m: left + 52 + (width - 80) * math.log(m / memory[0]) / math.log(memory[-1] / memory[0])
    y = lambda tokens: 40 + (height - 80) * (high - math.log2(tokens)) / (high - low)
    out = [f'<text x="{left + 52}" y="32">{escape(model)}</text>']
    for k in range(low, high + 1, 3):
        text = f"{2**k // 1024}k" if k < 20 else f"{2**k // 2**20}m"
        out.append(f'<path d="M{left + 52} {y(2**k):.1f}h{width - 80}" stroke="#999" stroke-width="0.4"/>')
        out.append(f'<text class="small" x="{left + 46}" y="{y(2**k) + 3:.1f}" text-anchor="end">{text}</text>')
    for m in memory:
        out.append(f'<text class="small" x="{x(m):.1f}" y="{height - 26}" text-anchor="middle">{m}</text>')
    for colour, lengths in zip(PLACE_COLOURS, by_place.values()):
        points = [(x(int(m)), y(tokens)) for m, tokens in lengths.items() if tokens]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in points]
    return out


def lengths(path):
    """Returns the picture of the longest sequences over GPU memory, as SVG."""
    table, height = json.load(open(path)), 320
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">', STYLE]
    out.append('<text x="8" y="14">Longest sequence (tokens) of whole models in bf16, over GiB of one card, as planned</text>')
    for i, (model, by_place) in enumerate(table.items()):
        out += panel(model, by_place, i * WIDTH // len(table), WIDTH // len(table), height)
    for i, (colour, place) in enumerate(zip(PLACE_COLOURS, next(iter(table.values())))):
        out.append(f'<rect x="{52 + 190 * i}" y="{height - 16}" width="12" height="12" fill="{colour}"/>')
        out.append(f'<text class="small" x="{68 + 190 * i}" y="{height - 6}">{escape(place)}</text>')
    return "\n".join(out + ["</svg>"])


def main():
    if sys.argv[1:] == ["rooms"]:
        print(rooms())
    elif len(sys.argv) == 3 and sys.argv[1] == "step":
        print(step(sys.argv[2]))
    elif len(sys.argv) == 3 and sys.argv[1] == "lengths":
        print(lengths(sys.argv[2]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
