#!/usr/bin/env python3
"""What ptxas says of the kernels: a wrapper around nvcc that fails on what must not be, and the collector of its records.

  tools/ptxas.py compile NVCC ARGUMENTS...   runs nvcc with ptxas -v and writes the kernels' numbers to OUTPUT.ptxas.json; exits 1
                                             on any warning, on wgmma code that ptxas repaired or serialised, and on spills in
                                             attention (head dim 256 backward may spill: recorded); with
                                             LTRAIN_PTXAS=warn the complaints are printed only
  tools/ptxas.py collect DIRECTORY [FILE]    all records below DIRECTORY as one JSON object, printed or written to FILE
"""
import json
import os
import re
import shutil
import subprocess
import sys

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

# setmaxnreg ignored; wgmma serialised or repaired
FORBIDDEN = re.compile(r"\(C75[01]\d\)")
ENTRY = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
PROPERTIES = re.compile(r"Function properties for (\S+)")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def parse(text):
    """The kernels in ptxas -v's words: one record per entry function and architecture."""
    kernels, current, about = [], None, None
    for line in text.splitlines():
        if m := ENTRY.search(line):
            current = {"kernel": m[1], "arch": m[2], "registers": 0, "stack_bytes": 0, "spill_store_bytes": 0,
                       "spill_load_bytes": 0, "static_shared_bytes": 0}
            kernels.append(current)
        elif m := PROPERTIES.search(line):
            about = m[1]
        elif current and about == current["kernel"] and (m := SPILLS.search(line)):
            current["stack_bytes"], current["spill_store_bytes"], current["spill_load_bytes"] = map(int, m.groups())
        elif current and (m := USED.search(line)):
            current["registers"] = int(m[1])
            if s := SHARED.search(line):
                current["static_shared_bytes"] = int(s[1])
    return kernels


def without_arguments(name):
    """The name up to its argument list: up to the bracket outside its template's arguments, of which an enumerator has some, too."""
    depth = 0
    for at, letter in enumerate(name):
        if letter == "(" and depth == 0:
            return name[:at]
        depth += (letter == "<") - (letter == ">")
    return name


def demangle(kernels):
    """Readable names, without the hash of the unit that anonymous namespaces carry."""
    names = [k["kernel"] for k in kernels]
    if names and shutil.which("c++filt"):
        names = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.splitlines()
    for k, name in zip(kernels, names):
        name = re.sub(r"\(anonymous namespace\)::|_GLOBAL__N__\w+::|_INTERNAL_\w+::", "", name)
        k["kernel"] = without_arguments(name.removeprefix("void "))


def may_spill(source, kernel):
    """sm_80's kernels are tuned for sm_80; compiled for later machines, where they are only a fallback, a spill is recorded."""
    fallback = os.path.basename(source).startswith("sm80_") and kernel["arch"] != "sm_80"
    first = re.search(r"(?:<|Li)(\d+)", kernel["kernel"])  # template argument of all attention kernels: the head dimension
    return "attention" not in source or fallback or ("backward" in source and first is not None and first[1] == "256")


def compile_one(arguments):
    source = next(a for a in arguments if a.endswith(".cu"))
    output = arguments[arguments.index("-o") + 1]
    run = subprocess.run(arguments + ["-Xptxas=-v"], stderr=subprocess.PIPE, text=True)
    kernels = parse(run.stderr)
    demangle(kernels)
    for k in kernels:
        k["source"] = os.path.relpath(os.path.realpath(source), os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    rest = [l for l in run.stderr.splitlines() if not re.search(r"^ptxas info|bytes stack frame", l) or FORBIDDEN.search(l)]
    complaints = [l for l in rest if FORBIDDEN.search(l) or re.search(r"\bwarning\b|Warning", l)]
    complaints += [f"{k['kernel']} ({k['arch']}) spills {k['spill_store_bytes']} bytes" for k in kernels
                   if k["spill_store_bytes"] + k["spill_load_bytes"] > 0 and not may_spill(source, k)]
    for line in rest:
        if line.strip():
            print(line, file=sys.stderr)
    lenient = os.environ.get("LTRAIN_PTXAS") == "warn"
    for line in complaints:
        print(f"{'warning' if lenient else 'error'}: {source}: {line.strip()}", file=sys.stderr)
    if run.returncode == 0 and complaints and not lenient:
        if os.path.exists(output):
            os.unlink(output)
        return 1
    if run.returncode == 0:
        with open(output + ".ptxas.json", "w") as f:
            json.dump(kernels, f)
    return run.returncode


def collect(directory):
    kernels = []
    for folder, _, files in os.walk(directory):
        for name in files:
            if name.endswith(".cu.o.ptxas.json") and os.path.exists(os.path.join(folder, name[:-len(".ptxas.json")])):
                with open(os.path.join(folder, name)) as f:
                    kernels += json.load(f)
    kernels.sort(key=lambda k: (k["source"], k["kernel"], k["arch"]))
    return kernels


def write(kernels, path):
    """One kernel per line, so that a change shows as one line."""
    with open(path, "w") as f:
        f.write('{"kernels": [\n' + ",\n".join(json.dumps(k) for k in kernels) + "\n]}\n")


def main(arguments):
    if arguments[:1] == ["compile"] and len(arguments) > 1:
        return compile_one(arguments[1:])
    if arguments[:1] == ["collect"] and len(arguments) in (2, 3):
        kernels = collect(arguments[1])
        if len(arguments) == 3:
            write(kernels, arguments[2])
            print(f"{len(kernels)} kernels, {sum(k['spill_store_bytes'] > 0 for k in kernels)} with spills")
        else:
            write(kernels, "/dev/stdout")
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
