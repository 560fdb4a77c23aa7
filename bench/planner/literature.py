#!/usr/bin/env python3
"""Plans beside figures from paper and print: `bench/planner/literature.py LTRAIN [OUT]` prints the tables, and writes them to OUT.

Each row is one `ltrain plan --json` on data sheet machines: the very programs that those meshes would run, on the virtual clock.
Nothing is fitted to what stands beside them. A plan that takes longer than PLAN_SECONDS is left out, and said so.

Sources:
[budget] this project's own figures, computed by hand; their document is not in the repository.
[UPipe] Ghadia et al., Untied Ulysses, arXiv 2602.21196, Llama3-8B on 8 x H100, tokens/s per GPU; its settings from
  github.com/ghadiaravi13/untied-ulysses, torchtitan/exps/llama3_8b/run_all_8B.sh at 1ac00f1.
[25B] github.com/ramanathanlab/genslm, examples/long-sequences/README.md at 02c83bd, table 2, TFLOP/s per GPU; settings from
  ALCF/model.sh and args.sh beside it; how TFLOPs are counted from throughput_calculator in megatron/utils.py of
  github.com/microsoft/Megatron-DeepSpeed at 0782d75.
[FA2] Dao, FlashAttention-2, arXiv 2307.08691: the first FlashAttention reaches 25 to 40% of an A100's peak.
[MEMO] Zhao et al., arXiv 2407.12117, abstract: 7B, 1M tokens, 8 x A800, MFU 52.30%.
Machines: the vendor's data sheets times the efficiencies, both in src/machine/hardware.c.
"""
import json
import os
import subprocess
import sys
import tempfile
import time

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

PLAN_SECONDS = 300
K, M = 1 << 10, 1 << 20
LLAMA_3B = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "vocab_size": 128256, "hidden_size": 3072,
            "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24, "num_key_value_heads": 8, "head_dim": 128,
            "max_position_embeddings": 8 * M, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": True}
# model, tokens, [budget]: step s, MFU %, each at alpha 0 and 1
BUDGET = [("1b", 128 * K, (9.8, 9.5), (45, 46)), ("1b", 420 * K, (91, 90), (44, 44.5)), ("1b", M, (518, 515), (43.7, 43.9)),
          ("3b", 128 * K, (21.9, 21.1), (52.6, 54.6)), ("3b", 420 * K, (200, 198), (52.3, 53.0)), ("8b", 32 * K, (4.3, 3.8), (55, 61)),
          ("8b", 128 * K, (36.7, 34.9), (53.4, 56.3)), ("8b", 420 * K, (317, 310), (52.6, 53.7)), ("8b", M, (1760, 1745), (52.4, 52.8))]
# layers, width of all heads, [budget]: bytes a token and layer at alpha 0 ("minimum") and 1 ("everything")
SHAPES = {"1b": (16, 2048, (8320, 51328)), "3b": (28, 3072, (12384, 61536)), "8b": (32, 4096, (16512, 94336))}
BUDGET_GEMM = 700e12  # [budget]: products at 680 to 740 TFLOP/s
BUDGET_ATTENTION = {"1b": (500e12, 510e12), "3b": (688e12, 581e12), "8b": (688e12, 581e12)}  # [budget]: forward, backward
H100_FORWARD, H100_BACKWARD = 690, 440  # TFLOP/s of attention at head dimension 128, as in src/machine/hardware.c
UPIPE = [(128 * K, 2281), (256 * K, 1487), (512 * K, 867), (M, 473), (2 * M, 246), (3 * M, 166), (4 * M, 126), (5 * M, 98)]
GPT_CONFIG = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new", "vocab_size": 50257,
              "layer_norm_epsilon": 1e-5}
