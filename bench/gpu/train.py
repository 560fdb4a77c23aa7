"""ltrain itself on a GPU, by its command line: `train.py SECTION`, with LTRAIN the program (a wrapper of tools/gpu-pack.sh, or an
installed one). Prints a line a case and writes $OUT/SECTION.json, anew after each; what a failing case printed is in $OUT/failures.log. Exit
status 1 if a case failed, 77 if none could be tried.
  machine  three steps of a tiny model, in full                    golden   cases of PyTorch in fp64, three placements, bf16
  check    equal bits in any placement, chaos, planned memory      faults   what is refused, a kill, a resume
  large    a 1b: equal bits in any placement                       long     1b at 128k, offloaded and resident
  steps    measured steps by the data sheet's plan                 predict  --profile, then predicted against measured steps
  ranks    2 and 4 ranks that share the card, against one          nccl     a card a rank, messages by NCCL: against one rank and staged ones
  memcheck two steps below compute-sanitizer                           sample   greedy tokens beside the processor's; rates of reading and writing
took: seconds of a case; first: until its first step was done. --size small: for a fake GPU; --seconds: cases that would begin later are left
out; --cases: only those whose name has that regular expression in it."""
import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from running import Call, Ended, raise_on_sigterm, replace

HERE = os.path.dirname(os.path.abspath(__file__))
PREDICTED_WITHIN = 0.10  # share of the measured step time
MEMORY_WITHIN = 3.0      # percent of the planned memory
STREAMS = {0: "compute", 1: "h2d", 2: "d2h"} # by their lanes in traces
OFFLOADS = ["none", "cpu", "nvme", "params=nvme,grads=cpu,optim=nvme,acts=cpu"]
FIRST_GOLDEN = ["llama-gqa", "gpt2", "gemma3", "gpt-oss", "qwen3", "llama-tied-docs", "neox", "lora-qwen3", "qlora-gqa", "phi3-long", "cohere2", "qwen3_5"]
GOLDEN_AT_ONCE = 4       # processes, which spend most of their time starting
PATIENCE, LONG_PATIENCE = 15, 40 # seconds that ltrain waits for the GPU
CASE, LARGE_CASE = 25, 90 # and that a case of a small and of a large model may take: others come after it
SAMPLED = 32             # number of greedily sampled tokens that are compared
STEP_MARKS = {"hidden": 0.95, "submit_us": 10} # at least, at most
LONG_MARKS = {"mfu": 0.44, **STEP_MARKS}       # for 1b at 128k tokens with everything offloaded
KEPT = 6000              # characters kept of a failing case's stdout and of its stderr
SMALL_TILES = ["--tiles", "rows=64,loss=64,group=4096", "--threads", "1"]


