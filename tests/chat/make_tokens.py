#!/usr/bin/env python3
"""make_tokens.py: tokens of conversations.jsonl by templates of templates/ and tokenizers of ../text/families/, as the tokenizers library
makes them of the whole text, to tokens.txt. Run it in this folder.

Needs: pip install jinja2 transformers tokenizers. A line is a tokenizer, a template, and for each conversation the hash of its ids and
of the mask that transformers' apply_chat_template gives ("-" where the template has no {% generation %}); "x": refused. Conversation 9
is left out: its user types special tokens, which are text for ltrain.
"""
import json
import re

from tokenizers import Tokenizer
from transformers.utils import chat_template_utils as utils

from make_expected import FixedDate, hash_of

PAIRS = [
    ("qwen2", "chatml_generation", {"eos_token": "<|im_end|>"}), ("qwen2", "qwen3", {"eos_token": "<|im_end|>"}),
    ("llama3", "llama3", {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}), ("llama2", "llama2", {"bos_token": "<s>", "eos_token": "</s>"}),
    ("mistral-v3", "mistral_v3", {"bos_token": "<s>", "eos_token": "</s>"}), ("gemma", "vicuna", {"bos_token": "<s>", "eos_token": "</s>"}),
    ("phi3", "phi3", {"eos_token": "</s>"}), ("tekken", "phi4", {}), ("unk", "smollm3", {}), ("t5", "phi3", {"eos_token": "</s>"}), ("nfkd", "phi3", {"eos_token": "</s>"}),
    ("gpt2-prefix", "chatml_generation", {}), ("llama-legacy", "smollm3", {}), ("xglm", "phi3", {"eos_token": "</s>"}),
]


def cell(tokenizer, template, row, tokens):
    marked = bool(re.search(r"\{\%-?\s*generation\s*-?\%\}", template))
    variables = {**tokens, **row.get("chat_template_kwargs", {})}
    texts, spans = utils.render_jinja_template(
        conversations=[utils._normalize_chat_messages(row["messages"])], tools=row.get("tools"), documents=variables.pop("documents", None),
        chat_template=template, return_assistant_tokens_mask=marked, add_generation_prompt=False, **variables)
    encoding = tokenizer.encode(texts[0], add_special_tokens=False)
    ids = hash_of(b"".join(i.to_bytes(4, "little") for i in encoding.ids))
    if not marked:
        return ids + ":-"
    mask = bytes(any(a < end and b > first for first, end in spans[0]) for a, b in encoding.offsets)
    return f"{ids}:{hash_of(mask)}"


def main():
    utils.datetime = FixedDate
    rows = [json.loads(line) for line in open("conversations.jsonl", encoding="utf-8")]
    with open("tokens.txt", "w") as out:
        for family, name, tokens in PAIRS:
            tokenizer = Tokenizer.from_file(f"../text/families/{family}.json")
            template = open(f"templates/{name}.jinja", encoding="utf-8", newline="").read()
            cells = []
            for i, row in enumerate(rows):
                try:
                    cells.append("-" if i == 9 else cell(tokenizer, template, row, tokens))
                except Exception:  # whatever Jinja says: the conversation is refused
                    cells.append("x")
            out.write(" ".join([family, name, json.dumps(tokens, separators=(",", ":"))] + cells) + "\n")


if __name__ == "__main__":
    main()
