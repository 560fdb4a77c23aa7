#!/usr/bin/env python3
"""Memory per rank, planned and measured: `bench/planner/memory_per_rank.py LTRAIN OUT` writes OUT.json and OUT.txt.

Runs are short and on this machine; what is measured is each rank's peak resident memory (VmHWM), not time."""
import json, os, re, subprocess, sys, tempfile

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

MESHES = {1: "", 2: "ulysses=2", 4: "ulysses=2,ring=2", 8: "ulysses=2,ring=4"}
MEASURED = [  # name, settings
    ("tiny, 8,192 tokens, resident", "--model tiny --seq-len 8k --tiles rows=512,loss=512,group=65536 --offload none --alpha 1"),
    ("tiny, 8,192 tokens, nvme", "--model tiny --seq-len 8k --tiles rows=512,loss=512,group=65536 --offload nvme --alpha 0"),
    ("25m, 1,024 tokens, resident", "--model 25m --seq-len 1k --tiles rows=128,loss=128,group=65536 --offload none --alpha 1"),
    ("25m, 1,024 tokens, nvme", "--model 25m --seq-len 1k --tiles rows=128,loss=128,group=65536 --offload nvme --alpha 0"),
]
PLANNED = [  # planned but not run
    ("25m, 131,072 tokens, resident", "--model 25m --seq-len 128k --tiles rows=2048,loss=512 --offload none --alpha 1"),
    ("25m, 131,072 tokens, nvme", "--model 25m --seq-len 128k --tiles rows=2048,loss=512 --offload nvme --alpha 0"),
]
COMMON = "--zero 3 --prefetch 1 --threads 1 --device-mem 200g --host-mem 200g --nvme-max 400g"
NOTES = """
Memory per rank, ZeRO-3 and sequence parallelism, fp32; MiB. Planned: the arenas and the store, as large as the plan says. Outside: resident beside
them once everything is set up and before the first step (program, libraries, MPI's shared segments, BLAS's buffers, tables). Peak: VmHWM of each rank.

ranks x all / alone: 1 if everything fell as 1/N. "over 1/N" is what a rank has beyond a share of what one rank has alone, by kind, as the fullest
moment of each tier finds it (`bench/memory_parts`), so that the numbers add up; a kind that is less than its share then has a minus:
- whole parameters in use: of the unit that is used and the next ones that are prefetched all parameters, gathered; the embedding's are the largest;
- whole gradients: all gradients of such units before they are summed (alone they need no buffers but their homes);
- work of reductions: two places of their work area, and the sums of squares of all ranks;
- masks and tokens: lo and hi, 8 B a token of the whole sequence over ulysses, in the host and on the device;
- keys and values: with ulysses above the KV heads their replicas, and with a ring whole KV groups in a tile;
- heads' tiles: q, k, v, do and their gradients of a tile of heads and all tokens of the ulysses group, beside what the tokens' owners keep;
- ring: keys, values, outputs and their gradients on the way, two of each;
- attention's scratch, and tiles of rows, whose size is fixed (they shrink with the rows of a rank only below their size); activations, where a
  rank's tiles are other ones than those of one rank alone;
- holes: what lies between buffers.
Outside the plan: the program itself, and the whole sequence's arrays, 20 B a token (engine/batch.c), of which the first step is the first use.

A peak is planned + outside, to within 3% or 5 MiB. `outside` holds the store's bounce memory, which is there from the start. After it is measured
come, of each rank: the first batch's arrays; MPI's message pools; the export. The store's bounce buffers (4 MiB) are there from the start: they belong to what is outside.
"""
CONSTANT = 5 << 20
KINDS = [  # kinds of buffers, by the names that memory_parts prints
    ("whole parameters in use", r"unit\.param(\.shard)?"),
    ("whole gradients", r"unit\.(micro|grad|grad_sum)(\.shard)?"),
    ("optimizer", r"unit\.(master|m|v)(\.shard)?"),
    ("work of reductions", r"scratch of (reduce_scatter|all_reduce|all_gather)|all_sums|sums|all_loss|loss|norm"),
    ("masks and tokens", r"tokens|targets|positions|inv_freq|lo|hi|record"),
    ("keys and values", r"(layer\.)?(k|v|dk|dv)"),
    ("heads' tiles", r"heads\..*"),
    ("ring", r"ring\..*"),
    ("attention's scratch", r"scratch of attn.*"),
    ("tiles of rows", r"scratch of .*|logits|dn|n|final_n|acc|act|dact"),
    ("holes", r"holes"),
    ("activations", r".*"),
]
RANK = re.compile(r"^memory of rank (\d+): planned (\d+) \+ (\d+) outside the plan; peak resident (\d+)$", re.M)
TIERS = ("device", "host", "nvme")


