#!/usr/bin/env python3
"""Tokenizing and packing a large corpus in bounded memory: corpus.py LTRAIN MODEL [GB] [DIR]

Makes GB (2) gigabytes of rows, half of them short, half of them of 100 KB, one in ten bytes in a .zst (where zstd is installed), in
DIR (/tmp); runs `ltrain data` on them twice, the second time with the tokens of the first, and prints seconds and the peak of resident
memory of each beside the bound: 64 MiB, 16 MiB a thread and 64 bytes a document. Ends with 1 if it is exceeded.
"""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

WORDS = "in the beginning was word and it said that he went from there to a place of which nobody knew 12 345 days later. But,".split()


def write_rows(path, size, words, rng):
    documents = 0
    line = [" ".join(rng.choice(WORDS) for _ in range(words)) for _ in range(200)]
    with open(path, "w") as f:
        while f.tell() < size:
            for _ in range(100):
                f.write(json.dumps({"text": rng.choice(line)}) + "\n")
            documents += 100
    return documents


def run(ltrain, model, data, cache):
    began = time.time()
    p = subprocess.Popen([ltrain, "data", "--model", model, "--data", data, "--seq-len", "8k", "--samples", "0", "--token-cache", cache],
                         stdout=subprocess.PIPE, text=True)
    out = p.stdout.read()
    _, code, use = os.wait4(p.pid, 0)
    if code:
        sys.exit(f"ltrain data ends with {code}")
    return time.time() - began, use.ru_maxrss / 1024, out


def main():
    ltrain, model = sys.argv[1:3]
    gb = float(sys.argv[3]) if len(sys.argv) > 3 else 2
    rng = random.Random(1)
    with tempfile.TemporaryDirectory(dir=sys.argv[4] if len(sys.argv) > 4 else "/tmp") as tmp:
        data = os.path.join(tmp, "data")
        os.mkdir(data)
        documents = write_rows(f"{data}/short.jsonl", gb * 0.5e9, 50, rng)
        documents += write_rows(f"{data}/long.jsonl", gb * 0.4e9, 20000, rng)
        documents += write_rows(f"{data}/more.jsonl", gb * 0.1e9, 1000, rng)
        if shutil.which("zstd"):
            subprocess.run(["zstd", "-q", "--rm", f"{data}/more.jsonl"], check=True)
        threads = os.cpu_count()
        bound = 64 + 16 * threads + 64 * documents / 2**20
        print(f"{gb:g} GB, {documents:,} documents, {threads} threads: bound {bound:.0f} MiB")
        worst = 0
        for what in ("tokenized and packed", "packed, tokens kept"):
            seconds, peak, out = run(ltrain, model, data, f"{tmp}/cache")
            worst = max(worst, peak)
            print(f"{what}: {seconds:.1f} s, {gb * 1e3 / seconds:.0f} MB/s, peak {peak:.0f} MiB")
        print(out[out.index("sequences of"):].strip())
        return worst > bound


if __name__ == "__main__":
    sys.exit(main())
