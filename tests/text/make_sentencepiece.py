#!/usr/bin/env python3
"""Writes tests/text/sentencepiece/*, nmt_nfkc.part and sentencepiece.txt: small models that sentencepiece trains, alone and in the
layouts of published models, and checksums of three things for each of the 500 strings of strings.jsonl: `plain`, the ids of
sentencepiece itself (`long`: of all strings one behind the other, and more); `ids`, those with the added tokens, bos and eos of the files beside it; `text`, what transformers decodes the
latter to (without special tokens where their number is even).

`ids` are sentencepiece's for each text between added tokens, with the space in front where `legacy` puts one. They are compared
with those of transformers' AutoTokenizer here, and where these differ the strings are counted.

    pip install sentencepiece==0.2.3 transformers==5.24.0 tokenizers==0.23.3 protobuf
    tests/text/make_sentencepiece.py [LTRAIN]    # with a built ltrain: compares it with all normalization rules, and writes nothing
"""
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

import sentencepiece
import sentencepiece.sentencepiece_model_pb2 as pb
import transformers
from make_families import HERE, SAMPLE, checksum, strings

OUT = os.path.join(HERE, "sentencepiece")
transformers.logging.set_verbosity_error()
NORMAL, UNKNOWN, CONTROL, DEFINED, UNUSED, BYTE = range(1, 7)
RULES = {"ﬁ": "fi", "\u00a0": " ", "\u3000": " ", "\n": " ", "A": "a", "B": "b", "H": "h", "T": "t", "\u200b": "", "e\u0301": "é", "...": "…",
         "\t": "    ", "Ａ": "a", "ß": "ss", "中": " 中 ", "ab": "ba", "abc": "x"}


def train(model_type, size, **kw):
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/text", "w") as f:
            f.write(kw.pop("text", SAMPLE))
        with open(d + "/rules.tsv", "w") as f:
            for a, b in RULES.items():
                f.write(" ".join("%X" % ord(c) for c in a) + "\t" + " ".join("%X" % ord(c) for c in b) + "\n")
        if kw.pop("own_rules", False):
            kw["normalization_rule_tsv"] = d + "/rules.tsv"
        sentencepiece.SentencePieceTrainer.train(input=d + "/text", model_prefix=d + "/m", model_type=model_type, vocab_size=size,
                                                 hard_vocab_limit=False, num_threads=1, minloglevel=2, **kw)
        m = pb.ModelProto()
        m.ParseFromString(open(d + "/m.model", "rb").read())
    for field in ("input", "model_prefix", "normalization_rule_tsv"):
        m.trainer_spec.ClearField(field) if field != "normalization_rule_tsv" else m.normalizer_spec.ClearField(field)
    return m


def change(m, of_piece):
    for i, p in enumerate(m.pieces):
        of_piece(i, p)
    return m


def unused(m):
    """Every fifth piece is unused, characters among them."""
    return change(m, lambda i, p: setattr(p, "type", UNUSED) if p.type == NORMAL and i % 5 == 0 else None)


def no_characters(m):
    """Some characters are parts of pieces and no pieces."""
    return change(m, lambda i, p: setattr(p, "piece", "<gone%d>" % i) if p.piece in "eoa中é" else None)


def tied(m):
    """Scores that are equal, or in no order."""
    r = random.Random(3)
    return change(m, lambda i, p: setattr(p, "score", -float(r.randint(1, 12))) if p.type == NORMAL else None)


def near_ties():
    """ab c and a bc differ by 0.003: of which sums' rounding decides where these are large."""
    m = train("unigram", 400, normalization_rule_name="identity")
    del m.pieces[3:]
    for piece, score in {"▁": -2, "x": -14.77831745147705, "ab": -10.260137557983398, "c": -6.920199394226074, "a": -9.624752044677734,
                         "bc": -7.558621406555176}.items():
        m.pieces.add(piece=piece, score=score)
    return m


LLAMA = dict(normalization_rule_name="identity", remove_extra_whitespaces=False, byte_fallback=True, split_digits=True, allow_whitespace_only_pieces=True)
SYMBOLS = ["<think>", "</s> b", "ab", "abcde", "word", "ﬁ", "\n\n", "Ａ"]


