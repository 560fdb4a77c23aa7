"""PyTorch + transformers beside ltrain, in one process after the other on one GPU: tokens/s by length, and the longest length of each.

The peer is a Llama of the same shape in transformers: bf16 autocast over fp32 parameters, scaled_dot_product_attention (cuDNN's kernels,
else the next of BACKENDS that runs; `attention` says which ran), fused AdamW, clipping; `checkpointing` recomputes each layer, `saved-on-cpu`
moves what checkpointing saves to pinned host memory, too. One process has all modes and lengths of each, up to the one that needs more memory
than there is, without what is shorter than the former mode's longest, which was faster there. ltrain runs with everything else automatic, first where the marks are. Random weights, bytes of a text as tokens. Writes peers.json, anew
after each figure; `--dry` prints what would run. Exit status 1: a mark was missed, or ltrain ran nowhere; 77: no mark could be tried."""
import argparse
import contextlib
import gc
import json
import os
import shutil
import sys
import tempfile
import time

from running import Call, Ended, raise_on_sigterm, replace

SHAPES = {  # name of ltrain's preset -> transformers.LlamaConfig
    "tiny": dict(vocab_size=256, hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4,
                 num_key_value_heads=2, head_dim=32, tie_word_embeddings=False, rope_theta=10000.0),
    "1b": dict(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
               num_key_value_heads=8, head_dim=64, tie_word_embeddings=True, rope_theta=500000.0),
}
LENGTHS = [1024, 4096, 16384, 32768, 49152, 65536, 98304, 131072, 196608, 262144, 524288]
MODES = ["plain", "checkpointing", "saved-on-cpu"]
BACKENDS = ["CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH"] # of scaled_dot_product_attention
MARKS = {"at_peers_longest": 1.5, "times_as_long": 4, "at_1024": 1.3, "at_4096": 1.3} # at least
PATIENCE = 90    # seconds that one step may take before longer lengths are left out
PEERS_PART = 0.45 # of the time
NO_TIME = "no time left"


def peer_step(torch, model, optimizer, tokens, mode):
    saving = torch.autograd.graph.save_on_cpu(pin_memory=True) if mode == "saved-on-cpu" else contextlib.nullcontext()
    with saving, torch.autocast(tokens.device.type, dtype=torch.bfloat16):
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return float(loss)


def timed_steps(torch, model, optimizer, length, mode, steps):
    """Seconds of each after the first, and the last one's loss."""
    device, seconds = next(model.parameters()).device, []
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    for _ in range(steps + 1):
        tokens = torch.randint(0, 256, (1, length), device=device)
        wait()
        began = time.perf_counter()
        loss = peer_step(torch, model, optimizer, tokens, mode)
        wait()
        seconds.append(time.perf_counter() - began)
    return seconds[1:], loss


