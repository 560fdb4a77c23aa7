#!/usr/bin/env python3
"""Plans beside figures from paper and print: `bench/literature.py LTRAIN [OUT]` prints the tables, and writes them to OUT.

Each row is one `ltrain plan --json` on data sheet machines: the very programs that those meshes would run, on the virtual clock.
Nothing is fitted to what stands beside them. A plan that takes longer than PLAN_SECONDS is left out, and said so.

Sources: [budget] shared/gpu-budget.md of this project, computed by hand (bf16 gradients of attention, other rates than the data
sheets' here); [UPipe] Ghadia et al., Untied Ulysses, arXiv 2602.21196, Llama3-8B on 8 x H100, tokens/s per GPU;
[25B] published TFLOP/s per GPU of a GPT of 25B parameters on 32 x A100-40GB between 128k and 420k tokens, as issue 7 of this
project quotes it: only the first and the last length are known to us.
"""
import json
import os
import subprocess
import sys
import tempfile
import time

PLAN_SECONDS = 150
K, M = 1 << 10, 1 << 20
LLAMA_3B = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "vocab_size": 128256, "hidden_size": 3072,
            "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24, "num_key_value_heads": 8, "head_dim": 128,
            "max_position_embeddings": 8 * M, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": True}
# model, tokens, [budget]: step s, MFU %, activations GB, each at alpha 0 and 1 (None: not given)
BUDGET = [("1b", 128 * K, (9.8, 9.5), (45, 46), (17, 108)), ("1b", 420 * K, (91, 90), (44, 44.5), (57, 353)),
          ("1b", M, (518, 515), (43.7, 43.9), (140, 861)), ("3b", 128 * K, (21.9, 21.1), (52.6, 54.6), (45, 226)),
          ("3b", 420 * K, (200, 198), (52.3, 53.0), (149, 741)), ("8b", 32 * K, (4.3, 3.8), (55, 61), (17, 99)),
          ("8b", 128 * K, (36.7, 34.9), (53.4, 56.3), (69, 396)), ("8b", 420 * K, (317, 310), (52.6, 53.7), (227, 1298)),
          ("8b", M, (1760, 1745), (52.4, 52.8), (554, 3165))]
UPIPE = [(128 * K, 2281), (256 * K, 1487), (512 * K, 867), (M, 473), (2 * M, 246), (3 * M, 166), (4 * M, 126), (5 * M, 98)]
GPT_25B = [(128 * K, "105"), (256 * K, "115.8, 82, 90.6 in between"), (420 * K, "81.8")]


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
    say("One H200, states and activations on the host, alpha 0 and 1; [budget] beside ours. Activations: what is saved, all tiers.\n"
        "model  tokens alpha |  step s: theirs  ours       |  MFU %: theirs ours |  activations GB: theirs ours      | ours, seconds")
    for model, tokens, seconds, mfu, gigabytes in BUDGET:
        for alpha in (0, 1):
            p = plan(ltrain, f"--model {model} --seq-len {tokens} --machine h200 --host-mem 8T --offload cpu --alpha {alpha}", directory)
            head = f"{model:5} {length(tokens):>7} {alpha:5} |"
            if isinstance(p, str):
                say(f"{head} {p}")
                continue
            ours = p["step"]["seconds"]
            held = p["classes"]["activations"]["peak"]
            held = held["host"] / 1e9
            say(f"{head} {seconds[alpha]:15.4g} {ours:6.4g} {percent(ours, seconds[alpha]):>5} | {mfu[alpha]:14.3g} {100 * p['step']['mfu']:5.1f} |"
                f" {gigabytes[alpha]:22} {held:7.1f} {percent(held, gigabytes[alpha]):>5} | {parts(p)}")


def upipe_table(ltrain, directory, say):
    say("\nLlama 8B on 8 x H100, 1.9 TB of host memory and 8 drives of 7 GB/s; tokens/s per GPU; [UPipe] beside ours.\n"
        " tokens | theirs  ours        | MFU % theirs ours | mesh, placement | seconds")
    for tokens, theirs in UPIPE:
        p = plan(ltrain, f"--model 8b --seq-len {tokens} --machine 8xh100 --host-mem 1.9T --nvme 8x7GB/s --alpha 0 "
                 f"--offload params=none,grads=none,optim=cpu,acts={'nvme' if tokens > 3 * M else 'cpu'}", directory)
        if isinstance(p, str):
            say(f"{length(tokens):>7} | {theirs:6} {p}")
            continue
        s, step = p["strategy"], p["step"]
        ours = step["tokens_per_second_per_rank"]
        say(f"{length(tokens):>7} | {theirs:6} {ours:6.0f} {percent(ours, theirs):>6} | {100 * step['mfu'] * theirs / ours:12.1f} {100 * step['mfu']:5.1f} |"
            f" ulysses={s['ulysses']},ring={s['ring']} acts={s['acts']},optim={s['optim']} alpha {s['kept_chunks']}/{s['chunks']} | {parts(p)}")


def gpt_table(ltrain, directory, say):
    say("\nGPT-25B on 32 x A100-40GB (4 nodes of 8), 1 TB of host memory a node; TFLOP/s per GPU. Causal: 6 P + 6 L h S a token, ours;\n"
        "full: 6 P + 12 L h S, as if nothing were masked; with recompute: what the device executes. The source does not say which it counts.\n"
        " tokens | published                  | causal   full  with recompute | step s | seconds")
    for tokens, theirs in GPT_25B:
        p = plan(ltrain, f"--model gpt-25b --seq-len {tokens} --machine 32xa100-40 --host-mem 1T --alpha 0 "
                 f"--offload params=none,grads=none,optim=cpu,acts=cpu", directory)
        if isinstance(p, str):
            say(f"{length(tokens):>7} | {theirs:26} | {p}")
            continue
        step = p["step"]
        pairs = step["model_flops"] - 6 * p["model"]["matrix_parameters"] * tokens
        per = 1e12 * step["seconds"] * p["strategy"]["ranks"]
        say(f"{length(tokens):>7} | {theirs:26} | {step['model_flops'] / per:6.1f} {(step['model_flops'] + pairs) / per:6.1f} "
            f"{step['hardware_flops'] / (1e12 * step['seconds']):15.1f} | {step['seconds']:6.4g} | {parts(p)}")


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
    print(f"{time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
