#!/usr/bin/env python3
"""A long run with everything on drives, whose memory, descriptors, threads and files stay as they are: `soak.py LTRAIN`.

It trains a toy model, evaluates and saves all the while, and is looked at from outside after each twentieth of its steps. 300
steps, LTRAIN_LONG=1: 100,000; LTRAIN_STEPS says another number. Prints a table, and fails if something has grown since the run was
a quarter old. metrics.jsonl grows by equal lines, as resuming and `ltrain replay` need all of them."""
import os
import shutil
import subprocess
import sys
import tempfile
import time

STEPS = int(os.environ.get("LTRAIN_STEPS", 100000 if "LTRAIN_LONG" in os.environ else 300))
LOOKS = 20
ARGUMENTS = (
    "--model tiny --data corpus.txt --eval-data held.txt --seq-len 64 --device cpu:discrete --offload nvme --threads 1 "
    "--effort quick --tiles rows=64,loss=64,group=65536 --keep 2 --out run"
).split()
# Growth that is none: KiB of the allocator, since threads find free pieces in another order each time; descriptors, threads and
# files of a checkpoint that is being written or removed. A leak of one in each of 75 saves is more.
SPARE = (1024, 8, 2, 8)


def last_step(path):
    """Returns the step of the last whole line of metrics.jsonl, 0 if there is none."""
    try:
        with open(path, "rb") as f:
            f.seek(max(0, os.path.getsize(path) - 4096))
            lines = f.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return 0
    steps = [int(line.split(b'"step":')[1].split(b",")[0]) for line in lines if b'"step":' in line and line.startswith(b"{")]
    return steps[-1] if steps else 0


def look(pid, home):
    """Returns resident KiB, descriptors, threads and the number of files of the run."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        resident = next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))
    files = sum(len(names) for _, _, names in os.walk(home))
    return resident, len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task")), files


def run(program, home):
    """Runs to the end; returns the rows of the table."""
    with open(os.path.join(home, "corpus.txt"), "w", encoding="ascii") as f:
        f.writelines("In the year %d there were %d kings and %d wars.\n" % (i, i * i % 17, i % 5) for i in range(4000))
    often = str(max(1, STEPS // 100))
    with open(os.path.join(home, "held.txt"), "w", encoding="ascii") as f:
        f.write("In the year 7 there were 3 kings and 1 wars.\n" * 10)
    command = [program, *ARGUMENTS, "--steps", str(STEPS), "--save-every", often, "--eval-every", often]
    rows = []
    with open(os.path.join(home, "out"), "wb") as out, subprocess.Popen(command, cwd=home, stdout=out, stderr=subprocess.STDOUT) as process:
        while process.poll() is None:
            time.sleep(0.002)
            step = last_step(os.path.join(home, "run", "metrics.jsonl"))
            if step >= STEPS * (len(rows) + 1) // LOOKS and step < STEPS:
                try:
                    rows.append((step, *look(process.pid, home), os.path.getsize(os.path.join(home, "run", "metrics.jsonl"))))
                except (FileNotFoundError, StopIteration):
                    break  # it ends
    if process.wait() != 0:
        with open(os.path.join(home, "out"), encoding="utf-8") as f:
            sys.exit("the run ended with status %d:\n%s" % (process.returncode, f.read()[-2000:]))
    return rows


def grown(rows):
    """Says what has grown since the run was a quarter old."""
    old = [r for r in rows if r[0] >= STEPS // 4]
    early, late = old[: len(old) // 2], old[len(old) // 2 :]
    names = ("resident KiB", "descriptors", "threads", "files")
    return [
        "%s: at most %d, later %d" % (names[i], max(r[1 + i] for r in early), max(r[1 + i] for r in late))
        for i in range(4)
        if max(r[1 + i] for r in late) > max(r[1 + i] for r in early) + SPARE[i]
    ]


def main():
    home = tempfile.mkdtemp(prefix="ltrain-soak-")
    try:
        rows = run(os.path.abspath(sys.argv[1]), home)
    finally:
        shutil.rmtree(home)
    print("%8s %12s %12s %8s %6s %18s" % ("step", "resident KiB", "descriptors", "threads", "files", "metrics.jsonl"))
    for r in rows:
        print("%8d %12d %12d %8d %6d %18d" % r)
    if len(rows) < LOOKS // 2:
        sys.exit("the run was looked at %d times only" % len(rows))
    sys.exit("; ".join(grown(rows)) or 0)


main()
