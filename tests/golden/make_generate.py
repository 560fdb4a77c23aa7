#!/usr/bin/env python3
"""Reference texts and reference processors of sampling, by transformers and peft (make_golden.py says what is needed).

    /tmp/venv-golden/bin/python tests/golden/make_generate.py [CASE ...]

generate.json: of each case's model a prompt and the 32 tokens that generate() gives greedily in fp32; prompts are drawn anew until
the best token leads by 0.001 everywhere, which is far more than sums in another order differ by, and the text
has four tokens that differ, if one of the first eight does. Where CASE is given, the others stay as they are. Of qlora-gqa and latent/qlora bitsandbytes has
the base in NF4; of int8-gqa the numbers are those of its int8, as a plain base, for its own products round activations, too.
sampling.json: logits and tokens so far, settings, and what transformers' processors leave: the ids that may be drawn, and their
probabilities.
"""
import json
import os
import sys

os.environ["TORCHDYNAMO_DISABLE"] = "1"

import make_golden
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, LogitsProcessorList
from transformers.generation import logits_process as P

HERE = os.path.dirname(os.path.abspath(__file__))
NEW, LEAD = 32, 1e-3


def open_base(name):
    folder = os.path.join(HERE, name)
    if name == "qwen3-layers":  # transformers cannot load it by itself
        model = make_golden.qwen3_layers(make_golden.CASES[name][0])
        model.load_state_dict(load_file(os.path.join(folder, "model.safetensors")), strict=False)
        model.tie_weights()
        return model
    config = AutoConfig.from_pretrained(folder)
    if name in ("qlora-gqa", "latent/qlora"):
        import make_qlora
        return make_qlora.quantised(folder)
    if name == "int8-gqa":
        import make_int8
        eight = make_int8.quantised(os.path.join(HERE, make_int8.BASE))
        plain = AutoModelForCausalLM.from_pretrained(os.path.join(HERE, make_int8.BASE), dtype=torch.float32, attn_implementation="sdpa")
        with torch.no_grad():
            for at, m in eight.named_modules():
                if isinstance(m, make_int8.bnb.nn.Linear8bitLt):
                    plain.get_submodule(at).weight.copy_(make_int8.F.int8_vectorwise_dequant(m.weight.data, m.weight.SCB.clone()))
        return plain
    if config.model_type == "gpt_oss" and config.num_local_experts == 0:  # MLPs in place of experts: transformers cannot load it by itself
        model = make_golden.dense_gpt_oss(config)
        missing, unexpected = model.load_state_dict(load_file(os.path.join(folder, "model.safetensors")), strict=False)
        assert not unexpected and set(missing) <= {"lm_head.weight"}  # of a tied head
        model.tie_weights()
        return model
    kind = AutoModelForImageTextToText if hasattr(config, "text_config") else AutoModelForCausalLM
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation=make_golden.attention_of(config))
    if model.config.model_type == "gemma4":
        model.config.text_config.pad_token_id = 0  # for tokens of images, which are none
    return model


def open_model(name):
    model, adapter = open_base(name), os.path.join(HERE, name, "adapter")
    return (PeftModel.from_pretrained(model, adapter) if os.path.isdir(adapter) else model).eval()


def generate(name):
    model = open_model(name)
    vocab = model.config.get_text_config().vocab_size
    found = None
    for seed in range(40):
        g = torch.Generator().manual_seed(seed)
        n = [45, 23, 29, 9][seed % 4]
        prompt = torch.randint(0, vocab, (1, n), generator=g)
        out = model.generate(input_ids=prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=NEW, eos_token_id=None, pad_token_id=0,
                             return_dict_in_generate=True, output_logits=True)
        top = torch.stack(out.logits).float()[:, 0].topk(2).values
        if (top[:, 0] - top[:, 1]).min() < LEAD:
            continue
        if found is None or len(set(out.sequences[0, n:].tolist())) > len(set(found["tokens"])):
            found = dict(prompt=prompt[0].tolist(), tokens=out.sequences[0, n:].tolist())
        if len(set(found["tokens"])) >= 4 or seed >= 8:
            return found
    raise SystemExit(f"{name}: no prompt whose best tokens lead")


def processed(settings, logits, tokens):
    """In the order of GenerationMixin._get_logits_processor."""
    steps = LogitsProcessorList()
    if settings.get("repetition_penalty", 1.0) != 1.0:
        steps.append(P.RepetitionPenaltyLogitsProcessor(settings["repetition_penalty"]))
    if settings.get("temperature", 1.0) != 1.0:
        steps.append(P.TemperatureLogitsWarper(settings["temperature"]))
    if settings.get("top_k", 0):
        steps.append(P.TopKLogitsWarper(settings["top_k"]))
    if settings.get("top_p", 1.0) < 1.0:
        steps.append(P.TopPLogitsWarper(settings["top_p"]))
    if settings.get("min_p"):
        steps.append(P.MinPLogitsWarper(settings["min_p"]))
    p = torch.softmax(steps(torch.tensor([tokens]), torch.tensor([logits])), dim=-1)[0]
    ids = [i for i in range(len(logits)) if p[i] > 0]
    return ids, [p[i].item() for i in ids]


def sampling():
    g = torch.Generator().manual_seed(7)
    cases = []
    for i, settings in enumerate([dict(), dict(temperature=0.7), dict(temperature=1.6, top_k=7), dict(top_p=0.8), dict(min_p=0.1),
                                  dict(repetition_penalty=1.3), dict(repetition_penalty=0.8, top_k=5),
                                  dict(temperature=0.6, top_k=20, top_p=0.95), dict(temperature=1.3, top_k=25, top_p=0.9, min_p=0.05),
                                  dict(repetition_penalty=1.1, temperature=0.9, top_k=12, top_p=0.7, min_p=0.02), dict(top_k=1),
                                  dict(top_p=0.01), dict(top_k=100)]):
        logits = (torch.randn(40, generator=g) * 3).tolist()
        tokens = torch.randint(0, 40, (12,), generator=g).tolist()
        logits = [float(torch.tensor(x, dtype=torch.float32)) for x in logits]
        ids, p = processed(settings, logits, tokens)
        cases.append(dict(settings=settings, logits=logits, tokens=tokens, ids=ids, p=p))
    return cases


if __name__ == "__main__":
    torch.set_num_threads(1)
    with open(os.path.join(HERE, "sampling.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in sampling()) + "\n]\n")
    names, path, texts = sys.argv[1:], os.path.join(HERE, "generate.json"), {}
    if names:
        with open(path) as f:
            texts = json.load(f)
    hybrids = [f"hybrid/{name}" for name in ("bamba", "falcon-h1", "granite", "granite-moe", "kimi-linear", "lfm2", "lfm2-moe", "nemotron-h", "nemotron-moe", "olmo-hybrid", "qwen3_5", "qwen3_5_moe", "qwen3_next")]
    hybrids += [f"latent/{name}" for name in ("youtu", "minicpm3", "deepseek-v3")]
    for name in names or sorted(d for d in os.listdir(HERE) + hybrids if os.path.exists(os.path.join(HERE, d, "config.json"))):
        texts[name] = generate(name)
        print(name, texts[name], flush=True)
    with open(path, "w") as f:
        f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(texts.items())) + "\n}\n")
