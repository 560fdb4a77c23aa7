"""Step times as planned against step times as measured: ltrain plan --profile, then training runs of two families, several lengths and
placements in turn. Each round measures the machine anew, since the speed of a virtual one drifts by a factor of up to two within ten seconds; what is
compared are the medians of the rounds, and what is measured while the host gives the processors to others is measured again, and left out if that never ends. `bench_predicted.py BUILD [ROUNDS]`: a minute a round, three by default."""
import json, os, random, statistics, struct, subprocess, sys, tempfile

import bench

STEPS = 4  # steps of a run; the first has no update and is left out
COMMON = ["--steps", str(STEPS), "--tiles", "rows=256", "--lr", "1e-4"]
CPU = ["--offload", "cpu", "--prefetch", "4"]
NVME = ["--offload", "nvme", "--prefetch", "4"]
SETTINGS = [(f"{family} {S} {name}", family, S, flags)
            for S, placements in {
                512: [("none", ["--offload", "none"])],
                1024: [("none", ["--offload", "none"]), ("nvme", NVME), ("discrete 1 GB/s", [*CPU, "--device", "cpu:discrete", "--link-gbps", "1"])],
                2048: [("none", ["--offload", "none"]), ("cpu", CPU), ("discrete 0.2 GB/s", [*CPU, "--device", "cpu:discrete", "--link-gbps", "0.2"])],
            }.items() for name, flags in placements for family in ("llama", "gpt2")]


def shapes(family, d, layers, ffn, vocab, positions, kv):
    if family == "llama":
        yield "model.embed_tokens.weight", [vocab, d]
        yield "model.norm.weight", [d]
        for i in range(layers):
            for name, shape in {"input_layernorm": [d], "post_attention_layernorm": [d], "self_attn.q_proj": [d, d], "self_attn.k_proj": [kv, d],
                                "self_attn.v_proj": [kv, d], "self_attn.o_proj": [d, d], "mlp.gate_proj": [ffn, d], "mlp.up_proj": [ffn, d],
                                "mlp.down_proj": [d, ffn]}.items():
                yield f"model.layers.{i}.{name}.weight", shape
    else:
        yield "transformer.wte.weight", [vocab, d]
        yield "transformer.wpe.weight", [positions, d]
        for i in range(layers):
            for name, shape in {"ln_1": [d], "attn.c_attn": [d, 3 * d], "attn.c_proj": [d, d], "ln_2": [d], "mlp.c_fc": [d, ffn], "mlp.c_proj": [ffn, d]}.items():
                yield f"transformer.h.{i}.{name}.weight", shape
                yield f"transformer.h.{i}.{name}.bias", shape[-1:]
        yield "transformer.ln_f.weight", [d]
        yield "transformer.ln_f.bias", [d]


def write_model(path, family, d=256, layers=4, vocab=2048):
    """A small model with random weights as a Hugging Face directory; heads of 64, llama with half as many of keys and values."""
    ffn, positions, kv = d * 11 // 4 if family == "llama" else 4 * d, 4096, d // 2
    os.makedirs(path)
    with open(f"{path}/config.json", "w") as f:
        json.dump({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": d, "intermediate_size": ffn, "num_hidden_layers": layers,
                   "num_attention_heads": d // 64, "num_key_value_heads": d // 128, "head_dim": 64, "vocab_size": vocab, "max_position_embeddings": positions,
                   "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True} if family == "llama" else
                  {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": d, "n_inner": ffn, "n_layer": layers, "n_head": d // 64,
                   "vocab_size": vocab, "n_positions": positions, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "tie_word_embeddings": True}, f)
    r = random.Random(1)
    noise = struct.pack("<65537f", *(r.gauss(0, 0.02) for _ in range(65537)))
    header, blobs, at = {}, [], 0
    for name, shape in shapes(family, d, layers, ffn, vocab, positions, kv):
        n = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        blobs.append(struct.pack("<f", 1.0) * (n // 4) if len(shape) == 1 and name.endswith("weight") else (noise * (n // len(noise) + 2))[(skip := 4 * r.randrange(65537)):][:n])
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    with open(f"{path}/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def run(ltrain, work, family, S, flags):
    """Seconds planned and seconds of each step but the first."""
    out = tempfile.mkdtemp(dir=work)
    made = subprocess.run([ltrain, "--model", f"{work}/{family}", "--data", f"{work}/text", "--seq-len", str(S), "--out", out, *COMMON, *flags],
                          capture_output=True, text=True)
    if made.returncode:
        sys.exit(f"{made.args}: {made.stderr}")
    planned = json.load(open(f"{out}/plan.json"))["step"]["seconds"]
    return planned, [json.loads(line)["seconds"] for line in open(f"{out}/metrics.jsonl")][1:]


def main():
    build, rounds = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3
    ltrain, planned, measured, stolen, profiles = f"{build}/src/cli/ltrain", {}, {}, {}, []
    with tempfile.TemporaryDirectory(dir=build) as work:
        os.environ["XDG_CACHE_HOME"] = f"{work}/cache"
        for family in ("llama", "gpt2"):
            write_model(f"{work}/{family}", family)
        with open(f"{work}/text", "w") as f:
            r = random.Random(2)
            f.write("".join(r.choice("etaoin shrdlu\n") for _ in range(200000)))
        for turn in range(rounds):
            made, profile = bench.calm(lambda: subprocess.run([ltrain, "plan", "--model", "tiny", "--seq-len", "512", "--out", f"{work}/out", "--profile"], capture_output=True, text=True), 5)
            profiles.append(profile)
            bench.say("".join(line + "\n" for line in made.stdout.splitlines() if line.startswith("profile: ")) + made.stderr + f"the host took {profile:.1%}")
            for name, family, S, flags in SETTINGS[:: -1 if turn % 2 else 1]:
                (plan, seconds), taken = bench.calm(lambda: run(ltrain, work, family, S, flags))
                planned.setdefault(name, []).append(plan)
                measured.setdefault(name, []).append(statistics.median(seconds))
                stolen.setdefault(name, []).append(taken)
                bench.say(f"{name:28} planned {plan:.4f} s, steps {' '.join(f'{x:.4f}' for x in seconds)}, the host took {taken:.1%}")
    calm = lambda seen, taken: statistics.median(x for x, share in zip(seen, taken) if share <= max(bench.CALM, min(taken)))
    plan, step = {k: calm(planned[k], profiles) for k in planned}, {k: calm(measured[k], stolen[k]) for k in measured}
    error = {k: plan[k] / step[k] - 1 for k in plan}
    for name in error:
        bench.report(name, step[name], {"planned": plan[name]}, "s", better="lower", error=error[name],
                     planned_in_rounds=planned[name], measured_in_rounds=measured[name], stolen_in_rounds=stolen[name], stolen_from_profiles=profiles)
    worst = max(map(abs, error.values()))
    wrong = sum(step[a] > 1.1 * step[b] and plan[a] <= plan[b] for a in step for b in step)
    bench.report("all settings: median error", statistics.median(map(abs, error.values())), {}, "", better="lower", worst=worst,
                 within_10_percent=sum(abs(e) <= 0.1 for e in error.values()), settings=len(error), pairs_ranked_wrongly=wrong)


if __name__ == "__main__":
    if "--help" in sys.argv:
        print(__doc__)
        sys.exit()
    main()