def models():
    """Names with nfkc have no map: that of nmt_nfkc.part is theirs."""
    identity = dict(normalization_rule_name="identity")
    yield "bpe-identity", train("bpe", 400, **identity)
    yield "bpe-nfkc", train("bpe", 400)
    yield "bpe-defined-nfkc", train("bpe", 700, user_defined_symbols=SYMBOLS, byte_fallback=True)
    yield "bpe-bytes", train("bpe", 640, **LLAMA)
    yield "bpe-defined", train("bpe", 660, user_defined_symbols=SYMBOLS, **LLAMA)
    yield "bpe-rules", train("bpe", 400, own_rules=True)
    yield "bpe-suffix", train("bpe", 400, treat_whitespace_as_suffix=True, **identity)
    yield "bpe-unescaped", no_escape(train("bpe", 400, **identity))
    yield "bpe-unused", unused(train("bpe", 660, user_defined_symbols=SYMBOLS, **LLAMA))
    yield "bpe-characters", no_characters(train("bpe", 400, **identity))
    yield "bpe-characters-bytes", no_characters(train("bpe", 640, **LLAMA))
    yield "bpe-tied", tied(train("bpe", 640, **LLAMA))
    yield "unigram-identity", train("unigram", 400, **identity)
    yield "unigram-nfkc", train("unigram", 400)
    yield "unigram-defined-nfkc", train("unigram", 700, user_defined_symbols=SYMBOLS, byte_fallback=True)
    yield "unigram-bytes", train("unigram", 640, **LLAMA)
    yield "unigram-rules", train("unigram", 400, own_rules=True)
    yield "unigram-near-ties", near_ties()
    yield "unigram-unused", unused(train("unigram", 660, user_defined_symbols=SYMBOLS, **LLAMA))


def no_escape(m):
    m.normalizer_spec.escape_whitespaces = False
    return change(m, lambda i, p: setattr(p, "piece", p.piece.replace("▁", " ")))


def token(content, special=True, **kw):
    return dict(content=content, special=special, **{k: kw.get(k, False) for k in ("lstrip", "rstrip", "single_word", "normalized")})


def layouts():
    """Name, model, config.json's model_type, and the files beside it."""
    llama = train("bpe", 640, **LLAMA)
    named = dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    specials = {"0": token("<unk>"), "1": token("<s>"), "2": token("</s>")}
    n = len(llama.pieces)
    for legacy in (True, False):
        yield "llama-legacy" if legacy else "llama", llama, "mistral", {"tokenizer_config.json": dict(
            tokenizer_class="LlamaTokenizer", legacy=legacy, add_bos_token=True, add_eos_token=False, added_tokens_decoder=specials, **named)}
    yield "phi3", llama, "phi3", {"tokenizer_config.json": dict(
        tokenizer_class="LlamaTokenizer", legacy=False, add_bos_token=False, add_eos_token=False, bos_token="<s>", eos_token="<|endoftext|>",
        unk_token="<unk>", pad_token="<|endoftext|>", added_tokens_decoder={
            **specials, "2": token("</s>", False, rstrip=True), **{str(n + i): token(x, rstrip=x != "<|endoftext|>") for i, x in enumerate(
                ["<|endoftext|>", "<|user|>", "<|end|>", "<|eot_id|>", "<mask>", "<sep>"])}})}
    yield "chatml", llama, "mistral", {
        "tokenizer_config.json": dict(tokenizer_class="LlamaTokenizer", add_bos_token=True, add_eos_token=True, bos_token="<s>", eos_token="</s>"),
        "special_tokens_map.json": dict(bos_token=token("<s>"), eos_token="<|im_end|>", unk_token="<unk>", pad_token="[PAD]",
                                        additional_special_tokens=["<|im_start|>", "<|im_end|>"]),
        "added_tokens.json": {"<|im_start|>": n, "<|im_end|>": n + 1, "<think>": n + 2, "word": n + 3}}
    small = train("bpe", 200, text=SAMPLE.encode("ascii", "ignore").decode(), normalization_rule_name="identity", remove_extra_whitespaces=False)
    turns = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    yield "small", small, "mistral", {"tokenizer_config.json": dict(
        tokenizer_class="LlamaTokenizer", legacy=True, add_bos_token=True, chat_template=turns, added_tokens_decoder={
            **specials, **{str(len(small.pieces) + i): token(x) for i, x in enumerate(["<|im_start|>", "<|im_end|>"])}}, **named)}
    gemma = train("bpe", 640, add_dummy_prefix=False, pad_id=0, eos_id=1, bos_id=2, unk_id=3, eos_piece="<eos>", bos_piece="<bos>",
                  user_defined_symbols=["<mask>", "<start_of_turn>", "<think>", "\n\n", "\n\n\n", "▁▁", "▁▁▁"], **LLAMA)
    yield "gemma", gemma, "phi3", {"tokenizer_config.json": dict(
        tokenizer_class="GemmaTokenizer", add_bos_token=True, add_eos_token=False, bos_token="<bos>", eos_token="<eos>", unk_token="<unk>",
        pad_token="<pad>", added_tokens_decoder={"0": token("<pad>"), "1": token("<eos>"), "2": token("<bos>"), "3": token("<unk>"),
                                                 "5": token("<start_of_turn>"), "6": token("<think>", False)})}


