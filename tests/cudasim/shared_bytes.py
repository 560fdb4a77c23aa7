#!/usr/bin/env python3
"""Adds to bench/results/ptxas.json what ptxas cannot know: the dynamic shared memory and the threads that kernels are launched with.

shared_bytes.py BUILD [RECORD]: links the simulator's tests of a meson build directory once more with a recording launch, runs them, and
writes `shared_bytes` (the most of any launch; one kernel may serve several sizes) and `threads` into the record's kernels.
Kernels that no test launches are named, and are an error.
"""
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SIM_RUN = "_Z7sim_runPK18cudaLaunchConfig_tPKvPFvPvES4_"
RECORDER = """
#include <cuda_runtime.h>
#include <stdio.h>
#undef blockDim
extern "C" cudaError_t __real_%s(const cudaLaunchConfig_t *, const void *, void (*)(void *), void *);
extern "C" cudaError_t __wrap_%s(const cudaLaunchConfig_t *c, const void *kernel, void (*call)(void *), void *parameters)
{
    static FILE *out = fopen(RECORD, "a");
    fprintf(out, "%%lx %%zu %%u\\n", (unsigned long)kernel, c->dynamicSmemBytes, c->blockDim.x * c->blockDim.y * c->blockDim.z);
    fflush(out);
    return __real_%s(c, kernel, call, parameters);
}
""" % (SIM_RUN, SIM_RUN, SIM_RUN)


def load_ptxas():
    spec = importlib.util.spec_from_file_location("ptxas", ROOT / "tools" / "ptxas.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def record_test(build, name, scratch, ptxas):
    """{kernel name: (shared bytes, threads)} of the launches of one test program."""
    program = f"tests/cudasim/test_cudasim_{name}"
    commands = subprocess.run(["ninja", "-C", build, "-t", "commands", program], capture_output=True, text=True, check=True).stdout
    link = [l for l in commands.splitlines() if f" -o {program} " in l][-1]
    launches, recorder, copy = (os.path.join(scratch, f"{name}.{end}") for end in ("launches", "o", "test"))
    source = os.path.join(scratch, "recorder.cpp")
    pathlib.Path(source).write_text(RECORDER)
    subprocess.run(["g++", "-std=c++17", "-I", ROOT / "tests/cudasim/include", f'-DRECORD="{launches}"', "-c", source, "-o", recorder],
                   check=True)
    link = re.sub(r" -o \S+", f" -o {copy} {recorder} -no-pie -Wl,--wrap={SIM_RUN}", link, count=1)
    subprocess.run(link, shell=True, cwd=build, check=True)
    subprocess.run([copy], check=True, stdout=subprocess.DEVNULL)
    symbols = {}
    for line in subprocess.run(["nm", copy], capture_output=True, text=True, check=True).stdout.splitlines():
        words = line.split()
        if len(words) == 3 and words[1] in "tTwW":
            symbols.setdefault(int(words[0], 16), words[2])
    found = {}
    for line in pathlib.Path(launches).read_text().splitlines():
        address, shared, threads = line.split()
        at = int(address, 16)
        before = found.get(symbols[at], (0, 0))
        found[symbols[at]] = (max(before[0], int(shared)), max(before[1], int(threads)))
    kernels = [{"kernel": symbol} for symbol in found]
    ptxas.demangle(kernels)
    return dict(zip((k["kernel"] for k in kernels), found.values()))


def main():
    build, record = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ROOT / "bench/results/ptxas.json"
    ptxas = load_ptxas()
    kernels = json.loads(pathlib.Path(record).read_text())["kernels"]
    with tempfile.TemporaryDirectory() as scratch:
        found = {name: record_test(build, name, scratch, ptxas) for name in ("ops", "attention_sm80", "attention_sm90")}
    missing = set()
    for k in kernels:
        family = "ops" if k["source"].startswith("src/ops/") else "attention_sm90" if "sm90" in k["source"] else "attention_sm80"
        launch = found[family].get(k["kernel"])
        if launch:
            k["shared_bytes"], k["threads"] = launch
        else:
            missing.add(k["kernel"])
    ptxas.write(kernels, record)
    for name in sorted(missing):
        print(f"no test launches {name}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
