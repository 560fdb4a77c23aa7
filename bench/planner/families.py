#!/usr/bin/env python3
"""How long the largest public shape of each family takes to plan: `bench/planner/families.py LTRAIN [NAME ...]`.

Seconds on the clock and of the processor, and the load before each: on a machine that does other things the processor's seconds tell
more. A shape without a configuration in tests/model/configs is one from there with the sizes below."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "tests/model/configs"
MACHINE = ["--machine", "8xh200", "--host-mem", "2T", "--nvme", "8x6GB/s"]


def shape(like, layers, dim, ffn, heads, kv_heads, **more):
    return like, {"num_hidden_layers": layers, "hidden_size": dim, "intermediate_size": ffn, "num_attention_heads": heads,
                  "num_key_value_heads": kv_heads, **more}


def sliding(layers, period):
    return ["full_attention" if (i + 1) % period == 0 else "sliding_attention" for i in range(layers)]


SHAPES = {
    "Llama-3.1-405B": shape("Llama-3.1-8B-Instruct", 126, 16384, 53248, 128, 8),
    "Llama-3.3-70B-Instruct": None,
    "Mistral-Large-Instruct-2407": shape("Mistral-Small-24B-Base-2501", 88, 12288, 28672, 96, 8, vocab_size=32768),
    "Qwen2.5-72B-Instruct": None,
    "Qwen3-32B": None,
    "SmolLM3-3B": None,
    "granite-3.1-8b-base": None,
    "phi-4": None,
    "gemma-2-27b": None,
    "gemma-3-27b-it": None,
    "OLMo-2-0325-32B": shape("OLMo-2-1124-7B", 64, 5120, 27648, 40, 8),
    "Olmo-3-32B": shape("Olmo-3-1025-7B", 64, 5120, 27648, 40, 8, layer_types=sliding(64, 4)),
    "GLM-4-32B-0414": shape("GLM-4-9B-0414", 61, 6144, 23040, 48, 2),
    "starcoder2-15b": shape("starcoder2-7b", 40, 6144, 24576, 48, 4),
    "Ministral-3-14B-Base-2512": None,
    "gpt-neox-20b": None,
    "c4ai-command-r-plus": shape("c4ai-command-r-v01", 64, 12288, 33792, 96, 8, use_qk_norm=True),
    "c4ai-command-a-03-2025": None,
    "gemma-4-31B-it": None,
    "Seed-OSS-36B-Instruct": None,
    "EXAONE-4.0-32B": None,
    "cwm": None,
    "Hunyuan-7B-Instruct": None,
}


def directory(name, scratch):
    """The shape's model directory."""
    if SHAPES[name] is None:
        return CONFIGS / name
    like, sizes = SHAPES[name]
    config = json.loads((CONFIGS / like / "config.json").read_text())
    made = pathlib.Path(scratch) / name
    made.mkdir()
    (made / "config.json").write_text(json.dumps({**config, **sizes}))
    return made


def plan(ltrain, model, tokens):
    """(seconds on the clock, of the processor, peak bytes, the first line of what is said)"""
    command = [ltrain, "plan", "--model", model, "--seq-len", tokens, "--dtype", "bf16", *MACHINE]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = process.stdout.read()
    _, _, used = os.wait4(process.pid, 0)
    return time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, said.split("\n")[0]


def main():
    ltrain, names = sys.argv[1], sys.argv[2:] or SHAPES
    cpu = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    print(f"{cpu}, {len(os.sched_getaffinity(0))} cores; ltrain plan --dtype bf16 {' '.join(MACHINE)} --seq-len 32k, 128k")
    print(f"{'':28}{'tokens':>7}{'clock s':>9}{'cpu s':>8}{'peak MB':>9}{'load':>7}  answer")
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            model = directory(name, scratch)
            for tokens in ("32k", "128k"):
                load = open("/proc/loadavg").read().split()[0]
                clock, processor, peak, said = plan(ltrain, model, tokens)
                print(f"{name:28}{tokens:>7}{clock:9.1f}{processor:8.1f}{peak / 1e6:9.0f}{load:>7}  {said.split(': ')[-1]}", flush=True)


if __name__ == "__main__":
    main()
