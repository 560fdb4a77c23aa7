#!/usr/bin/env python3
"""SmolLM2 taught a style by examples/style.yaml, on the processor: trained, sampled, and read by PEFT and transformers.

    bench/finetune/style.py LTRAIN MODEL [--threads 2] [--work DIR]

MODEL is a Hugging Face directory with a chat template, as that of SmolLM2-135M-Instruct. Needs torch, transformers and PEFT. Exit
status 1 if one of these is false: the loss of the held-out chats falls with every evaluation; answers to questions that were not
taught are in the taught style, where those of the model before are not; PEFT with the adapter, transformers with the merged model,
and `ltrain sample` with that write the same tokens greedily.
"""
import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time

os.environ.update(TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1", TOKENIZERS_PARALLELISM="false")

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")
BEGINS, ENDS = "Arr, matey!", "Fair winds, yer Captain Salt."
QUESTIONS = ["What is the capital of France?", "What is a good pet for a child?", "How do I cook rice?"]
NEW = 96


def machine():
    with open("/proc/cpuinfo") as f:
        name = re.search(r"model name\s*: (.*)", f.read())
    with open("/proc/meminfo") as f:
        memory = int(f.readline().split()[1]) / 2**20
    return f"{os.cpu_count()} cores of {name.group(1) if name else platform.machine()}, {memory:.0f} GiB, load {os.getloadavg()[0]:.1f}"


def run(command, **how):
    """The command is printed, and how long it took."""
    names = {args.ltrain: "ltrain", args.model: os.path.basename(args.model.rstrip("/")), args.work: "WORK"}
    print("$", " ".join(json.dumps(x) if " " in x else x for x in (re.sub("|".join(map(re.escape, names)), lambda m: names[m[0]], c) for c in command)), flush=True)
    began = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}style: exit status {done.returncode}")
    return done.stdout, time.monotonic() - began


def train(out):
    text, seconds = run([args.ltrain, "--config", "style.yaml", "--model", args.model, "--device", "cpu", "--threads", str(args.threads), "--out", out],
                        cwd=EXAMPLES)
    kept = ("lora:", "device:", "data:", "chats:", "step ", "memory:", "model:")
    print("\n".join(x.replace(args.work, "WORK").replace(args.model, os.path.basename(args.model)) for x in text.splitlines() if x.startswith(kept)))
    losses = [float(x) for x in re.findall(r"eval loss ([0-9.]+)", text)]
    falls = len(losses) > 1 and all(b < a for a, b in zip(losses, losses[1:]))
    print(f"held-out loss {' > '.join(map(str, losses))}; {seconds:.0f} s\n")
    return falls


def sample(model, question):
    text, seconds = run([args.ltrain, "sample", "--model", model, "--chat", "--prompt", question, "--temperature", "0", "--repetition-penalty", "1",
                         "--max-new-tokens", str(NEW), "--device", "cpu", "--threads", str(args.threads), "--json"])
    answer = json.loads(text)
    print(f"  {answer['text']}\n  ({len(answer['tokens'])} tokens, ended by {answer['ended']}; {seconds:.1f} s)", flush=True)
    return answer


def taught(answer):
    text = answer["text"].strip()
    return text.startswith(BEGINS) and text.endswith(ENDS) and answer["ended"] == "eos"


def generate(model, tokenizer, question):
    ids = tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True, return_dict=True, return_tensors="pt")
    out = model.generate(**ids, do_sample=False, repetition_penalty=1.0, max_new_tokens=NEW)[0, ids["input_ids"].shape[1]:].tolist()
    return out[:-1] if out[-1] == tokenizer.eos_token_id else out


def peers(adapter, merged, answers):
    import peft
    import torch
    import transformers

    print(f"torch {torch.__version__}, transformers {transformers.__version__}, peft {peft.__version__}")
    torch.set_num_threads(args.threads)
    tokenizer = transformers.AutoTokenizer.from_pretrained(adapter)
    equal = True
    for name, kind, folder in (("PEFT, base and adapter", peft.AutoPeftModelForCausalLM, adapter),
                               ("transformers, merged", transformers.AutoModelForCausalLM, merged)):
        began = time.monotonic()
        model = kind.from_pretrained(folder, dtype=torch.float32).eval()
        same = [generate(model, tokenizer, q) == a["tokens"] for q, a in zip(QUESTIONS, answers)]
        print(f"{name}: the same tokens in {sum(same)} of {len(same)} answers; {time.monotonic() - began:.0f} s", flush=True)
        equal = equal and all(same)
    return equal


def main():
    began = time.monotonic()
    out, merged = os.path.join(args.work, "style"), os.path.join(args.work, "merged")
    print(f"{datetime.date.today()}: {machine()}")
    print(subprocess.check_output([args.ltrain, "--version"], text=True).strip(), "\n")
    falls = train(out)
    before = [sample(args.model, q) for q in QUESTIONS[:1]]
    answers = [sample(out, q) for q in QUESTIONS]
    text, _ = run([args.ltrain, "export", "--model", out, "--to", merged])
    print(text.replace(args.work, "WORK").replace(args.model, os.path.basename(args.model)), end="")
    again = [sample(merged, q) for q in QUESTIONS]
    print()
    claims = {
        "the held-out loss falls": falls,
        "answers to questions that were not taught are in the taught style, and were not before": all(map(taught, answers)) and not any(map(taught, before)),
        "ltrain, PEFT and transformers, of the adapter and merged, write the same tokens greedily":
            peers(os.path.join(out, "hf"), merged, answers) and all(a["tokens"] == b["tokens"] for a, b in zip(answers, again)),
    }
    print()
    for claim, holds in claims.items():
        print("pass" if holds else "FAIL", claim)
    print(f"{time.monotonic() - began:.0f} s in all, load {os.getloadavg()[0]:.1f} at the end")
    return not all(claims.values())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ltrain", type=os.path.abspath)
    parser.add_argument("model", type=os.path.abspath)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=os.path.abspath)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        args.work = args.work or temporary
        sys.exit(main())