def ltrain(program, arguments, directory):
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
    done = subprocess.run([program, *arguments.split()], cwd=directory, env=env, capture_output=True, text=True, timeout=900)
    if done.returncode:
        sys.exit(f"ltrain {arguments}: exit status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def mesh(ranks):
    return f"--ranks {ranks} --mesh {MESHES[ranks]}" if ranks > 1 else ""


def parts(program, settings, ranks):
    """Bytes of a rank by kind, of all tiers, each at its fullest moment."""
    tool = os.path.join(os.path.dirname(program), "../../bench/memory_parts")
    sums = dict.fromkeys((k for k, _ in KINDS), 0)
    for line in subprocess.run([tool, *f"{settings} {mesh(ranks)}".split()], capture_output=True, text=True, check=True).stdout.splitlines():
        _, name, size = line.split("\t")
        sums[next(k for k, pattern in KINDS if re.fullmatch(pattern, name))] += int(size)
    return sums


def measure(program, name, settings, ranks, directory):
    out = f"run-{ranks}-{len(os.listdir(directory))}"
    limits = COMMON.replace("200g", "3g").replace("400g", "20g")
    text = ltrain(program, f"{settings} {limits} {mesh(ranks)} --data corpus.txt --steps 2 --verbose --out {out}", directory)
    plan = json.load(open(os.path.join(directory, out, "plan.json")))
    each = [dict(zip(("rank", "planned", "outside", "peak"), map(int, m))) for m in RANK.findall(text)]
    assert len(each) == ranks, text
    for r in each:
        r["ratio"] = r["peak"] / (r["planned"] + r["outside"])
    own = parts(program, f"{settings} {limits}", ranks)
    assert sum(own.values()) == sum(plan["peak"][t] for t in TIERS), (own, plan["peak"])
    return {"case": name, "ranks": ranks, "mesh": MESHES[ranks] or "-", **{t: plan["peak"][t] for t in TIERS}, "parts": own,
            "classes": {c: b["peak"] for c, b in plan["classes"].items()}, "each": each}


def plan_only(program, name, settings, ranks, directory):
    """The rows of `ltrain plan`, as it prints them: class to (device, host, nvme)."""
    text = ltrain(program, f"plan {settings} {COMMON} {mesh(ranks)}", directory)
    rows = dict(re.findall(r"^(parameters|gradients|optimizer|activations|workspace|input/output|peak) +(\S.*?)(?:   \(.*)?$", text, re.M))
    return {"case": name, "ranks": ranks, "mesh": MESHES[ranks] or "-",
            **{c: dict(zip(TIERS, re.split(r"  +", r.strip()))) for c, r in rows.items()}}


def mib(x):
    return f"{x / 2**20:9.1f}"


def measured_table(rows):
    lines, case = [], None
    for r in rows:
        if r["case"] != case:
            case, one, alone = r["case"], sum(r[t] for t in TIERS), r["parts"]
            lines += ["", case, "ranks  mesh                device      host       nvme   ranks x all / alone    outside   peak of ranks         peak/(planned + outside)"]
        e = r["each"]
        lines.append(f"{r['ranks']:5}  {r['mesh']:16}" + " ".join(mib(r[t]) for t in TIERS)
                     + f"  {r['ranks'] * sum(r[t] for t in TIERS) / one:12.3f}          {mib(max(x['outside'] for x in e))}"
                     + f" {mib(min(x['peak'] for x in e))} to {mib(max(x['peak'] for x in e)).strip():8}"
                     + f" {min(x['ratio'] for x in e):.4f} to {max(x['ratio'] for x in e):.4f}")
        if r["ranks"] > 1:
            over = {k: (r["parts"][k] - alone[k] / r["ranks"]) / 2**20 for k in alone}
            lines.append(f"       over 1/N: {sum(over.values()):.1f} =" + " +".join(f" {x:.1f} {k}" for k, x in over.items() if abs(x) >= 0.05).replace("+ -", "- "))
    return lines


def planned_table(rows):
    lines = []
    for case in dict.fromkeys(r["case"] for r in rows):
        mine = [r for r in rows if r["case"] == case]
        lines += ["", f"{case}: planned, not run (device / host / nvme)",
                  "              " + "".join(f"{r['ranks']:>4} rank{'s' if r['ranks'] > 1 else ' '}" + " " * 23 for r in mine).rstrip()]
        for c in ("parameters", "gradients", "optimizer", "activations", "workspace", "input/output", "peak"):
            lines.append(f"{c:16}" + "".join(f"{' / '.join(r[c][t] for t in TIERS):33}" for r in mine).rstrip())
    return lines


def main():
    program, out = os.path.abspath(sys.argv[1]), sys.argv[2]
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "corpus.txt"), "w") as f:
            f.write("It was a dark and stormy night; the rain fell in torrents. " * 5000)
        planned = [plan_only(program, *case, n, directory) for case in PLANNED for n in MESHES]
        measured = []
        for case in MEASURED:
            for n in MESHES:
                measured.append(measure(program, *case, n, directory))
                print(measured[-1]["case"], n, [f"{x['ratio']:.4f}" for x in measured[-1]["each"]], flush=True)
    write(out, measured, planned)
    far = [x for r in measured for x in r["each"] if abs(excess(x)) > max(0.03 * (x["planned"] + x["outside"]), CONSTANT)]
    print(f"{len(far)} ranks beyond 3% and 5 MiB")
    sys.exit(len(far) > 0)


def excess(x):
    return x["peak"] - x["planned"] - x["outside"]


def write(out, measured, planned):
    each = [x for r in measured for x in r["each"]]
    text = NOTES.strip().split("\n") + measured_table(measured) + planned_table(planned)
    text += ["", f"largest difference of a peak from planned + outside: {max(abs(excess(x)) for x in each) / 2**20:.1f} MiB; "
             f"{100 * max(abs(x['ratio'] - 1) for x in each):.1f}%"]
    with open(out + ".txt", "w") as f:
        f.write("\n".join(text) + "\n")
    with open(out + ".json", "w") as f:
        json.dump({"measured": measured, "planned": planned}, f, indent=1)
    print(text[-1])


if __name__ == "__main__":
    main()