# [25B]: layers, width, heads of its GPT25B; thousands of tokens: TFLOP/s of each run
GPT_25B_SHAPE = (64, 6144, 64)
GPT_25B = [(128, (105.0, 106.7)), (192, (115.8,)), (360, (81.6, 82.7)), (400, (90.6,)), (420, (81.8,))]
MEMO_SHAPE = (32, 4096, 32)
A100_PEAK, FLASH_1 = 312e12, (0.25, 0.40)  # [FA2]
A100_PRODUCTS, HDR_NODE = 250e12, 8 * 21e9  # as in src/machine/hardware.c: TFLOP/s; bytes/s that a node of 8 network links receives


def plan(ltrain, arguments, directory):
    """The plan as a dictionary, or a sentence."""
    command = [ltrain, "plan", "--json", "--dtype", "bf16", *arguments.split()]
    try:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=PLAN_SECONDS)
    except subprocess.TimeoutExpired:
        return f"not planned within {PLAN_SECONDS} s"
    if done.returncode:
        return done.stderr.strip().replace("ltrain: ", "") or f"not planned in time (exit status {done.returncode})"
    return json.loads(done.stdout)


def parts(p):
    s = p["step"]
    return (f"products {s['gemm_seconds']:.3g}, attention {s['attention_seconds']:.3g}, the rest {s['elementwise_seconds']:.3g}, "
            f"waiting {s['exposed_seconds']:.3g}; twice {s['recomputed_seconds']:.3g}")


def percent(ours, theirs):
    return f"{100 * (ours / theirs - 1):+.0f}%"


def length(tokens):
    return f"{tokens // M}m" if tokens % M == 0 else f"{tokens // K}k"


def budget_table(ltrain, directory, say):
    say("One H200, states and activations on the host, alpha 0 and 1; [budget] beside ours. Activations: what the forward pass saves.\n"
        "model  tokens alpha |  step s: theirs  ours       |  MFU %: theirs ours |  activations GB: theirs ours      | ours, seconds")
    reasons = []
    for model, tokens, seconds, mfu in BUDGET:
        layers, width, per_token = SHAPES[model]
        for alpha in (0, 1):
            p = plan(ltrain, f"--model {model} --seq-len {tokens} --machine h200 --host-mem 8T --offload cpu --alpha {alpha}", directory)
            head = f"{model:5} {length(tokens):>7} {alpha:5} |"
            if isinstance(p, str):
                say(f"{head} {p}")
                continue
            ours = p["step"]["seconds"]
            theirs, saved = per_token[alpha] * layers * tokens / 1e9, p["step"]["saved_activation_bytes"] / 1e9
            say(f"{head} {seconds[alpha]:15.4g} {ours:6.4g} {percent(ours, seconds[alpha]):>5} | {mfu[alpha]:14.3g} {100 * p['step']['mfu']:5.1f} |"
                f" {theirs:22.1f} {saved:7.1f} {percent(saved, theirs):>5} | {parts(p)}")
            if abs(ours / seconds[alpha] - 1) > 0.1:
                reasons.append(f"  {model} {length(tokens)} alpha {alpha}: {budget_reason(p, model, layers * width * tokens**2, theirs)}")
    say("Beyond 10%: [budget] takes attention's backward pass at cuDNN's rate; ours was measured (src/machine/hardware.c). And what our programs do and\n"
        "[budget] does not count: products as narrow as a tile of query heads; layer inputs fetched again in the backward\n"
        "pass, and normed again, for every such tile, which keeps the device lean:\n" +
        "\n".join(reasons))


def budget_reason(p, model, pairs, theirs):
    """Lists the work of our program that the budget did not count; pairs: layers x width x tokens squared."""
    s = p["step"]
    products = (s["hardware_flops"] - 7 * pairs) / BUDGET_GEMM  # attention, causal: 2 forward and 5 backward
    forward, backward = BUDGET_ATTENTION[model]
    attention = pairs * (2 / forward + 5 / backward)
    return (f"attention {s['attention_seconds']:.3g} s, at [budget]'s rates {attention:.3g}; products {s['gemm_seconds']:.3g}, {products:.3g}; {p['lanes']['h2d']['bytes'] / 1e9:.0f} GB to the device, not "
            f"{theirs:.0f}, and {s['exposed_seconds']:.2g} s of waiting; element-wise {s['elementwise_seconds']:.2g} s")


