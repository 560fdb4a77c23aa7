#!/usr/bin/env python3
"""Draws the pictures of docs/: `draw.py rooms >docs/pictures/rooms.svg`, `draw.py step TRACE.json >docs/pictures/step.svg`.

rooms: the modules of src by floor, from tools/include-law.sh, as wide as they have lines. step: what the lanes of a step are
planned to do, from a trace (--trace N), coloured by what is moved or computed."""
import json
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


def main():
    if sys.argv[1:] == ["rooms"]:
        print(rooms())
    elif len(sys.argv) == 3 and sys.argv[1] == "step":
        print(step(sys.argv[2]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
