#!/usr/bin/env python3
"""A step of QLoRA in a device budget of 300 MB beside one of full fine-tuning: `bench/finetune/qlora.py LTRAIN MODEL TEXT [SEQ-LEN] [STEPS]`.

MODEL is a Hugging Face directory (SmolLM2: tools/realmodel.sh makes one), TEXT a file of some 400 KB. Both run on cpu:discrete at the same
time with one thread each, so that whatever else the machine does slows both alike: by default one step of 32k tokens, half an hour of two cores.
"""
import json
import subprocess
import sys
import tempfile

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

WAYS = {"qlora": ["--lora", "r=16", "--base", "nf4", "--lr", "2e-4"], "full": ["--lr", "1e-5"]}
KEYS = ["step", "loss", "seconds", "device_peak_bytes", "host_peak_bytes", "nvme_bytes", "hidden", "stall_seconds"]


def main():
    ltrain, model, text = sys.argv[1:4]
    length, steps = (sys.argv[4:] + ["32k", "1"][len(sys.argv) - 4:])[:2]
    with tempfile.TemporaryDirectory(dir=".") as work:
        runs = {}
        for way, options in WAYS.items():
            command = [ltrain, "--model", model, "--data", text, "--seq-len", length, "--steps", steps, "--threads", "1", "--device", "cpu:discrete",
                       "--device-mem", "300M", "--effort", "quick", "--nvme-path", work, "--out", f"{work}/{way}"] + options
            runs[way] = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        failed = [way for way, run in runs.items() if run.wait() != 0]
        if failed:
            sys.exit(f"qlora: {', '.join(failed)} failed")
        for way in WAYS:
            with open(f"{work}/{way}/metrics.jsonl", encoding="utf-8") as lines:
                for step in filter(lambda row: "seconds" in row, map(json.loads, lines)):
                    print(way, ", ".join(f"{key} {step[key]:.6g}" for key in KEYS))


main()
