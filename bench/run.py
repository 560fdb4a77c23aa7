#!/usr/bin/env python3
"""All benches: bench/run.py [BUILD, default build] [--only NAME ...] [--out FILE]. See bench/README.md."""
import argparse, glob, json, os, subprocess, sys

import bench

HERE = os.path.dirname(os.path.abspath(__file__))


def arguments():
    p = argparse.ArgumentParser(description="Runs all benches and prints what they reach of their limits and beside their peers.")
    p.add_argument("build", nargs="?", default="build", help="meson's build directory")
    p.add_argument("--only", nargs="+", default=[], metavar="NAME", help="of bench_NAME.py")
    p.add_argument("--out", help="JSON file (default: bench/results/DATE-run.json)")
    return p.parse_args()


def run(script, python, build):
    """Its results, in order; what the script says goes to stderr as it comes, and what its peers say on stdout, too."""
    results = []
    with subprocess.Popen([python, script, build], stdout=subprocess.PIPE, text=True, cwd=os.getcwd()) as p:
        for line in p.stdout:
            if not line.startswith("{"):
                print(line, end="", file=sys.stderr)
                continue
            results.append(json.loads(line))
            show(results[-1])
    if p.returncode:
        print(f"{os.path.basename(script)}: exit status {p.returncode}")
    return results, p.returncode


def show(r):
    print(f"{r['case']}: {r['ours']:.4g} {r['unit']}")
    for name, x in r["beside"].items():
        mark = r["marks"].get(name)
        verdict = "" if mark is None else f"   mark {mark:.2f} {'reached' if r['ratio'][name] >= mark else 'MISSED'}"
        print(f"    {r['ratio'][name]:6.3f} of {name} ({x:.4g}){verdict}", flush=True)


def main():
    a = arguments()
    build = os.path.abspath(a.build)
    subprocess.run(["ninja", "-C", build, "benches"], check=True, stdout=subprocess.DEVNULL)
    python = os.path.join(bench.PEERS, "bin", "python")
    python = python if os.access(python, os.X_OK) else sys.executable
    scripts = sorted(glob.glob(os.path.join(HERE, "bench_*.py")))
    name = lambda s: os.path.basename(s)[len("bench_"):-len(".py")]
    document, failed = {"machine": bench.machine(build), "benches": {}}, 0
    for s in scripts:
        if a.only and name(s) not in a.only:
            continue
        print(f"== {name(s)}", flush=True)
        document["benches"][name(s)], status = run(s, python, build)
        failed |= status != 0
    out = a.out or os.path.join(HERE, "results", document["machine"]["date"][:10] + "-run.json")
    with open(out, "w") as f:
        json.dump(document, f, indent=1)
        f.write("\n")
    missed = sum(r["ratio"][k] < m for rs in document["benches"].values() for r in rs for k, m in r["marks"].items() if k in r["ratio"])
    print(f"{missed} marks missed; {out}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
