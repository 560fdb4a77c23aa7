#!/usr/bin/env python3
"""Draws comments at random, for a stranger to read: sample-comments.py SEED COUNT.

Each of C, CUDA, Python, shell, awk and meson files in src, tests, bench and tools is printed with the ten lines that follow."""
import argparse
import io
import random
import re
import subprocess
import tokenize

BELOW = 10
C = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|(/\*.*?\*/|//[^\n]*)', re.S)


def c_comments(text):
    """Yields the first line's number and the comment, for each one of a C file."""
    for found in C.finditer(text):
        if found.group(1) and "clang-format" not in found.group(1):
            yield text.count("\n", 0, found.start()) + 1, found.group(1)


def hash_comments(text):
    """Yields comments of lines that begin with #, neighbours as one, and those behind code."""
    block, first = [], 0
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip().startswith("#") and not line.startswith("#!"):
            first = first if block else number
            block.append(line.strip())
            continue
        if block:
            yield first, "\n".join(block)
        block = []
        behind = re.search(r"\s#\s(?=[^'\"]*$)", line)
        if behind:
            yield number, line[behind.start():].strip()


def python_comments(text):
    """Yields docstrings and comments of a Python file."""
    yield from hash_comments(text)
    before = None
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.STRING and token.string.startswith('"""') and before in (None, tokenize.INDENT, tokenize.NEWLINE, tokenize.NL):
            yield token.start[0], token.string
        before = token.type if token.type != tokenize.COMMENT else before


def reader_of(path):
    """Returns the function that reads a file's comments; None: a file of another kind."""
    end = path.rsplit("/", 1)[-1].rsplit(".", 1)[-1]
    if end in ("c", "h", "cu", "cuh"):
        return c_comments
    if end == "py":
        return python_comments
    return hash_comments if end in ("sh", "awk", "build") else None


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("seed", type=int)
    options.add_argument("count", type=int)
    a = options.parse_args()
    files = subprocess.run(["git", "ls-files", "src", "tests", "bench", "tools"], check=True, capture_output=True, text=True).stdout
    found = []
    for path in sorted(files.split()):
        if not reader_of(path):
            continue
        text = open(path, encoding="utf-8").read()
        found += [(path, line, comment, text) for line, comment in reader_of(path)(text)]
    print(len(found), "comments")
    random.seed(a.seed)
    for path, line, comment, text in random.sample(found, min(a.count, len(found))):
        below = line + comment.count("\n")
        print("\n==== %s:%d\n%s" % (path, line, comment))
        print("\n".join("    | " + code for code in text.split("\n")[below - (1 if comment.count("\n") == 0 else 0):below + BELOW]))


main()
