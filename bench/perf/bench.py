"""Helpers that the bench scripts share: contenders in turn, medians, the machine's description, one JSON object per case on stdout."""
import datetime, json, os, platform, re, shutil, statistics, subprocess, sys, time

PEERS = os.environ.get("LTRAIN_PEERS", os.path.expanduser("~/.cache/ltrain/peers"))


def say(text):
    print(text, file=sys.stderr, flush=True)


def report(case, ours, beside, unit, marks={}, better="higher", **more):
    """One result. beside: name to value of limits and peers of the same run. marks: name to the ratio that ours must reach, where a
    ratio above 1 is always in our favour (better="lower": times)."""
    ratio = {k: (ours / x if better == "higher" else x / ours) for k, x in beside.items()}
    print(json.dumps({"case": case, "unit": unit, "better": better, "ours": ours, "beside": beside, "ratio": ratio, "marks": marks, **more}), flush=True)


def run(command, **more):
    """Its output, and the peak resident bytes of the process."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **more) as p:
        out = p.stdout.read()
        status, usage = os.wait4(p.pid, 0)[1:]
        p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode:
        sys.exit(f"{command[0]}: exit status {p.returncode}\n{out}")
    return out, usage.ru_maxrss * 1024


class Worker:
    """A program that prints one line of JSON for each line that it reads: a contender kept alive between its turns."""

    def __init__(self, *command, **env):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ, **env))

    def __call__(self, line=""):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"{self.process.args}: ended with status {self.process.wait()}")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


CALM = 0.02  # largest share of the processors' time that the host may take from this virtual machine during a measurement
PAUSE = 2.0  # seconds before a disturbed measurement is repeated: the host takes time in bursts
PATIENCE = float(os.environ.get("BENCH_PATIENCE", 60))  # seconds that a script may spend on repeated measurements
spent = 0.0  # seconds spent so far


def ticks():
    """(stolen, all) of the processors' time so far: what a virtual machine's host gives to others is stolen."""
    fields = list(map(int, open("/proc/stat").readline().split()[1:9]))
    return fields[7], sum(fields)


def calm(measure, tries=8):
    """Returns the result of measure() at the first try during which the host took no more than CALM, else at the calmest; and the share taken then. Tries are PAUSE seconds apart;
    a script that has spent its PATIENCE takes what it gets."""
    global spent
    best = None
    for i in range(tries):
        started = time.perf_counter()
        if i:
            time.sleep(PAUSE)
        stolen, total = ticks()
        result = measure()
        now = ticks()
        taken = (now[0] - stolen) / max(1, now[1] - total)
        if best is None or taken < best[1]:
            best = result, taken
        spent += time.perf_counter() - started if i else 0
        if taken <= CALM or spent >= PATIENCE:
            break
    return best


def in_turn(contenders, rounds, warm=1):
    """Calls all contenders (name to function that returns a number) once a round, forwards and backwards in turn, and again where the host disturbs one; name to the list
    of numbers after the warm rounds."""
    seen = {k: [] for k in contenders}
    for i in range(-warm, rounds):
        for k in list(contenders)[:: -1 if i % 2 else 1]:
            if i < 0:
                contenders[k]()
            else:
                seen[k].append(calm(contenders[k], 2)[0])
    return seen


def medians(seen):
    return {k: statistics.median(v) for k, v in seen.items()}


def first_line(path, pattern):
    try:
        return next((m[1].strip() for m in map(lambda l: re.match(pattern, l), open(path)) if m), None)
    except OSError:
        return None


def machine(build):
    """CPU, cores, memory, kernel, and the file system and disk of a build directory."""
    flags = first_line("/proc/cpuinfo", r"flags\s*:(.*)") or ""
    disk = subprocess.run(["findmnt", "-no", "SOURCE,FSTYPE,OPTIONS", "-T", build], capture_output=True, text=True).stdout.strip()
    return {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "cpu": first_line("/proc/cpuinfo", r"model name\s*:(.*)"), "family_model": [first_line("/proc/cpuinfo", rf"{k}\s*:(.*)") for k in ("cpu family", "model")],
            "isa": [f for f in ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16") if f in flags.split()], "cores": len(os.sched_getaffinity(0)),
            "memory": first_line("/proc/meminfo", r"MemTotal:(.*)"), "huge_pages": first_line("/sys/kernel/mm/transparent_hugepage/enabled", r"(.*)"),
            "kernel": platform.release(), "disk": disk,
            "disk_free_gb": shutil.disk_usage(build).free // 10**9}
