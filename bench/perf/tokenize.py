#!/usr/bin/env python3
"""tokenize.py BUILD TOKENIZER TEXT: MB per second of processor time of `tokenizers` and of ours, on 1 and 2 threads.

The text is cut into documents of 4 KB, as the library's batches are, and is also encoded as a whole; both count processor time, so
that other programs on the same cores disturb little. Needs: pip install tokenizers==0.23.3.
"""
import os, resource, subprocess, sys, threading, time
os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer

build, path, text = sys.argv[1:4]
t = Tokenizer.from_file(path)
data = open(text, "rb").read()
docs = [data[i:i + 4096].decode("utf-8", "replace") for i in range(0, len(data), 4096)]
whole = data.decode("utf-8", "replace")


def used():
    r = resource.getrusage(resource.RUSAGE_SELF)
    return r.ru_utime + r.ru_stime


def library(work, threads):
    best = 0.0
    for _ in range(3):
        before = used()
        jobs = [threading.Thread(target=work) for _ in range(threads)]
        for j in jobs: j.start()
        for j in jobs: j.join()
        best = max(best, threads * len(data) / (used() - before) / 1e6)
    return best


for threads in (1, 2):
    ours = subprocess.run([os.path.join(build, "bench/tokenize_bench"), path, text, str(threads)], capture_output=True, text=True, check=True).stdout.split("\n")
    rate = lambda k: float(ours[k].split()[3])
    for name, k, work in (("documents of 4 KB", 0, lambda: [t.encode(d, add_special_tokens=False) for d in docs]),
                          ("the text as a whole", 1, lambda: t.encode(whole, add_special_tokens=False))):
        theirs = library(work, threads)
        print(f"{os.path.basename(os.path.dirname(path)) or path:24s} {name:20s} {threads} thread{'s' if threads > 1 else ' '}  tokenizers {theirs:5.2f} MB/s  ltrain {rate(k):6.1f} MB/s"
              f"  {rate(k) / theirs:5.1f} x")