class Bench:
    def __init__(self, options):
        self.o = options
        self.until = time.time() + options.seconds
        self.cases = []
        self.last = None # call
        self.lock, self.of_case = threading.Lock(), threading.local() # calls of the case that this thread has in hand
        self.folder = tempfile.mkdtemp(prefix="gpu-check-", dir=options.scratch)
        self.small = options.size == "small"
        self.common = ["--device", "cuda"] + (SMALL_TILES if self.small else ["--dtype", "bf16"])

    def left(self):
        return self.until - time.time()

    def call(self, command, timeout=None, env=None, step=None):
        """(status, stdout, stderr); status 124: it took too long."""
        self.last = call = Call(command)
        calls = self.of_case.__dict__.setdefault("calls", [])
        calls.append(call)
        call.follow(max(5, min(timeout or self.left(), self.left())), self.folder, env, step)
        self.last = call
        return call.status, call.out, call.err

    def run(self, arguments, timeout=None, env=None, step=None):
        return self.call(self.o.ltrain.split() + arguments, timeout, env, step)

    def options(self, model, length, extra=()):
        """Returns the options of a run, which names what hangs before its time here is over."""
        patience = LONG_PATIENCE if model in ("1b", "8b") else PATIENCE
        return ["--model", model, "--data", self.o.text, "--seq-len", str(length), "--device-timeout", str(patience), *self.common, *extra]

    def note(self, name, passed, call=None, **figures):
        """passed: None where the case could not be tried. call: what was said, if not in the last one."""
        calls = self.of_case.__dict__.pop("calls", [])
        if calls:
            figures["took"] = sum(c.took for c in calls)
            first = next((c.first for c in calls if c.first is not None), None)
            figures.update({} if first is None else {"first": first})
        said = " ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in figures.items())
        with self.lock:
            self.cases.append({"case": name, "passed": passed, **figures})
            print(f"{'skipped' if passed is None else 'ok' if passed else 'NOT OK':8s}{name:44s} {said}", flush=True)
            self.write()
            call = call or (calls or [self.last])[-1]
            if call and (passed is False or call.status == 124):
                self.keep(name, call)

    def keep(self, name, call):
        with open(os.path.join(os.environ.get("OUT", "."), "failures.log"), "a", encoding="utf-8") as f:
            f.write(f"=== {self.o.section}: {name}: status {call.status}\n{' '.join(call.command)}\n--- stdout\n{call.out[-KEPT:]}\n"
                    f"--- stderr\n{call.err[-KEPT:]}\n")

    def table(self, rows):
        with self.lock:
            print("\n".join("        " + row for row in rows), flush=True)

    def write(self):
        replace(os.path.join(os.environ.get("OUT", "."), self.o.section + ".json"), json.dumps({"section": self.o.section, "cases": self.cases}, indent=1))

    def late(self, name, seconds=10):
        """Or not asked for."""
        if not re.search(self.o.cases, name):
            return True
        if self.left() > seconds:
            return False
        self.note(name, None, why="no time left")
        return True

    def hurry(self):
        self.until = 0

    def end(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.write()
        tried = [c for c in self.cases if c["passed"] is not None]
        return 77 if not tried else int(not all(c["passed"] for c in tried))


def last_steps(folder, run):
    try:
        with open(os.path.join(folder, run, "metrics.jsonl"), encoding="utf-8") as f:
            return [json.loads(line) for line in f if line.endswith("\n")]
    except (OSError, ValueError):
        return []


def machine(b):
    """If nothing else works, this says why: the same steps again, where the driver explains its errors and each instruction is waited for."""
    tiny = b.options("tiny", 256, ["--offload", "nvme", "--steps", "3", "--save-every", "0", "--out", "first"])
    status, out, err = b.run(tiny, timeout=40) # libraries come from a cold drive
    print(out + err, flush=True)
    b.note("three steps of tiny", status == 0, status=status)
    if status != 0:
        shutil.rmtree(os.path.join(b.folder, "first"), ignore_errors=True)
        status, out, err = b.run(tiny, timeout=CASE, env={"LTRAIN_CUDA_SYNC": "1", "CUDA_LOG_FILE": "stderr", "CUBLASLT_LOG_LEVEL": "2"})
        print(out[-KEPT:] + err[-KEPT:], flush=True)
        b.note("the same, one instruction after the other", status == 0, status=status)


def run_golden(b, name, argument):
    """At once with others."""
    call = b.call(b.o.golden_program.split() + [argument], CASE, env={"LTRAIN_GOLDEN": b.o.golden})
    lines = (call[1] + call[2]).strip().splitlines() or ["nothing printed"]
    said = [line for line in lines if " apart" in line or "said: " in line or "rror" in line or "skipped" in line]
    b.note(name, None if call[0] == 77 else call[0] == 0, said=(said or lines)[0][:300])


def golden(b):
    there = [name for name in sorted(os.listdir(b.o.golden)) if os.path.isdir(os.path.join(b.o.golden, name))]
    names = [n for n in FIRST_GOLDEN if n in there] + [n for n in there if n not in FIRST_GOLDEN]
    with ThreadPoolExecutor(1 if b.small else GOLDEN_AT_ONCE) as pool:
        list(pool.map(lambda name: b.late(name) or run_golden(b, name, name), names))


def memory_line(out):
    found = re.search(r"^GPU memory: .*\(([0-9.]+)% of that\)", out, re.M)
    return float(found.group(1)) if found else None


def check_one(b, name, model, length, offload, extra, timeout=CASE):
    if b.late(name):
        return
    status, out, err = b.run(["check", *b.options(model, length, ["--offload", offload, *extra])], timeout)
    out_of_time = status == 124 and b.left() < 5
    b.note(name, None if status == 3 or out_of_time else status == 0 and "check: pass" in out, status=status, **({"said": err[:200]} if err else {}))


def check_chaos(b):
    curves = []
    for mode in ("run", "chaos"):
        b.run(b.options("tiny", 256, ["--offload", "nvme", "--steps", "2", "--save-every", "0", "--mode", mode, "--out", mode]), CASE)
        curves.append([(s["loss"], s["grad_norm"]) for s in last_steps(b.folder, mode)])
    b.note("chaos", len(curves[0]) == 2 and curves[0] == curves[1], losses=str(curves[0]))


def check_memory(b, model, length):
    status, out, err = b.run(b.options(model, length, ["--offload", "cpu", "--steps", "3", "--save-every", "0", "--out", "memory"]), CASE)
    share = memory_line(out)
    lines = [line for line in out.splitlines() if line.startswith("GPU memory: ")]
    b.note("planned memory", status == 0 and share is not None and abs(share - 100) <= MEMORY_WITHIN and "remark: GPU" not in out,
           percent=share, said=(lines + [err])[0][:250])


def check(b):
    """Checks small cases first; a large model's case may not take the others' time."""
    model, length = ("tiny", 256) if b.small else ("25m", 8192)
    for offload in OFFLOADS:
        check_one(b, f"{model} {length} {offload}", model, length, offload, ["--steps", "1"])
    if not b.late("planned memory"):
        check_memory(b, model, length)
    if not b.late("chaos"):
        check_chaos(b)
    check_one(b, f"{model} {length} moments in int8", model, length, "nvme", ["--steps", "2", "--optim-dtype", "int8"])
    check_one(b, f"{model} {length} adapters on NF4", model, length, "nvme", ["--steps", "2", "--lora", "r=8", "--base", "nf4"])
    check_one(b, f"{model} {length} adapters on int8", model, length, "nvme", ["--steps", "2", "--lora", "r=8", "--base", "int8"])


def large(b):
    for offload in OFFLOADS:
        check_one(b, *(("tiny 256 " + offload, "tiny", 256) if b.small else ("1b 4096 " + offload, "1b", 4096)), offload, ["--steps", "1"], LARGE_CASE)


def refused(b, name, status, words, extra, env=None):
    if b.late(name):
        return
    have, _, err = b.run(b.options("tiny", 256, ["--steps", "1", "--out", "refused", *extra]), timeout=60, env=env)
    b.note(name, have == status and all(w in err for w in words) and err.count("\n") == 0, status=have, said=err[:160])


def faults(b):
    refused(b, "no such GPU", 2, ["GPUs that are here"], ["--device", "cuda:99"])
    if not b.small:
        refused(b, "hidden GPUs", 2, ["CUDA_VISIBLE_DEVICES"], [], env={"CUDA_VISIBLE_DEVICES": ""})
        refused(b, "fp32", 2, ["leave --dtype out"], ["--dtype", "fp32"])
    refused(b, "more memory than there is", 3, ["--device-mem"], ["--device-mem", "9T"])
    if b.o.golden_program and not b.late("an illegal address names its instruction"):
        run_golden(b, "an illegal address names its instruction", "--illegal-address")
    if not b.late("SIGTERM saves"):
        stop_and_resume(b)


def stop_and_resume(b):
    run = b.options("tiny", 256, ["--offload", "nvme", "--steps", "6", "--save-every", "2", "--out", "killed"])
    child = subprocess.Popen(b.o.ltrain.split() + run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=b.folder)
    late = threading.Timer(max(5, b.left()), child.kill)
    late.start()
    said = []
    try:
        for line in child.stdout:
            said.append(line)
            if line.startswith("step 3/"):
                child.send_signal(signal.SIGTERM)
    except Ended:
        child.kill()
        raise
    finally:
        late.cancel()
    b.note("SIGTERM saves", child.wait() in (0, 128 + signal.SIGTERM), Call(run, child.returncode, "".join(said)), status=child.returncode)
    status, _, err = b.run(["--resume", "killed", "--steps", "6"])
    b.run(b.options("tiny", 256, ["--offload", "nvme", "--steps", "6", "--save-every", "2", "--out", "whole"]))
    same = [s["loss"] for s in last_steps(b.folder, "killed")] == [s["loss"] for s in last_steps(b.folder, "whole")]
    b.note("resumed as if never stopped", status == 0 and same, status=status, **({"said": err[:160]} if err else {}))


def ranks(b):
    model, length = ("tiny", 256) if b.small else ("25m", 8192)
    for n, mesh in ((2, "dp=2"), (2, "ulysses=2"), (2, "ring=2"), (4, "ulysses=2,ring=2")):
        name = f"{n} ranks, {mesh}"
        if b.late(name):
            continue
        arguments = ["check", "--ranks", str(n), "--mesh", mesh, *b.options(model, length, ["--offload", "cpu", "--steps", "1"])]
        arguments += [] if b.small else ["--device-mem", "4G"]
        status, out, err = b.run(arguments)
        b.note(name, status == 0 and "check: pass" in out, status=status, **({"said": err[:200]} if err else {}))


def gpus():
    """Counts the GPUs; 0: unknown."""
    try:
        said = subprocess.run([os.environ.get("GPU_SMI", "nvidia-smi"), "-L"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return 0
    return sum(line.startswith("GPU ") for line in said.splitlines())


def nccl(b):
    """Every mesh against one rank; then the bits, the time and the GPU memory of a run beside one whose messages are staged."""
    model, length = ("tiny", 256) if b.small else ("25m", 8192)
    options = ["--offload", "cpu", "--steps", "3", "--save-every", "0"]
    for n in sorted({2, max(2, min(8, gpus()))}):
        for mesh in (f"dp={n}", f"ulysses={min(n, 4)},dp={n // min(n, 4)}", f"ring={n}"):
            name = f"{n} cards, {mesh}"
            if b.late(name):
                continue
            status, out, err = b.run(["check", "--ranks", str(n), "--mesh", mesh, "--comm", "nccl", *b.options(model, length, ["--offload", "cpu", "--steps", "1"])])
            if "share" in err or "there is no NCCL" in err or "libnccl" in err:
                b.note(name, None, why=err[:200])
                return
            b.note(name, status == 0 and "check: pass" in out, status=status, **({"said": err[:200]} if err else {}))
        figures, curves = {}, []
        for way in ("nccl", "staged"):
            run = f"{way}-{n}"
            status, out, err = b.run(["--ranks", str(n), "--mesh", f"dp={n}", "--comm", way, *b.options(model, length, [*options, "--out", run])])
            steps = last_steps(b.folder, run)
            curves.append([(s["loss"], s["grad_norm"]) for s in steps])
            figures[way + "_seconds"] = steps[-1]["seconds"] if steps else None
            figures[way + "_memory"] = next((line for line in out.splitlines() if line.startswith("GPU memory: ")), err)[:160]
        b.note(f"{n} cards, by NCCL and staged", len(curves[0]) == 3 and curves[0] == curves[1], **figures)
        a_dead_rank(b, n, model, length)


def ranks_of(mark):
    """pids by rank of the processes whose environment has the mark."""
    found = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                words = dict(w.partition(b"=")[::2] for w in f.read().split(b"\0"))
        except OSError:
            continue
        if words.get(b"GPU_CHECK_RUN") == mark.encode() and b"OMPI_COMM_WORLD_RANK" in words:
            found[int(words[b"OMPI_COMM_WORLD_RANK"])] = pid
    return found


def a_dead_rank(b, n, model, length):
    """Killed in a step: what the others have begun to receive never comes. They say so, and end."""
    name = f"{n} cards, a rank that dies"
    if b.late(name):
        return
    mark = f"dies-{os.getpid()}"
    run = ["--ranks", str(n), "--mesh", f"dp={n}", "--comm", "nccl", *b.options(model, length, ["--offload", "cpu", "--steps", "1000000", "--save-every", "0", "--out", "dies"])]
    child = subprocess.Popen(b.o.ltrain.split() + run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=b.folder, env=dict(os.environ, GPU_CHECK_RUN=mark))
    late = threading.Timer(max(5, b.left()), child.kill)
    late.start()
    said, killed = [], None
    try:
        for line in child.stdout:
            said.append(line)
            if line.startswith("step 2/") and killed is None:
                os.kill(ranks_of(mark)[n - 1], signal.SIGKILL)
                killed = time.monotonic()
        status = child.wait()
    finally:
        late.cancel()
        if child.poll() is None:
            child.kill()
    took = time.monotonic() - killed if killed else None
    why = next((line for line in said if "has died" in line), "".join(said[-1:]))
    b.note(name, killed is not None and status not in (0, -signal.SIGKILL) and "has died" in why, Call(run, status, "".join(said)), ended_after=took, said=why.strip()[:200])


def instructions_of(path):
    """Returns the instructions of a trace; none if it cannot be read."""
    try:
        with open(path, encoding="utf-8") as f:
            return [e for e in json.load(f)["traceEvents"] if e["ph"] == "X"]
    except (OSError, ValueError):
        return []


def submitting(instructions):
    """Sums up the submitting thread's time by op and lane, with an event for each instruction: the most first."""
    sums = {}
    for e in instructions:
        if "submit_us" in e["args"]:
            sums.setdefault((e["name"].split()[0], e["tid"]), []).append(e["args"]["submit_us"])
    rows = [{"op": op, "lane": STREAMS.get(lane, "comm"), "instructions": len(us), "seconds": sum(us) * 1e-6, "us": sum(us) / len(us), "median_us": statistics.median(us)}
            for (op, lane), us in sums.items()]
    return sorted(rows, key=lambda r: -r["seconds"])


def by_op(instructions):
    """Sums up compute's time by op and phase, the longest first, and at the end the time that it stood still."""
    events = [e for e in instructions if e["tid"] == 0]
    if not events:
        return []
    sums = {}
    for e in events:
        row = sums.setdefault((e["name"].split()[0], e["cat"]), [0, 0.0, 0.0])
        row[0] += 1
        row[1] += e["dur"] * 1e-6
        row[2] += e["args"]["planned_us"] * 1e-6
    span = (max(e["ts"] + e["dur"] for e in events) - min(e["ts"] for e in events)) * 1e-6
    rows = [{"op": op, "phase": phase, "calls": n, "seconds": seconds, "planned": planned, "share": seconds / span}
            for (op, phase), (n, seconds, planned) in sums.items()]
    rows.sort(key=lambda r: -r["seconds"])
    busy = sum(r["seconds"] for r in rows)
    return rows + [{"op": "(still)", "phase": "-", "calls": 0, "seconds": span - busy, "planned": 0.0, "share": 1 - busy / span}]


def say_by_op(b, rows):
    """Prints as many rows as make 99% of the step."""
    said, covered = ["op               phase  calls    seconds    planned  share"], 0.0
    for r in rows:
        if covered < 0.99 or r["op"] == "(still)":
            said.append(f"{r['op']:17s}{r['phase']:5s}{r['calls']:7d}{r['seconds']:11.4g}{r['planned']:11.4g}{r['share']:7.1%}")
        covered += r["share"]
    b.table(said)


def say_submitting(b, rows):
    said = ["submitting       lane      number  us each   median    seconds"]
    b.table(said + [f"{r['op']:17s}{r['lane']:8s}{r['instructions']:8d}{r['us']:9.2f}{r['median_us']:9.2f}{r['seconds']:11.4g}" for r in rows])


def measure(b, name, arguments, within, marks):
    """The third step against its plan; within: how far from it passes, None: recorded. marks: what else it is held to. The second one's
    trace says what its time went to."""
    run = re.sub(r"\W+", "-", name)
    status, _, err = b.run(arguments + ["--steps", "4", "--save-every", "0", "--trace", "2", "--out", run], step=3)
    steps = last_steps(b.folder, run)
    instructions = instructions_of(os.path.join(b.folder, run, "trace-000002.json"))
    ops, submitted = by_op(instructions), submitting(instructions)
    shutil.rmtree(os.path.join(b.folder, run), ignore_errors=True)
    if status == 3 or len(steps) < 2:
        b.note(name, None if status in (3, 124) else False, status=status, said=err[-300:])
        return None
    s = ([x for x in steps if x["tokens"] > 0.9 * x["seq_len"]] or steps)[-1] # not one of a text's last few tokens
    off = s["planned_seconds"] / s["seconds"] - 1
    figures = dict(planned=s["planned_seconds"], measured=s["seconds"], off=off, mfu=s["mfu"], hidden=s["hidden"],
                   tokens_per_second=s["tokens_per_second"], device_gib=s.get("device_peak_bytes", 0) / 2 ** 30,
                   host_gib=s.get("host_peak_bytes", 0) / 2 ** 30, submitted=s.get("submitted", 0),
                   submit_us=1e6 * s.get("submit_cpu_seconds", 0) / max(1, s.get("submitted", 0)))
    missed = [f"{k} {figures[k]:.3g}, not {m}" for k, m in marks.items()
              if figures[k] is not None and (figures[k] > m if k == "submit_us" else figures[k] < m)]  # None: nothing to hide
    missed += [f"off {off:.3g}, not within {within}"] if within is not None and abs(off) > within else []
    b.note(name, not missed, **figures, **({"missed": "; ".join(missed)} if missed else {}))
    if ops:
        b.cases[-1].update(by_op=ops, submitting=submitted)
        b.write()
        say_by_op(b, ops)
        say_submitting(b, submitted)
    return s["seconds"]


def measure_all(b, cases, within):
    """Measures cases that are held to a plan and not to marks: those are of `steps` and `long`."""
    seconds = {}
    for name, model, length, extra in cases:
        if not b.late(name, 20):
            marks = {} if b.small or within is not None else LONG_MARKS if name == AWAY else STEP_MARKS
            seconds[name] = measure(b, name, b.options(model, length, extra), within, marks)
    away, near = seconds.get(AWAY), seconds.get(NEAR)
    if away and near:
        b.note("offloaded / resident at 1b 128k", away / near <= 1.05, ratio=away / near)


AWAY, NEAR = "1b 128k, everything offloaded", "1b 128k, resident"
TINY = [("tiny 256", "tiny", 256, ["--offload", "nvme"])]
LONG = [(AWAY, "1b", 131072, ["--offload", "cpu"]), (NEAR, "1b", 131072, ["--offload", "none"])]
SHORT = [("25m 64k", "25m", 65536, []), ("1b 32k", "1b", 32768, [])]
FEW = [("1b 4k", "1b", 4096, ["--offload", "none"])] # tokens: where the rest of a step shows


def steps(b):
    measure_all(b, TINY if b.small else SHORT + FEW, None)


def long(b):
    measure_all(b, TINY if b.small else LONG, None)


def predict(b):
    if not b.small and not b.late("profile"):
        status, out, err = b.run(["plan", "--profile", *b.options("tiny", 256)], timeout=100)
        said = [line for line in out.splitlines() if line.startswith("profile:")]
        b.note("profile", status == 0, said=(said or [err])[-1][:200])
    measure_all(b, TINY if b.small else SHORT + LONG + [("8b 32k", "8b", 32768, [])], None if b.small else PREDICTED_WITHIN)


def sampled(b, name, model, device, prompt, tokens, timeout):
    """Returns the JSON of `ltrain sample` about the best tokens after the first `prompt` bytes of the text; None: it failed."""
    path = os.path.join(b.folder, "prompt.txt")
    with open(b.o.text, "rb") as f:
        replace(path, f.read(prompt).decode(errors="ignore"))
    status, out, err = b.run(["sample", "--model", model, "--prompt-file", path, "--temperature", "0", "--max-new-tokens", str(tokens), "--json",
                              "--device", device, *([] if b.small else ["--dtype", "bf16"])], timeout)
    try:
        return json.loads(out)
    except ValueError:
        b.note(name, None if status == 3 else False, status=status, said=err[-200:])
        return None


def sample(b):
    """A model that has seen enough text to be sure of its tokens; then rates."""
    name = f"the best {SAMPLED} tokens"
    if not b.late(name):
        b.run(b.options("tiny", 256, ["--steps", "4" if b.small else "300", "--lr", "3e-3", "--save-every", "0", "--out", "taught"]), LARGE_CASE)
        taught = os.path.join(b.folder, "taught")
        there, here = (sampled(b, name, taught, device, 200, SAMPLED, LARGE_CASE) for device in ("cuda", "cpu:discrete"))
        if there and here:
            same = next((i for i, (x, y) in enumerate(zip(there["tokens"], here["tokens"])) if x != y), min(len(there["tokens"]), len(here["tokens"])))
            b.note(name, same == len(here["tokens"]) == len(there["tokens"]), same=same, text=here["text"][:60])
    model = "tiny" if b.small else "1b"
    for prompt in (300,) if b.small else (2048, 32768):
        name = f"{model}, {prompt} bytes read"
        if b.late(name, 5 if b.small else 40):
            continue
        said = sampled(b, name, model, "cuda", prompt, 8 if b.small else 128, LARGE_CASE)
        if said:
            b.note(name, True, read_per_second=said["prefill_tokens"] / max(1e-9, said["prefill_seconds"]),
                   written_per_second=len(said["tokens"]) / max(1e-9, said["seconds"]), read=said["prefill_tokens"], written=len(said["tokens"]))


def memcheck(b):
    tool = shutil.which("compute-sanitizer") or os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin", "compute-sanitizer")
    if not os.access(tool, os.X_OK):
        b.note("memcheck", None, why="compute-sanitizer is not here")
        return
    *wrapper, program = b.o.ltrain.split()
    inside = os.path.join(os.path.dirname(program), "bin", "ltrain")
    env = os.path.join(os.path.dirname(program), "env")
    check = [tool, "--tool", "memcheck", "--target-processes", "all", "--error-exitcode", "9"]
    program = [env, *check, inside] if os.path.exists(env) else [*check, program]
    status, out, err = b.call(wrapper + program + b.options("tiny", 256, ["--offload", "nvme", "--steps", "2", "--save-every", "0", "--device-timeout",
                                                                             str(LONG_PATIENCE), "--out", "mem"]))
    said = [line for line in (out + err).splitlines() if "ERROR SUMMARY" in line or line.startswith("ltrain:")]
    refused = status not in (0, 9) and "Device not supported" in out + err # below gVisor
    b.note("memcheck", None if refused else status == 0, status=status, said=(said or [(out + err)[-160:] or "nothing"])[-1][:160])


def main():
    parser = argparse.ArgumentParser()
    sections = {f.__name__: f for f in (machine, golden, check, large, steps, long, faults, ranks, nccl, predict, memcheck, sample)}
    parser.add_argument("section", choices=sections)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--size", choices=("full", "small"), default="full")
    parser.add_argument("--ltrain", default=os.environ.get("LTRAIN", "ltrain"))
    parser.add_argument("--golden", default=os.path.join(HERE, "..", "..", "tests", "golden"))
    parser.add_argument("--golden-program", default="", help="engine_golden_gpu with what starts it")
    parser.add_argument("--text", default=os.environ.get("LTRAIN_TEXT", "books.txt"))
    parser.add_argument("--scratch", default=None)
    parser.add_argument("--cases", default="")
    o = parser.parse_args()
    o.text, o.golden = os.path.abspath(o.text), os.path.abspath(o.golden)
    b = Bench(o)
    raise_on_sigterm(b.hurry)
    try:
        sections[o.section](b)
    except Ended:
        b.note("ended by a signal", False)
    finally:
        status = b.end()
    return status


if __name__ == "__main__":
    sys.exit(main())
