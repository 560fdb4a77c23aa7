#!/usr/bin/env python3
"""A long text with its cache of keys and values on drives, beside a small device: `bench/sampling/long.py LTRAIN [TOKENS] [DEVICE-MEM]`.

The preset tiny reads TOKENS (420k = 430,080) bytes of words on cpu:discrete with DEVICE-MEM (24M) and writes 32 more, greedily. Its cache has
1,024 bytes a token: 420 MiB for 420k. Before that 16k tokens with the cache on the device, on the host and on drives must give the same ids.
What the machine's memory holds of the process is read from the system (ru_maxrss).
"""
import json
import os
import random
import sys
import tempfile

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

LAYERS, KV_BYTES = 2, 2 * 2 * 32 * 4  # of the preset, with fp32 keys and values of two heads
NEW = 32


def count(text):
    return int(text[:-1]) * 1024 if text.endswith("k") else int(text)


def words(n):
    random.seed(1)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    text = ""
    while len(text) < n:
        text += "".join(random.choice(syllables) for _ in range(random.randint(1, 4))) + random.choice("   ,.").strip() + " "
    return text[:n]


def sample(ltrain, tokens, options):
    """Returns the output and the most memory of a sampling run; in a new process, as ru_maxrss is of all that have ended."""
    with open("text", "w") as f:
        f.write(words(tokens - NEW))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(write, 1)
        os.execv(ltrain, [ltrain, "sample", "--model", "tiny", "--prompt-file", "text", "--seq-len", str(tokens), "--max-new-tokens", str(NEW), "--json",
                          *options])
    os.close(write)
    with os.fdopen(read) as f:
        out = f.read()
    _, status, usage = os.wait4(child, 0)
    if status:
        sys.exit(f"ltrain sample ended with {os.waitstatus_to_exitcode(status)}")
    return json.loads(out), usage


def main():
    ltrain = os.path.abspath(sys.argv[1])
    tokens, device = count(sys.argv[2] if len(sys.argv) > 2 else "420k"), sys.argv[3] if len(sys.argv) > 3 else "24M"
    with tempfile.TemporaryDirectory(dir=".") as folder:
        os.chdir(folder)
        small = ["--device", "cpu:discrete", "--device-mem", device, "--nvme-path", "."]
        ids = {}
        for tier, options in (("device", ["--device", "cpu"]), ("host", small + ["--offload", "acts=cpu"]), ("drives", small + ["--offload", "acts=nvme"])):
            ids[tier] = sample(ltrain, 16384, options)[0]["tokens"]
        if ids["device"] != ids["host"] or ids["device"] != ids["drives"]:
            sys.exit(f"16,384 tokens: placement changes what is written: {ids}")
        print(f"16,384 tokens: the same {NEW} ids with the cache on the device, on the host and on drives", flush=True)
        found, usage = sample(ltrain, tokens, small + ["--offload", "acts=nvme"])
        read, seconds = found["prefill_tokens"], found["prefill_seconds"]
        print(f"{tokens:,} tokens, cache on drives: {LAYERS * KV_BYTES * tokens / 2**20:.0f} MiB; device {device}; most resident memory "
              f"{usage.ru_maxrss / 1024:.0f} MiB")
        print(f"  read   {read:,} tokens in {seconds:.1f} s, {read / seconds:.0f} tokens/s")
        print(f"  written {len(found['tokens'])} in {found['seconds']:.1f} s, {(len(found['tokens']) - 1) / found['seconds']:.2f} tokens/s")
        print(f"  processor time {usage.ru_utime + usage.ru_stime:.0f} s")
        os.chdir("..")


if __name__ == "__main__":
    main()
