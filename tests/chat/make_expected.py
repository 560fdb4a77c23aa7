#!/usr/bin/env python3
"""make_expected.py: renders conversations.jsonl by every template of templates/ as transformers' apply_chat_template does, and writes
expected.txt (hashes) and whole.json (some renders whole). Run it in this folder.

Needs: pip install jinja2 transformers (a virtual environment; made with transformers 5.24, jinja2 3.1.6). A line of expected.txt is a
template's name, then for each conversation the hash of its render, of the render with a generation prompt, and of the assistant mask's
spans (bytes) where the template has {% generation %}, "-" where it has none; "x": refused.
"""
import datetime
import glob
import json
import re

from transformers.utils import chat_template_utils as utils

NOW = 1770091506  # 2026-02-03 04:05:06 UTC
WHOLE = {("qwen3", 13), ("llama3", 12), ("gpt_oss", 14), ("command_r", 12), ("all_constructs", 15), ("deepseek_v3", 14), ("gemma3", 2)}


class FixedDate(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)


def hash_of(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{(h >> 40) ^ (h & 0xFFFFFFFFFF):010x}"


def render(template, row, tokens, prompt):
    marked = bool(re.search(r"\{\%-?\s*generation\s*-?\%\}", template)) and not prompt
    variables = {**tokens, **row.get("chat_template_kwargs", {})}
    messages = utils._normalize_chat_messages(row["messages"])
    texts, spans = utils.render_jinja_template(
        conversations=[messages], tools=row.get("tools"), documents=variables.pop("documents", None), chat_template=template, return_assistant_tokens_mask=marked,
        add_generation_prompt=prompt, **variables)
    text = texts[0]
    mask = bytearray(len(text.encode()))
    for first, end in spans[0] if marked else []:
        a, b = len(text[:first].encode()), len(text[:end].encode())
        mask[a:b] = b"\1" * (b - a)
    return text, mask if marked else None


def main():
    utils.datetime = FixedDate
    rows = [json.loads(line) for line in open("conversations.jsonl", encoding="utf-8")]
    tokens = json.load(open("tokens.json"))
    whole = []
    with open("expected.txt", "w") as out:
        for path in sorted(glob.glob("templates/*.jinja")):
            name = path.split("/")[-1].removesuffix(".jinja")
            template = open(path, encoding="utf-8", newline="").read()
            cells = []
            for i, row in enumerate(rows):
                cell = []
                for prompt in (False, True):
                    try:
                        text, mask = render(template, row, tokens.get(name, tokens["default"]), prompt)
                        cell.append(hash_of(text.encode()))
                        if not prompt:
                            masked = hash_of(bytes(mask)) if mask is not None else "-"
                            if (name, i) in WHOLE:
                                whole.append({"template": name, "conversation": i, "text": text})
                    except Exception:  # whatever Jinja says: the conversation is refused
                        cell.append("x")
                        masked = masked if prompt else "x"
                cells.append(":".join(cell + [masked]))
            out.write(name + " " + " ".join(cells) + "\n")
    json.dump(whole, open("whole.json", "w"), ensure_ascii=False, indent=1)


if __name__ == "__main__":
    main()