def upipe_table(ltrain, directory, say):
    say("\nLlama 8B on 8 x H100, 1.9 TB of host memory and 8 drives of 7 GB/s; tokens/s per GPU; [UPipe], measured, beside ours. Beyond 10%: we save\n"
        "attention's output; [UPipe]'s script sets activation checkpointing to \"full\" (its \"selective\", which alone keeps attention's output, is an\n"
        "experiment of its own there), so attention's forward pass runs twice: the second column, our step plus attention's forward seconds.\n"
        " tokens | theirs  ours         attention twice | MFU % theirs ours | mesh, placement | seconds")
    for tokens, theirs in UPIPE:
        p = plan(ltrain, f"--model 8b --seq-len {tokens} --machine 8xh100 --host-mem 1.9T --nvme 8x7GB/s --alpha 0 "
                 f"--offload params=none,grads=none,optim=cpu,acts={'nvme' if tokens > 3 * M else 'cpu'}", directory)
        if isinstance(p, str):
            say(f"{length(tokens):>7} | {theirs:6} {p}")
            continue
        s, step = p["strategy"], p["step"]
        ours = step["tokens_per_second_per_rank"]
        forward = step["attention_seconds"] * (2 / H100_FORWARD) / (2 / H100_FORWARD + 5 / H100_BACKWARD)
        twice = ours * step["seconds"] / (step["seconds"] + forward)
        say(f"{length(tokens):>7} | {theirs:6} {ours:6.0f} {percent(ours, theirs):>6} {twice:8.0f} {percent(twice, theirs):>6} | {100 * step['mfu'] * theirs / ours:12.1f} {100 * step['mfu']:5.1f} |"
            f" ulysses={s['ulysses']},ring={s['ring']} acts={s['acts']},optim={s['optim']} alpha {s['kept_chunks']}/{s['chunks']} | {parts(p)}")


def gpt2(directory, name, shape, tokens):
    layers, width, heads = shape
    os.makedirs(os.path.join(directory, name), exist_ok=True)
    with open(os.path.join(directory, name, "config.json"), "w") as f:
        json.dump({**GPT_CONFIG, "n_layer": layers, "n_embd": width, "n_head": heads, "n_positions": tokens}, f)


def megatron_flops(shape, tokens):
    """Counts a step's FLOPs as Megatron-DeepSpeed does, with activation checkpointing: everything forward twice, attention as if not masked."""
    layers, width, _ = shape
    return 96 * tokens * layers * width**2 * (1 + tokens / (6 * width) + 50257 / (16 * layers * width))


def their_seconds(shape, tokens, flash, masked):
    """Returns the seconds of a step as [25B] ran it: attention's forward twice at that share of the peak (masked: twice the pairs), products with
    layers recomputed, and 14 gathers or scatters a layer of all tokens among the nodes (tensor parallel 32, sequence parallel)."""
    layers, width, _ = shape
    attention = 9 * tokens**2 * width * layers * (2 if masked else 1) / 32 / (flash * A100_PEAK)
    products = 96 * tokens * layers * width**2 / 32 / A100_PRODUCTS
    return attention + products + 14 * layers * tokens * width * 2 * 3 / 4 / HDR_NODE


