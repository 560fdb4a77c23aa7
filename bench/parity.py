#!/usr/bin/env python3
"""Losses of the first steps beside transformers': a model's directory trained on a text and on a chat file, on the processor.

    bench/parity.py LTRAIN MODEL [--steps 5] [--only text|chats] [--work DIR]

Ids come from the tokenizers library, rendered chats and their masks from transformers' apply_chat_template (with a copy of the model's
template that has {% generation %} around what assistants say, which must render the same text), losses and AdamW from PyTorch in fp32.
Every step takes all sequences, so that their order does not matter. Needs torch, transformers and a ChatML template, as SmolLM2's
(--model: a Hugging Face directory). Exit status 1 where a loss differs by more than 1e-5."""
import argparse
import json
import os
import subprocess
import sys

TOLERANCE = 1e-5
LENGTH = 64
LR, DECAY, EPS, CLIP, BETAS = 2e-5, 0.1, 1e-8, 1.0, (0.9, 0.95)
TEXT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs", "models.md")
TEXT_BYTES = 900
CHATS = [
    [("user", "What is the capital of France?"), ("assistant", "Paris is the capital of France.")],
    [("system", "Answer in one word."), ("user", "Is water wet?"), ("assistant", "Yes."), ("user", "And fire?"), ("assistant", "Hot.")],
    [("user", "Write a haiku about rain: \u96e8, caf\u00e9, \U0001f327"),
     ("assistant", "Soft rain on the roof,\n\ta kettle begins to sing \u2014\nthe street is a stream.")],
    [("user", "Count to five."), ("assistant", "1, 2, 3, 4, 5."), ("user", "Backwards."), ("assistant", "5, 4, 3, 2, 1."),
     ("user", "Thank you."), ("assistant", "You are welcome! Is there anything else that you would like me to count?")],
]


def text_documents(tokenizer, path):
    """[(ids, mask)]: one document, everything is trained."""
    ids = tokenizer.encode(open(path, encoding="utf-8").read(), add_special_tokens=True).ids
    return [(ids, [1] * len(ids))]


def chat_documents(model, rows):
    """Masks by transformers, from the model's template with {% generation %} in it."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    own = tokenizer.chat_template
    said = "message['content'] + '<|im_end|>'"
    if said not in own:
        sys.exit("parity: the template is not SmolLM2's: a copy with {% generation %} cannot be made of it")
    marked = ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
              "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
              "{{ '<|im_start|>' + message['role'] + '\n' }}"
              "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
              "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}")
    out = []
    for messages in rows:
        if tokenizer.apply_chat_template(messages, tokenize=False) != tokenizer.apply_chat_template(
                messages, tokenize=False, chat_template=marked):
            sys.exit("parity: the copy of the template renders another text")
        r = tokenizer.apply_chat_template(messages, chat_template=marked, tokenize=True, return_dict=True,
                                          return_assistant_tokens_mask=True)
        out.append((list(r["input_ids"]), list(r["assistant_masks"])))
    return out


def cut(documents):
    """Segments of documents, as sequences of LENGTH tokens cut them: (ids, targets), a target of -100 is none."""
    sequences, segments, at = sum(len(i) for i, _ in documents) // LENGTH, [], 0
    for ids, mask in documents:
        targets = [ids[k + 1] if mask[k + 1] else -100 for k in range(len(ids) - 1)] + [-100]
        k = 0
        while k < len(ids) and at < sequences * LENGTH:
            n = min(len(ids) - k, LENGTH - at % LENGTH)
            segments.append((ids[k:k + n], targets[k:k + n]))
            k, at = k + n, at + n
    return sequences, segments


def theirs(model, segments, steps):
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    net = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="eager").train()
    matrices = [p for p in net.parameters() if p.ndim > 1]
    others = [p for p in net.parameters() if p.ndim <= 1]
    adam = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}], lr=LR,
                             betas=BETAS, eps=EPS)
    count = sum(t >= 0 for _, targets in segments for t in targets)
    losses = []
    for _ in range(steps):
        adam.zero_grad()
        total = 0.0
        for ids, targets in segments:
            logits = net(torch.tensor([ids]), use_cache=False).logits[0]
            loss = torch.nn.functional.cross_entropy(logits.float(), torch.tensor(targets), ignore_index=-100, reduction="sum")
            if any(t >= 0 for t in targets):
                (loss / count).backward()
                total += loss.item()
        torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP)
        adam.step()
        losses.append(total / count)
    return losses, count


def ours(ltrain, model, data, sequences, steps, out):
    subprocess.run(["rm", "-rf", out], check=True)
    subprocess.run([ltrain, "--model", model, "--data", data, "--seq-len", str(LENGTH), "--steps", str(steps), "--grad-accum", str(sequences),
                    "--lr", str(LR), "--weight-decay", str(DECAY), "--eps", str(EPS), "--clip", str(CLIP),
                    "--betas", ",".join(map(str, BETAS)), "--dtype", "fp32", "--device", "cpu", "--packing", "concat", "--out", out,
                    "--token-cache", out + "-tokens"], check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in open(out + "/metrics.jsonl")]
    return [r["loss"] for r in rows], rows[0]["target_tokens"]


def compare(name, a, b):
    (x, n), (y, m) = a, b
    worst = max(abs(p - q) for p, q in zip(x, y))
    print(f"{name}: {n} targets a step (transformers: {m})")
    for i, (p, q) in enumerate(zip(x, y)):
        print(f"  step {i + 1}  ltrain {p:.7f}  transformers {q:.7f}  apart {abs(p - q):.1e}")
    good = worst <= TOLERANCE and n == m
    print(f"  {'equal within' if good else 'NOT within'} {TOLERANCE:.0e}, worst {worst:.1e}", flush=True)
    return good


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("ltrain")
    p.add_argument("model")
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--work", default="parity-run")
    p.add_argument("--only", choices=["text", "chats"])
    a = p.parse_args()
    from tokenizers import Tokenizer

    os.makedirs(a.work, exist_ok=True)
    text, chats = os.path.join(a.work, "book.txt"), os.path.join(a.work, "chats.jsonl")
    with open(TEXT, encoding="utf-8") as source, open(text, "w", encoding="utf-8") as f:
        f.write(source.read()[:TEXT_BYTES])
    rows = [[{"role": r, "content": c} for r, c in chat] for chat in CHATS]
    with open(chats, "w", encoding="utf-8") as f:
        for messages in rows:
            f.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")
    good = True
    for name, data, make in (("text", text, lambda: text_documents(Tokenizer.from_file(a.model + "/tokenizer.json"), text)),
                             ("chats", chats, lambda: chat_documents(a.model, rows))):
        if a.only and name != a.only:
            continue
        documents = make()
        sequences, segments = cut(documents)
        print(f"{name}: {len(documents)} document(s), {sequences} sequences of {LENGTH} tokens in {len(segments)} segments", flush=True)
        own = ours(a.ltrain, a.model, data, sequences, a.steps, os.path.join(a.work, "run-" + name))
        good &= compare(name, own, theirs(a.model, segments, a.steps))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
