#!/bin/sh
# transformers 5.24.0, tokenizers 0.23.3: the ids in added_tokens_decoder (tokenizer_config.json) and in added_tokens.json are no ids. A token that
# tokenizer.json has not gets the next id behind the vocabulary, in the order of the ids that the file gives, and nothing is said: of a model whose embedding
# was padded before the token was added (id 8 of the file, 3 of AutoTokenizer) the wrong row is read. What is seen: "<a> 3, <b> 4" twice. Fails where that changes.
# What follows for ltrain: it has AutoTokenizer's ids, and remarks where a file says another (src/text/load_config.c).
set -eu
w=$(mktemp -d)
trap 'rm -rf "$w"' EXIT
python3 -m venv "$w/venv"
"$w/venv/bin/pip" install --quiet transformers==5.24.0 tokenizers==0.23.3
cd "$w"
TRANSFORMERS_VERBOSITY=error "$w/venv/bin/python" - <<'E'
import json, os
from transformers import AutoTokenizer

def token(text):
    return {"content": text, "lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}

def seen(name, config, added):
    os.makedirs(name)
    model = {"type": "BPE", "vocab": {"x": 0, "y": 1, "z": 2}, "merges": []}
    for file, value in (("tokenizer.json", {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": model}),
                        ("tokenizer_config.json", dict(config, tokenizer_class="PreTrainedTokenizerFast")), ("added_tokens.json", added)):
        if value:
            json.dump(value, open(os.path.join(name, file), "w"))
    t = AutoTokenizer.from_pretrained(name)
    text = ", ".join("%s %d" % (w, t.convert_tokens_to_ids(w)) for w in ("<a>", "<b>"))
    print(name + ":", text)
    return text

found = {seen("decoder", {"added_tokens_decoder": {"9": token("<b>"), "8": token("<a>")}}, None), seen("added", {}, {"<b>": 9, "<a>": 8})}
assert found == {"<a> 3, <b> 4"}, found
E
