#!/usr/bin/env python3
"""Plans of published models with experts: `bench/planner/experts.py LTRAIN [--effort E] [--dense] [--adapters]`, from the root of the sources.

Full fine-tuning or, with --adapters, LoRA (r=16, all-linear) on a base in NF4, of gpt-oss in MXFP4 as it is published, one sequence a step, the configurations of tests/model/experts, 1 TiB of host memory a node and four drives of 7 GB/s.
Prints the rows of the table in docs/planning.md: the step, MFU, peak bytes by tier and where experts lie; and the time of planning on
stderr, with --dense beside that of a dense model with as many layers of equal products."""
import argparse, json, os, resource, subprocess, sys, tempfile

MODELS = ["Qwen3-30B-A3B", "gpt-oss-20b", "Mixtral-8x7B-v0.1", "GLM-4.5-Air"]
MACHINES = ["rtx4090", "h100", "h200", "4xa100-80"]
LENGTHS = ["8k", "128k", "420k"]
REST = ["--host-mem", "1T", "--nvme", "4x7GB/s", "--json"]
GIB = 1 << 30


def adapters_of(name):
    """Returns the options of adapters on a quantised base."""
    return ["--lora", "r=16", "--base", "mxfp4" if name.startswith("gpt-oss") else "nf4"]


def plan(program, model, length, machine, effort, options=()):
    """Returns the plan and its seconds of processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = subprocess.run([program, "plan", "--model", model, "--seq-len", length, "--machine", machine, "--effort", effort, *options, *REST], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        return json.loads(child.stdout), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    except ValueError:
        sys.exit(f"{model} {length} {machine}: {child.stderr}")


def dense_of(where, model):
    """Writes a dense model with the attention and as many columns of its MLP as a token gets."""
    c = json.load(open(os.path.join(model, "config.json")))
    used = c.get("num_experts_per_tok", 1) * (c.get("moe_intermediate_size") or c["intermediate_size"])
    heads = {k: c[k] for k in ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size", "head_dim") if k in c}
    dense = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "intermediate_size": used, "rms_norm_eps": 1e-5,
             "rope_theta": 1e6, "max_position_embeddings": 1 << 20, "tie_word_embeddings": False, **heads}
    path = os.path.join(where, os.path.basename(model))
    os.makedirs(path, exist_ok=True)
    json.dump(dense, open(os.path.join(path, "config.json"), "w"))
    return path


def cell(p):
    if not p["fits"]:
        return f"{p['misfit']} too small"
    s = p["step"]
    return f"{s['seconds']:.3g} s, {100 * s['mfu']:.0f}%"


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("program")
    a.add_argument("--effort", default="normal")
    a.add_argument("--dense", action="store_true")
    a.add_argument("--adapters", action="store_true")
    a.add_argument("--models", nargs="*", default=MODELS)
    a = a.parse_args()
    print("| model | tokens | " + " | ".join(MACHINES) + " |\n|---|---|" + "---|" * len(MACHINES))
    with tempfile.TemporaryDirectory() as where:
        for name in a.models:
            model = os.path.join("tests", "model", "experts", name)
            dense = dense_of(where, model)
            for length in LENGTHS:
                cells = []
                for machine in MACHINES:
                    p, seconds = plan(a.program, model, length, machine, a.effort, adapters_of(name) if a.adapters else ())
                    beside = f", dense {plan(a.program, dense, length, machine, a.effort)[1]:.2f} s" if a.dense else ""
                    cells.append(cell(p))
                    peak = {k: round(v / GIB) for k, v in p["peak"].items()}
                    held = {k: round(v / GIB) for k, v in p["experts"]["held"].items()}
                    print(f"{name} {length} {machine}: planned in {seconds:.2f} s{beside}; peak {peak} GiB, experts {held} GiB", file=sys.stderr, flush=True)
                print(f"| {name} | {length} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