class Reference:
    """sentencepiece for the texts between added tokens."""

    def __init__(self, m, files):
        config = files.get("tokenizer_config.json", {})
        self.m = m
        self.sp = sentencepiece.SentencePieceProcessor(model_proto=m.SerializeToString())
        bare = pb.ModelProto()
        bare.CopyFrom(m)
        bare.normalizer_spec.add_dummy_prefix = False
        self.bare = sentencepiece.SentencePieceProcessor(model_proto=bare.SerializeToString())
        self.legacy = config.get("legacy", True)
        self.added = {}
        for i, p in enumerate(m.pieces):
            if p.type in (CONTROL, UNKNOWN):
                self.added[p.piece] = (i, token(p.piece))
        for i, t in config.get("added_tokens_decoder", {}).items():
            self.added[t["content"]] = (int(i), t)
        for x, i in files.get("added_tokens.json", {}).items():
            self.added[x] = (i, token(x, False))
        names = {**config, **files.get("special_tokens_map.json", {})}
        for x in (names.get(k + "_token") for k in ("bos", "eos", "unk", "pad")):
            x = x["content"] if isinstance(x, dict) else x
            if x and x not in self.added:
                self.added[x] = (1 + max(len(m.pieces) - 1, *(i for i, _ in self.added.values())), token(x))
        text = lambda x: x["content"] if isinstance(x, dict) else x
        self.before = [self.added[text(names.get("bos_token", m.trainer_spec.bos_piece))][0]] if config.get("add_bos_token", True) else []
        self.behind = [self.added[text(names["eos_token"])][0]] if config.get("add_eos_token", False) else []
        self.pattern = re.compile("|".join(re.escape(x) for x in sorted(self.added, key=len, reverse=True)))

    def ids(self, s):
        out, at = list(self.before), 0
        for match in self.pattern.finditer(s):
            i, t = self.added[match[0]]
            if at <= match.start():
                out += self.text(s[at:match.start()], at == 0) + [i]
            else:
                out.append(i)
            at = match.end()
            while t["rstrip"] and at < len(s) and (s[at].isspace() and s[at] not in "\x1c\x1d\x1e\x1f"):
                at += 1
        return out + self.text(s[at:], at == 0) + self.behind

    def text(self, s, first):
        return (self.sp if self.legacy or first else self.bare).encode(s)


