#!/usr/bin/env python3
"""All benches: bench/perf/run.py [BUILD, default build] [--only NAME ...] [--out FILE] [--limit SECONDS]. See bench/README.md."""
import argparse, glob, json, os, signal, statistics, subprocess, sys, threading, time

import bench

HERE = os.path.dirname(os.path.abspath(__file__))
CLEANING = 20  # seconds that a bench has to remove its files


def arguments():
    p = argparse.ArgumentParser(description="Runs all benches and prints what they reach of their limits and beside their peers.")
    p.add_argument("build", nargs="?", default="build", help="meson's build directory")
    p.add_argument("--only", nargs="+", default=[], metavar="NAME", help="of bench_NAME.py")
    p.add_argument("--out", help="JSON file (default: bench/results/DATE-run.json)")
    p.add_argument("--limit", type=float, default=900, metavar="SECONDS", help="a bench that takes longer is ended (default: %(default)g)")
    return p.parse_args()


def signalled(group, how):
    try:
        os.killpg(group, how)
    except ProcessLookupError:
        pass


def run(script, python, build, limit):
    """Its results, in order, and why it failed, or None; what the script says goes to stderr as it comes, and what its peers say on stdout, too."""
    results, ended, timers = [], threading.Event(), []
    p = subprocess.Popen([python, script, build], stdout=subprocess.PIPE, text=True, start_new_session=True)

    def end(how):  # ends the bench's workers, too
        ended.set()
        signalled(p.pid, how)

    try:
        for seconds, how in (limit, signal.SIGINT), (limit + CLEANING, signal.SIGKILL):
            timers.append(threading.Timer(seconds, end, [how]))
            timers[-1].start()
        for line in p.stdout:
            if line.startswith('{"case"'):
                results.append(json.loads(line))
                show(results[-1])
            else:
                print(line, end="", file=sys.stderr)
    except BaseException:
        signalled(p.pid, signal.SIGINT)
        raise
    finally:
        p.wait()
        for t in timers:
            t.cancel()
        signalled(p.pid, signal.SIGKILL)  # ends workers that the bench left behind
    return results, f"ended after {limit:g} s" if ended.is_set() else f"exit status {p.returncode}" if p.returncode else None


def verdict(r, name):
    mark = r["marks"].get(name)
    return "" if mark is None else f"{mark:.2f} {'reached' if r['ratio'][name] >= mark else 'MISSED'}"


def show(r):
    print(f"{r['case']}: {r['ours']:.4g} {r['unit']}")
    for name, x in r["beside"].items():
        print(f"    {r['ratio'][name]:6.3f} of {name} ({x:.4g})   {'mark ' * (name in r['marks'])}{verdict(r, name)}", flush=True)


def summary(document):
    """A line for each mark; what has none, as the least, middle and greatest ratio of a bench's cases beside a peer."""
    rows = []
    for bench_name, results in document["benches"].items():
        unmarked = {}
        for r in results:
            for name, x in r["ratio"].items():
                if name in r["marks"]:
                    rows.append((r["case"], f"{r['ours']:.4g} {r['unit'].split(' (')[0]}", f"{x:.3f}", f"of {name}", verdict(r, name)))
                else:
                    unmarked.setdefault(name, []).append(x)
        for name, x in unmarked.items():
            rows.append((f"{bench_name}: {len(x)} without a mark", "", f"{min(x):.2f} / {statistics.median(x):.2f} / {max(x):.2f}", f"of {name}", ""))
    rows += [(f"{name}: {why}", "", "", "", "FAILED") for name, why in document["failed"].items()]
    width = [max(len(row[i]) for row in rows) for i in range(5)] if rows else []
    for case, ours, ratio, name, said in rows:
        print(f"{case:{width[0]}}  {ours:>{width[1]}}  {ratio:>{width[2]}} {name:{width[3]}}  {said}".rstrip())
    return sum("MISSED" in row[4] for row in rows), sum("reached" in row[4] for row in rows)


def main():
    a = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("run.py: terminated"))
    build = os.path.abspath(a.build)
    subprocess.run(["ninja", "-C", build, "benches", "src/cli/ltrain"], check=True, stdout=subprocess.DEVNULL)
    python = os.path.join(bench.PEERS, "bin", "python")
    python = python if os.access(python, os.X_OK) else sys.executable
    name = lambda s: os.path.basename(s)[len("bench_"):-len(".py")]
    document = {"machine": bench.machine(build), "benches": {}, "seconds": {}, "host_took": {}, "failed": {}}
    out = a.out or os.path.join(os.path.dirname(HERE), "results", document["machine"]["date"][:10] + "-run.json")
    for s in sorted(glob.glob(os.path.join(HERE, "bench_*.py"))):
        if a.only and name(s) not in a.only:
            continue
        print(f"== {name(s)}", flush=True)
        started, before = time.monotonic(), bench.ticks()
        document["benches"][name(s)], why = run(s, python, build, a.limit)
        after, document["seconds"][name(s)] = bench.ticks(), round(time.monotonic() - started)
        document["host_took"][name(s)] = taken = round((after[0] - before[0]) / max(1, after[1] - before[1]), 3)
        if why:
            document["failed"][name(s)] = why
        print(f"== {name(s)}: {why or 'done'}, {document['seconds'][name(s)]} s, of which the host took {taken:.0%}", flush=True)
        with open(out, "w") as f:  # after each bench, so that measurements are kept if a later one fails
            json.dump(document, f, indent=1)
            f.write("\n")
    print(f"== all, {sum(document['seconds'].values()) / 60:.0f} minutes")
    missed, reached = summary(document)
    print(f"{reached} marks reached, {missed} missed, {len(document['failed'])} benches failed; {out}")
    sys.exit(bool(document["failed"]))


if __name__ == "__main__":
    main()