def with_attention(torch, model, optimizer, length, mode, steps):
    """By the first backend that runs: (its name, seconds, loss), else how it ended. More memory than there is may be one backend's need."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    said, full = "", False
    for name in BACKENDS:
        try:
            with sdpa_kernel([getattr(SDPBackend, name)]):
                return (name, *timed_steps(torch, model, optimizer, length, mode, steps))
        except torch.OutOfMemoryError:
            full = True
        except RuntimeError as e:
            full = full or "ALLOC_FAILED" in str(e) or "out of memory" in str(e) # of a library
            said = said or f"{name}: {str(e).splitlines()[0][:160]}"
        optimizer.zero_grad(set_to_none=True)
        gc.collect()
        torch.cuda.empty_cache()
        if full and name == "FLASH_ATTENTION":
            break
    return "out of memory" if full else said


def peer(shape, lengths, modes, device, steps=2):
    """All modes in this process, each by length while there is memory: prints a line of JSON of each."""
    import torch
    import transformers
    config = transformers.LlamaConfig(max_position_embeddings=max(lengths), attn_implementation="sdpa", **SHAPES[shape])
    with torch.device(device):
        model = transformers.LlamaForCausalLM(config).float()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    done = 0
    for mode in modes:
        if mode != "plain":
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        for length in [n for n in lengths if n >= done]:
            if device == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            ran = with_attention(torch, model, optimizer, length, mode, steps)
            if isinstance(ran, str):
                print(json.dumps({"mode": mode, "length": length, "ended": ran}), flush=True)
                break
            attention, seconds, loss = ran
            done = length
            print(json.dumps({"mode": mode, "length": length, "seconds": min(seconds), "tokens_per_second": length / min(seconds), "loss": loss,
                              "attention": attention, "torch": torch.__version__, "transformers": transformers.__version__,
                              "peak_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else 0}), flush=True)


class Table:
    """Rows by length, of who ran there."""
    def __init__(self, shape):
        self.shape, self.by_length, self.marks = shape, {}, []

    def add(self, length, who, one):
        self.by_length.setdefault(length, {"length": length})[who] = one
        said = one.get("ended") or f"{one['tokens_per_second']:.0f} tok/s ({one['seconds']:.2f} s{', ' + one['attention'] if 'attention' in one else ''})"
        said += "".join(f" {k}={one[k]:.1f}" for k in ("took", "first") if one.get(k))
        print(f"{length:8d} tokens  {who:14s} {said}", flush=True)
        self.write()

    def rows(self):
        return [self.by_length[length] for length in sorted(self.by_length)]

    def write(self):
        result = {"shape": self.shape, "rows": self.rows(), "summary": summarize(self.rows()), "marks": self.marks}
        replace(os.path.join(os.environ.get("OUT", "."), "peers.json"), json.dumps(result, indent=1))


def run_peers(table, o, modes, seconds):
    command = [sys.executable, os.path.abspath(__file__), "--one", o.shape, ",".join(map(str, o.lengths)), ",".join(modes), o.peer_device]
    call = Call(command)
    try:
        memory = "expandable_segments:True" # the longest that PyTorch can have
        call.follow(max(5, seconds), env={"PYTORCH_ALLOC_CONF": memory, "PYTORCH_CUDA_ALLOC_CONF": memory})
    finally:
        reached = {mode: 0 for mode in modes}
        for line in call.out.splitlines():
            with contextlib.suppress(ValueError):
                one = json.loads(line)
                reached[one["mode"]] = max(o.lengths) if "ended" in one else one["length"]
                table.add(one["length"], one["mode"], one)
        why = NO_TIME if call.status in (124, None) else (call.err.splitlines() or [f"status {call.status}"])[-1][:300]
        for mode, length in reached.items():
            if length < max(o.lengths):
                table.add(min(n for n in o.lengths if n > length), mode, {"ended": why})
        print(f"peers: {call.took:.1f} s", flush=True)


def run_ltrain(o, length, seconds, step):
    """The third step, which begins with an update as all later ones do; less where only the length is asked for, or there is no time."""
    folder = tempfile.mkdtemp(prefix="peers-")
    call = Call(o.ltrain.split() + ["--model", o.shape, "--data", o.text, "--seq-len", str(length), "--steps", str(step + 1), "--save-every", "0",
                                    "--zero", "3", "--out", os.path.join(folder, "run")] + o.options.split())
    try:
        call.follow(max(5, seconds), step=step)
        times = {"took": call.took, **({} if call.first is None else {"first": call.first})}
        with contextlib.suppress(OSError):
            with open(os.path.join(folder, "run", "metrics.jsonl"), encoding="utf-8") as f:
                steps = [json.loads(line) for line in f if line.endswith("\n")]
            if steps: # also where there was no time for the last one
                last = ([s for s in steps if s["tokens"] > 0.9 * length] or steps)[-1] # not one of a text's last few tokens
                return {"steps": len(steps), **times, **{k: last[k] for k in (
                    "seconds", "tokens_per_second", "loss", "mfu", "mfu_reference", "hidden", "planned_seconds", "device_peak_bytes",
                    "host_peak_bytes", "nvme_bytes")}}
        return {"ended": NO_TIME if call.status == 124 else (call.err.splitlines() or [f"status {call.status}"])[-1], **times}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def longest(rows, who):
    lengths = [r["length"] for r in rows if "seconds" in r.get(who, {})]
    return max(lengths, default=0)


def summarize(rows):
    """Returns the figures that marks are about: ltrain's speed at the peers' longest length, how much longer it goes, and its speed at short ones."""
    best = {r["length"]: max((r[m]["tokens_per_second"] for m in MODES if "seconds" in r.get(m, {})), default=None) for r in rows}
    own = {r["length"]: r["ltrain"]["tokens_per_second"] for r in rows if r.get("ltrain", {}).get("steps", 0) > 1}
    peers = max((longest(rows, m) for m in MODES), default=0)
    out = {"peers_longest": peers, "ltrain_longest": longest(rows, "ltrain")}
    if peers and peers in own:
        out["at_peers_longest"] = own[peers] / best[peers]
    if peers:
        out["times_as_long"] = out["ltrain_longest"] / peers
    for length in (1024, 4096):
        if best.get(length) and length in own:
            out[f"at_{length}"] = own[length] / best[length]
    return out


def judge(table, lengths):
    """Judges the table; lengths not measured, or ended for want of time, are not tried."""
    rows, summary = table.rows(), summarize(table.rows())
    ends = {m: [r[m]["ended"] for r in rows if "ended" in r.get(m, {})] for m in MODES + ["ltrain"]}
    whole = all(ends[m] == ["out of memory"] or longest(rows, m) == max(lengths) for m in MODES)
    own = [r for r in rows if "ltrain" in r]
    for name, mark in MARKS.items():
        value = summary.get(name)
        passed = None if value is None else value >= mark
        why = {}
        if name in ("at_peers_longest", "times_as_long") and passed is not None and not whole:
            passed, why = None, {"why": "the peers' longest is not known"}
        elif name == "times_as_long" and passed is False and not any("ended" in r["ltrain"] and r["ltrain"]["ended"] != NO_TIME for r in own):
            passed, why = None, {"why": "nobody tried longer ones"}
        table.marks.append({"case": name, "passed": passed, "value": value, "mark": mark, **why})
        said = "not measured" if value is None else f"{value:.3g}, mark {mark}"
        print(f"{'skipped' if passed is None else 'ok' if passed else 'NOT OK':8s}{name:44s} {said} {why.get('why', '')}", flush=True)
    table.write()
    verdicts = [m["passed"] for m in table.marks]
    if False in verdicts or not longest(rows, "ltrain"):
        return 1
    return 0 if True in verdicts else 77


def compare(table, o, until):
    """Peers in a part of the time; then ltrain, first where marks are, then as far as time goes."""
    modes = [] if o.no_peers else MODES
    if modes:
        run_peers(table, o, modes, PEERS_PART * o.seconds)
    far = max((longest(table.rows(), m) for m in MODES), default=0)
    wanted = [far, 4096, MARKS["times_as_long"] * far, 1024] if far else []
    wanted = list(dict.fromkeys(n for n in wanted if n in o.lengths or n > far)) + [n for n in o.lengths if n not in wanted]
    over = None
    for length in wanted:
        if over and length > over:
            continue
        left = until - time.time()
        if left < 10:
            table.add(length, "ltrain", {"ended": NO_TIME})
            break
        one = run_ltrain(o, length, left, 2 if far and length > far else 3)
        table.add(length, "ltrain", one)
        if "ended" in one or one["seconds"] > PATIENCE:
            over = min(over or length, length)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--one", nargs=4, metavar=("SHAPE", "LENGTHS", "MODES", "DEVICE"))
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--shape", default="1b", choices=SHAPES)
    parser.add_argument("--ltrain", default=os.environ.get("LTRAIN", "ltrain"))
    parser.add_argument("--text", default="books.txt")
    parser.add_argument("--lengths", type=lambda s: sorted(int(x) for x in s.split(",")), default=LENGTHS)
    parser.add_argument("--options", default="--dtype bf16 --device cuda", help="of ltrain")
    parser.add_argument("--no-peers", action="store_true", help="ltrain alone")
    parser.add_argument("--peer-device", default="cuda", help="cpu: to see that it runs")
    parser.add_argument("--dry", action="store_true")
    o = parser.parse_args()
    if o.one:
        peer(o.one[0], [int(n) for n in o.one[1].split(",")], o.one[2].split(","), o.one[3])
        return 0
    if o.dry:
        print(json.dumps({"shape": o.shape, "lengths": o.lengths, "modes": ([] if o.no_peers else MODES) + ["ltrain"]}))
        return 0
    o.text = os.path.abspath(o.text)
    table = Table(o.shape)
    raise_on_sigterm()
    with contextlib.suppress(Ended): # what there is is judged
        compare(table, o, time.time() + o.seconds)
    status = judge(table, o.lengths)
    return 0 if status == 77 and o.no_peers else status


if __name__ == "__main__":
    sys.exit(main())