def compare(name, m, ref, auto, hostile):
    """With transformers, which puts no space before a document that begins with one, unless it is legacy."""
    known = lambda s: not ref.legacy and m.normalizer_spec.add_dummy_prefix and s[:1] in (" ", "▁")
    other = [s for s in hostile if auto.encode(s) != ref.ids(s)]
    wrong = [s for s in other if not known(s)]
    print(f"{name}: {type(auto).__name__}, legacy {ref.legacy}: {len(hostile) - len(other)} of {len(hostile)} as transformers has them")
    if wrong:
        sys.exit(f"{name}: {wrong[0]!r}: {auto.encode(wrong[0])} and {ref.ids(wrong[0])}")
    llama = None
    if name.startswith("llama"):
        with tempfile.TemporaryDirectory() as d:
            write(d, m, {**LAYOUT_FILES[name]}, "llama")
            llama = transformers.AutoTokenizer.from_pretrained(d)
        other = [s for s in hostile if llama.encode(s) != ref.ids(s)]
        wrong = [s for s in other if not any(x[:1] in (" ", "▁") for x in ref.pattern.split(s))]
        print(f"{name}: {type(llama).__name__}: {len(hostile) - len(other)} as there, the others begin with a space, or do so behind a special token")
        if wrong:
            sys.exit(f"{name}: {wrong[0]!r}: {llama.encode(wrong[0])} and {ref.ids(wrong[0])}")


def write(d, m, files, model_type=None):
    os.makedirs(d, exist_ok=True)
    with open(os.path.join(d, "tokenizer.model"), "wb") as f:
        f.write(m.SerializeToString())
    for name, content in files.items():
        with open(os.path.join(d, name), "w") as f:
            json.dump(content, f)
    if model_type:
        with open(os.path.join(d, "config.json"), "w") as f:
            json.dump({"model_type": model_type}, f)


def auto_tokenizer(m, files, model_type):
    with tempfile.TemporaryDirectory() as d:
        write(d, m, files, model_type)
        return transformers.AutoTokenizer.from_pretrained(d)


LAYOUT_FILES = {}


def rows(m, files, ref, auto, hostile):
    with_specials = [ref.ids(s) for s in hostile]
    yield "plain", [",".join(map(str, ref.sp.encode(s))) for s in hostile]
    yield "ids", [",".join(map(str, ids)) for ids in with_specials]
    yield "long", [",".join(map(str, ref.sp.encode("".join(hostile) * 2 + ("x" * 37 + "abc") * 1500)))]
    yield "text", [auto.decode(ids, skip_special_tokens=len(ids) % 2 == 0) for ids in with_specials]


def check(ltrain):
    """All normalization rules, and larger vocabularies."""
    lines = "".join(json.dumps(s) + "\n" for s in strings())
    for kind in ("bpe", "unigram"):
        for rule in ("nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf", "identity"):
            m = train(kind, 1200, normalization_rule_name=rule, byte_fallback=rule != "nfkc")
            sp = sentencepiece.SentencePieceProcessor(model_proto=m.SerializeToString())
            with tempfile.TemporaryDirectory() as d:
                write(d, m, {})
                got = subprocess.run([ltrain, "tokenize", "--model", d], input=lines, text=True, capture_output=True, check=True).stdout
            got = [json.loads(x) for x in got.splitlines()]
            ref = Reference(m, {})
            bad = sum(ids != ref.ids(s)[1:] for ids, s in zip(got, strings()))
            print(f"{kind} {rule}: {len(got) - bad} of {len(got)} equal")


def main():
    if len(sys.argv) > 1:
        return check(sys.argv[1])
    shutil.rmtree(OUT, ignore_errors=True)
    hostile = strings()
    everything = [(name, m, None, {}) for name, m in models()] + list(layouts())
    with open(os.path.join(HERE, "sentencepiece.txt"), "w") as f:
        for name, m, model_type, files in everything:
            LAYOUT_FILES[name] = files
            ref, auto = Reference(m, files), auto_tokenizer(m, files, model_type)
            if model_type:
                compare(name, m, ref, auto, hostile)
            for kind, values in rows(m, files, ref, auto, hostile):
                f.write(f"{name} {kind} {''.join(checksum(v.encode()) for v in values)}\n")
            if "nfkc" in name:
                part = pb.ModelProto()
                part.normalizer_spec.precompiled_charsmap = m.normalizer_spec.precompiled_charsmap
                m.normalizer_spec.ClearField("precompiled_charsmap")
                with open(os.path.join(HERE, "nmt_nfkc.part"), "wb") as p:
                    p.write(part.SerializePartialToString())
            write(os.path.join(OUT, name), m, files)


if __name__ == "__main__":
    main()
