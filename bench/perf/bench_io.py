#!/usr/bin/env python3
"""The I/O lanes beside fio with the same pattern (block size, depth, io_uring, O_DIRECT, fixed buffers, file system) and DeepSpeed's
async I/O: reading, writing, both at once. Ours hashes every byte on the way; the others do not. BENCH_DIR: where (default: BUILD)."""
import json, os, shutil, statistics, subprocess, sys, tempfile, time

import bench

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

BYTES, BLOCK, DEPTH, EXTENT = 1 << 30, 1 << 20, 16, 4 << 20  # BLOCK and DEPTH: the store's defaults; EXTENT: an update group
ROUNDS = 5
GIGA = 1e9


class Fio:
    def __init__(self, directory):
        self.directory, self.cpu = directory, {"read": [], "write": [], "both": []}
        for name in ("fio.read", "fio.write"):  # writes the files once, so that their blocks are allocated like those of a store after its first pass
            self.job([name], "write")

    def job(self, names, *kinds):
        command = ["fio", "--output-format=json", f"--directory={self.directory}", f"--size={BYTES}", f"--bs={BLOCK}", f"--iodepth={DEPTH}",
                   "--direct=1", "--ioengine=io_uring", "--fixedbufs", "--registerfiles", "--fallocate=posix", "--thread"]
        for name, kind in zip(names, kinds):
            command += [f"--name={name}", f"--filename={name}", f"--rw={kind}"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return json.loads(text[text.index("{"):])["jobs"]

    def __call__(self, what):
        names, kinds = {"read": (["fio.read"], ["read"]), "write": (["fio.write"], ["write"]), "both": (["fio.read", "fio.write"], ["read", "write"])}[what]
        jobs = self.job(names, *kinds)
        seconds = [j[k]["runtime"] / 1e3 for j, k in zip(jobs, kinds)]
        self.cpu[what].append(sum(s * (j["usr_cpu"] + j["sys_cpu"]) / 100 for s, j in zip(seconds, jobs)))
        return max(seconds)


class DeepSpeed:
    def __init__(self, directory):
        import torch
        from deepspeed.ops.op_builder import AsyncIOBuilder
        module = AsyncIOBuilder().load(verbose=False)
        make = lambda: module.aio_handle(BLOCK, DEPTH, False, True, 1)
        self.handle = {"read": make(), "write": make()}
        self.files = {k: os.path.join(directory, "deepspeed." + k) for k in self.handle}
        self.buffer = {k: self.handle[k].new_cpu_locked_tensor(BYTES // 4, torch.empty(0, dtype=torch.float32)) for k in self.handle}
        for k in self.handle:
            self.buffer[k].fill_(7)
            self.handle[k].sync_pwrite(self.buffer[k], self.files[k])

    def __call__(self, what):
        kinds = ("read", "write") if what == "both" else (what,)
        t = time.perf_counter()
        for k in kinds:
            (self.handle[k].async_pread if k == "read" else self.handle[k].async_pwrite)(self.buffer[k], self.files[k])
        for k in kinds:
            self.handle[k].wait()
        return time.perf_counter() - t


def peers(directory):
    found = {}
    for name, make in (("fio", Fio), ("DeepSpeed async I/O", DeepSpeed)):
        try:
            found[name] = make(directory)
        except Exception as e:  # fio is optional, and can be missing in many ways
            bench.say(f"no {name}: {e}")
    return found


def main():
    build = os.path.abspath(sys.argv[1])
    directory = tempfile.mkdtemp(dir=os.environ.get("BENCH_DIR", build))
    try:
        ours = bench.Worker(os.path.join(build, "bench", "io_bench"), directory, *map(str, (BYTES, BLOCK, DEPTH, EXTENT)))
        cpu = {"read": [], "write": [], "both": []}

        def run(what):
            answer = ours(what)
            cpu[what].append(answer["cpu"])
            return answer["seconds"]

        others = peers(directory)
        for what in cpu:
            contenders = {"ours": lambda: run(what), **{k: (lambda p=p: p(what)) for k, p in others.items()}}
            moved = BYTES * (2 if what == "both" else 1) / GIGA
            rate = {k: moved / s for k, s in bench.medians(bench.in_turn(contenders, ROUNDS)).items()}
            used = {"ours": statistics.median(cpu[what]) / moved}
            if "fio" in others:
                used["fio"] = statistics.median(others["fio"].cpu[what]) / moved
            bench.report(f"nvme lanes, {what}", rate.pop("ours"), rate, "GB/s", {"fio": 0.95, "DeepSpeed async I/O": 1.0}, cpu_seconds_per_gb=used)
        ours.close()
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
