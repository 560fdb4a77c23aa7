"""PyTorch + transformers beside ltrain, in one process after the other on one GPU: tokens/s by length, and the longest length of each.

The peer is a Llama of the same shape in transformers: bf16 autocast over fp32 parameters, scaled_dot_product_attention (cuDNN's or flash
kernels), fused AdamW, clipping; `checkpointing` recomputes each layer, `saved-on-cpu` moves what checkpointing saves to pinned host memory.
ltrain runs with everything else automatic. Random weights, bytes of a text as tokens. Writes peers.json; `--dry` prints what would run."""
import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time

SHAPES = {  # name of ltrain's preset -> transformers.LlamaConfig
    "tiny": dict(vocab_size=256, hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4,
                 num_key_value_heads=2, head_dim=32, tie_word_embeddings=False, rope_theta=10000.0),
    "1b": dict(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
               num_key_value_heads=8, head_dim=64, tie_word_embeddings=True, rope_theta=500000.0),
}
LENGTHS = [1024, 4096, 16384, 32768, 65536, 131072, 262144, 524288]
MODES = ["plain", "checkpointing", "saved-on-cpu"]
PATIENCE = 90  # seconds that one step may take before longer lengths are left out


def peer_step(torch, model, optimizer, tokens, mode):
    saving = torch.autograd.graph.save_on_cpu(pin_memory=True) if mode == "saved-on-cpu" else contextlib.nullcontext()
    with saving, torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return float(loss)


def peer(shape, length, mode, steps):
    """Of one length in this process; prints JSON."""
    import torch
    import transformers
    config = transformers.LlamaConfig(max_position_embeddings=length, attn_implementation="sdpa", **SHAPES[shape])
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(config).float()
    if mode != "plain":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    seconds = []
    for _ in range(steps + 1):
        tokens = torch.randint(0, 256, (1, length), device="cuda")
        torch.cuda.synchronize()
        began = time.perf_counter()
        loss = peer_step(torch, model, optimizer, tokens, mode)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    best = min(seconds[1:])
    print(json.dumps({"seconds": best, "tokens_per_second": length / best, "loss": loss, "torch": torch.__version__,
                      "transformers": transformers.__version__, "peak_bytes": torch.cuda.max_memory_allocated()}))


def run_peer(shape, length, mode, until):
    command = [sys.executable, __file__, "--one", shape, str(length), mode]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(5, until - time.time()), check=False)
    except subprocess.TimeoutExpired:
        return {"ended": "no time left"}
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    said = done.stderr.strip().splitlines()
    return {"ended": "out of memory" if "OutOfMemoryError" in done.stderr else (said[-1] if said else f"status {done.returncode}")}


def run_until_step(command, step, seconds, cwd=None):
    """Runs ltrain until it has said that step, then kills it: it would go on to export the model. (status, stderr); 0: it came so far."""
    with tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, text=True, cwd=cwd)
        late = threading.Timer(max(5, seconds), child.kill)
        late.start()
        reached = any(line.startswith(f"step {step}/") for line in child.stdout)
        if reached:
            time.sleep(0.5) # until metrics.jsonl has it
            child.kill()
        child.stdout.close()
        status = child.wait()
        late.cancel()
        err.seek(0)
        return (0 if reached else 124 if status == -9 else status), err.read().strip()


def run_ltrain(ltrain, text, shape, length, until, extra):
    """The third step, which begins with an update as all later ones do."""
    folder = tempfile.mkdtemp(prefix="peers-")
    command = ltrain.split() + ["--model", shape, "--data", text, "--seq-len", str(length), "--steps", "4", "--save-every", "0", "--zero", "3",
                                "--out", os.path.join(folder, "run")] + extra
    try:
        status, err = run_until_step(command, 3, until - time.time())
        with contextlib.suppress(OSError):
            with open(os.path.join(folder, "run", "metrics.jsonl"), encoding="utf-8") as f:
                steps = [json.loads(line) for line in f if line.endswith("\n")]
            if len(steps) > 1: # also where there was no time for the last one
                last = steps[-1]
                return {k: last[k] for k in ("seconds", "tokens_per_second", "loss", "mfu", "mfu_reference", "hidden", "planned_seconds",
                                             "device_peak_bytes", "host_peak_bytes", "nvme_bytes")}
        return {"ended": "no time left" if status == 124 else (err.splitlines() or [f"status {status}"])[-1]}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def longest(rows, who):
    lengths = [r["length"] for r in rows if "seconds" in r.get(who, {})]
    return max(lengths, default=0)


def summarize(rows):
    """What the marks are about: ltrain's speed at the peers' longest length, how much longer it goes, and its speed at short ones."""
    best = {r["length"]: max((r[m]["tokens_per_second"] for m in MODES if "seconds" in r.get(m, {})), default=None) for r in rows}
    own = {r["length"]: r["ltrain"]["tokens_per_second"] for r in rows if "seconds" in r.get("ltrain", {})}
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--one", nargs=3, metavar=("SHAPE", "LENGTH", "MODE"))
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--shape", default="1b", choices=SHAPES)
    parser.add_argument("--ltrain", default=os.environ.get("LTRAIN", "ltrain"))
    parser.add_argument("--text", default="books.txt")
    parser.add_argument("--lengths", type=lambda s: [int(x) for x in s.split(",")], default=LENGTHS)
    parser.add_argument("--options", default="--dtype bf16 --device cuda", help="of ltrain")
    parser.add_argument("--no-peers", action="store_true", help="ltrain alone")
    parser.add_argument("--dry", action="store_true")
    o = parser.parse_args()
    if o.one:
        peer(o.one[0], int(o.one[1]), o.one[2], 2)
        return 0
    modes = [] if o.no_peers else MODES
    if o.dry:
        print(json.dumps({"shape": o.shape, "lengths": o.lengths, "modes": modes + ["ltrain"]}))
        return 0
    until, rows, over = time.time() + o.seconds, [], set()
    for length in o.lengths:
        row = {"length": length}
        for who in ["ltrain"] + modes:
            if who in over or time.time() > until - 5:
                continue
            one = run_ltrain(o.ltrain, o.text, o.shape, length, until, o.options.split()) if who == "ltrain" else \
                run_peer(o.shape, length, who, until)
            row[who] = one
            if "ended" in one or one["seconds"] > PATIENCE:
                over.add(who)
            said = one.get("ended") or f"{one['tokens_per_second']:.0f} tok/s ({one['seconds']:.2f} s)"
            print(f"{length:8d} tokens  {who:14s} {said}", flush=True)
        rows.append(row)
    result = {"shape": o.shape, "rows": rows, "summary": summarize(rows)}
    out = os.path.join(os.environ.get("OUT", "."), "peers.json")
    with open(out, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
    print("peers:", json.dumps(result["summary"]))
    return 0 if any("seconds" in r.get("ltrain", {}) for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