def gpt_table(ltrain, directory, say):
    shape = GPT_25B_SHAPE
    say("\nGPT-25B of [25B] (64 layers, 6144 wide, 64 heads: 29B) on 32 x A100-40GB, 4 nodes of 8, 1 TB of host memory each; TFLOP/s per GPU. Its runs:\n"
        "fp16, tensor parallel 32 across the nodes, every layer checkpointed, FlashAttention 1 or Triton's, ZeRO-Offload. It counts 8 P a token (forward\n"
        "twice) and attention as if nothing were masked, 16 L h S; we count 6 P + 6 L h S. Its TFLOP/s are its own count; the seconds follow from\n"
        "that. Estimate: what its way of running takes with [FA2]'s 25 to 40% of the peak in attention, masked blocks left out or not, all else as\n"
        "in our preset, messages not hidden. Its seconds lie within the second estimate, or (192k) between the two: what remains of\n"
        "the factor is that we run attention's forward pass once and at FlashAttention 2's rates. Lengths are thousands (SEQ_LEN=128000).\n"
        "  tokens | published      = step s | estimate, s: masked left out, not | ours: step s | in its count  in ours  executed | faster | seconds")
    for thousands, theirs in GPT_25B:
        tokens = 1000 * thousands
        gpt2(directory, "gpt-25b", shape, tokens)
        p = plan(ltrain, f"--model ./gpt-25b --seq-len {tokens} --machine 32xa100-40 --host-mem 1T --alpha 0 "
                 f"--offload params=none,grads=none,optim=cpu,acts=cpu", directory)
        counted = megatron_flops(shape, tokens) / 32
        took = counted / (theirs[0] * 1e12)
        slow, fast = FLASH_1
        head = (f" {thousands:4},000 | {'; '.join(map(str, theirs)):14} {took:7.1f} | {their_seconds(shape, tokens, fast, 0):8.0f} to"
                f" {their_seconds(shape, tokens, slow, 0):3.0f}, {their_seconds(shape, tokens, fast, 1):3.0f} to {their_seconds(shape, tokens, slow, 1):3.0f}      |")
        if isinstance(p, str):
            say(f"{head} {p}")
            continue
        step, per = p["step"], 1e12 * p["step"]["seconds"]
        say(f"{head} {step['seconds']:12.4g} | {counted / per:12.1f} {step['model_flops'] / per / 32:8.1f} {step['hardware_flops'] / per / 32:9.1f} |"
            f" {took / step['seconds']:5.1f}x | {parts(p)}")
    gpt2(directory, "gpt-25b", (30, 8192, 64), 420 * K)
    p = plan(ltrain, f"--model ./gpt-25b --seq-len {420 * K} --machine 32xa100-40 --host-mem 1T --alpha 0 "
             f"--offload params=none,grads=none,optim=cpu,acts=cpu", directory)
    say("[budget]'s shape (30 layers, 8192 wide), 430,080 tokens, same machine: 66 to 84 s a step; ours " +
        (p if isinstance(p, str) else f"{p['step']['seconds']:.4g} s"))


def memo_table(ltrain, directory, say):
    gpt2(directory, "gpt-7b", MEMO_SHAPE, M)
    p = plan(ltrain, f"--model ./gpt-7b --seq-len {M} --machine 8xa100-80 --host-mem 1.9T --alpha 0 "
             f"--offload params=none,grads=none,optim=cpu,acts=cpu", directory)
    ours = p if isinstance(p, str) else f"{100 * p['step']['mfu']:.1f}%, step {p['step']['seconds']:.4g} s | {parts(p)}"
    say(f"\nGPT of 7B (32 layers, 4096 wide), 1M tokens, 8 x A100-80 for [MEMO]'s A800 (NVLink 400 GB/s instead of 600): MFU, theirs 52.3%"
        f" (its abstract does not say how FLOPs are counted); ours {ours}")


def main():
    ltrain = os.path.abspath(sys.argv[1])
    out = open(sys.argv[2], "w") if len(sys.argv) > 2 else None

    def say(line):
        print(line, flush=True)
        if out:
            out.write(line + "\n")
            out.flush()

    start = time.time()
    with tempfile.TemporaryDirectory() as directory:
        os.mkdir(os.path.join(directory, "3b"))
        with open(os.path.join(directory, "3b", "config.json"), "w") as f:
            json.dump(LLAMA_3B, f)
        say(__doc__.split("\n\n", 1)[1])
        budget_table(ltrain, directory, say)
        upipe_table(ltrain, directory, say)
        gpt_table(ltrain, directory, say)
        memo_table(ltrain, directory, say)
    print(f"{time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
