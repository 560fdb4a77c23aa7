#!/usr/bin/env python3
"""tokenizers_beside.py BUILD TEXT TOKENIZER...: MB per second of processor time of `tokenizers` and of ours, on 1 and 2 threads; for a
tokenizer.model of the `sentencepiece` library and of ours.

The text is cut into documents of 4 KB, as the library's batches are, and is also encoded as a whole; both count processor time, so
that other programs on the same cores disturb little, and take turns. Needs: pip install tokenizers==0.23.3 sentencepiece==0.2.3.
"""
import os, resource, subprocess, sys, threading

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()
os.environ["TOKENIZERS_PARALLELISM"] = "false"

TURNS = 2
build, text = sys.argv[1:3]
data = open(text, "rb").read()
docs = [data[i:i + 4096].decode("utf-8", "replace") for i in range(0, len(data), 4096)]
whole = data.decode("utf-8", "replace")


def used():
    r = resource.getrusage(resource.RUSAGE_SELF)
    return r.ru_utime + r.ru_stime


def library(work, threads):
    before = used()
    jobs = [threading.Thread(target=work) for _ in range(threads)]
    for j in jobs: j.start()
    for j in jobs: j.join()
    return threads * len(data) / (used() - before) / 1e6


def ours(path, threads):
    """Returns our speeds for documents of 4 KB, and for the whole text."""
    out = subprocess.run([os.path.join(build, "bench/tokenize_bench"), path, text, str(threads)], capture_output=True, text=True, check=True).stdout
    return [float(line.split()[3]) for line in out.splitlines()]


def encoder(path):
    if path.endswith(".model"):
        import sentencepiece
        return "sentencepiece", sentencepiece.SentencePieceProcessor(model_file=path).encode
    from tokenizers import Tokenizer
    t = Tokenizer.from_file(path)
    return "tokenizers", lambda s: t.encode(s, add_special_tokens=False)


for path in sys.argv[3:]:
    name, encode = encoder(path)
    works = [("documents of 4 KB", lambda: [encode(d) for d in docs]), ("the text as a whole", lambda: encode(whole))]
    label = os.path.splitext(os.path.basename(path))[0]
    label = os.path.basename(os.path.dirname(os.path.abspath(path))) if label == "tokenizer" else label
    for threads in (1, 2):
        best = [[0.0, 0.0], [0.0, 0.0]]
        for _ in range(TURNS):
            mine = ours(path, threads)
            for k, (_, work) in enumerate(works):
                best[k] = [max(best[k][0], library(work, threads)), max(best[k][1], mine[k])]
        for k, (what, _) in enumerate(works):
            theirs, mine = best[k]
            print(f"{label:16s} {what:20s} {threads} thread{'s' if threads > 1 else ' '}  {name} {theirs:5.2f} MB/s  ltrain {mine:6.1f} MB/s"
                  f"  {mine / theirs:5.1f} x", flush=True)
