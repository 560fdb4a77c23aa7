#!/usr/bin/env python3
"""Writes tests/text/families/*.json, strings.jsonl and golden.txt: small tokenizers in the style of published families, 500 hostile
strings, and what the `tokenizers` library makes of them (checksums of the ids of each string, with the template, and of what these
are decoded to, without special tokens where the number of ids is even).

    pip install tokenizers==0.23.3 sentencepiece
    tests/text/make_families.py
"""
import json
import os
import random
import tempfile
import unicodedata
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "families")

# ---- text to learn from ----

SAMPLE = """
In the beginning God created the heaven and the earth. And the earth was without form, and void; and darkness was upon the face of
the deep. And the Spirit of God moved upon the face of the waters. And God said, Let there be light: and there was light. I'm you're
we've they'll he'd it's don't CAN'T We'RE I'VE. The year 1984, the number 1234567 and 3.14159; 12:30, $100, 50%. Hello, world!!! (See?)
def f(x):\n    return x + 1\n\nfor i in range(10):\n        print("{}".format(i))\r\nHelloWorld camelCase HTTPServer ABCdef
Der Fluß ist groß; über Öl, naïve café, señor. Le garçon a mangé l'été. Привет, как дела? Ещё один день. Γειά σου Κόσμε.
你好，世界！今天天气很好。我们去公园吧。こんにちは世界。カタカナとひらがな。안녕하세요 세계. สวัสดีชาวโลก नमस्ते दुनिया। שלום עולם مرحبا بالعالم
""" * 3
LINES = SAMPLE.split("\n")

C = r"'s|'t|'re|'ve|'m|'ll|'d"
T = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
X = r"[^\r\n\p{L}\p{N}]?"
U = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
W = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
G4 = rf"(?i:{C})|{X}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*" + T
Q2 = G4.replace(r"\p{N}{1,3}", r"\p{N}")
Q3 = rf"(?i:{C})|{X}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*" + T
TK = rf"{X}{U}*{W}+|{X}{U}+{W}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*" + T
O2 = rf"{X}{U}*{W}+(?i:{C})?|{X}{U}+{W}*(?i:{C})?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*" + T
D3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*" + T)
CL = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
KIMI_U, KIMI_W = U[:-1] + r"&&[^\p{Han}]]", W[:-1] + r"&&[^\p{Han}]]"
KIMI = (r"[\p{Han}]+" + rf"|{X}{KIMI_U}*{KIMI_W}+(?i:{C})?|{X}{KIMI_U}+{KIMI_W}*(?i:{C})?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*" + T)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(use_regex=False, prefix=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)


def bpe(pre, size=420, normalizer=None, decoder=None, specials=("<|endoftext|>",), change=None, template=None, learn=None, **model):
    t = Tokenizer(models.BPE(**model))
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = learn or pre
    byte = model.get("byte_fallback")
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=list(specials),
                                  initial_alphabet=[] if byte else pre_tokenizers.ByteLevel.alphabet(), limit_alphabet=200 if byte else 1000)
    t.train_from_iterator(LINES, trainer)
    if pre is None:
        j = json.loads(t.to_str())
        j["pre_tokenizer"] = None
        t = Tokenizer.from_str(json.dumps(j))
    else:
        t.pre_tokenizer = pre
    t.decoder = decoder or decoders.ByteLevel()
    if template:
        t.post_processor = template(t)
    if change:
        j = json.loads(t.to_str())
        change(j)
        t = Tokenizer.from_str(json.dumps(j))
    return t


def begin(*tokens, end=()):
    return lambda t: processors.TemplateProcessing(single=" ".join([*tokens, "$A", *end]),
                                                   special_tokens=[(x, t.token_to_id(x)) for x in {*tokens, *end}])


def add_bytes(j, every_split=True):
    """256 byte tokens behind the learned ones, and all ways to split a token, as converted files have them."""
    vocab = j["model"]["vocab"]
    for b in range(256):
        vocab.setdefault("<0x%02X>" % b, len(vocab))
    if not every_split:
        return
    order = {tuple(m if isinstance(m, list) else m.split(" ")): k for k, m in enumerate(j["model"]["merges"])}
    rank = {a + b: k for (a, b), k in order.items()}
    merges = sorted((rank[w], i, w) for w in rank for i in range(1, len(w)) if w[:i] in vocab and w[i:] in vocab)
    j["model"]["merges"] = [[w[:i], w[i:]] for _, i, w in merges]


LLAMA_DECODER = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
SPM = ("<unk>", "<s>", "</s>")
META = lambda: pre_tokenizers.Metaspace(prepend_scheme="always")


def sentencepieces(normalizer, pre, change=None, template=None, **kw):
    return bpe(pre, 420, normalizer, kw.pop("decoder", LLAMA_DECODER), SPM, change or add_bytes, template, META(), unk_token="<unk>",
               fuse_unk=True, byte_fallback=True, **kw)


def unigram(normalizer, pre, byte_fallback=False, template=None):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.NFKC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), META()])
    t.train_from_iterator(LINES, trainers.UnigramTrainer(vocab_size=300, show_progress=False, unk_token="<unk>",
                                                         special_tokens=["<pad>", "</s>", "<unk>"]))
    j = json.loads(t.to_str())
    j["normalizer"] = normalizer
    for p in j["model"]["vocab"]:
        p[1] = round(p[1], 4)
    if byte_fallback:
        j["model"]["byte_fallback"] = True
        j["model"]["vocab"] += [["<0x%02X>" % b, 0.0] for b in range(256)]
    t = Tokenizer.from_str(json.dumps(j))
    t.pre_tokenizer = pre
    t.decoder = decoders.Metaspace(prepend_scheme="always")
    if byte_fallback:
        t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="always")])
    t.post_processor = (template or begin(end=["</s>"]))(t)
    return t


def char_map():
    """A small precompiled map: sentencepiece compiles rules of ours."""
    import sentencepiece
    rules = {"ﬁ": "fi", "ﬂ": "fl", "\u00a0": " ", "\u3000": " ", "\t": " ", "\n": " ", "\r": " ", "Ａ": "A", "ａ": "a", "１": "1", "①": "1", "²": "2",
             "…": "...", "\u200b": "", "\u0007": "", "e\u0301": "é", "か\u3099": "が", "\u212b": "\u00c5", "ſ": "s", "㍿": "株式会社"}
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/rules.tsv", "w") as f:
            for a, b in rules.items():
                f.write(" ".join("%X" % ord(c) for c in a) + "\t" + " ".join("%X" % ord(c) for c in b) + "\n")
        with open(d + "/text", "w") as f:
            f.write(SAMPLE)
        sentencepiece.SentencePieceTrainer.train(input=d + "/text", model_prefix=d + "/m", vocab_size=200, normalization_rule_tsv=d + "/rules.tsv",
                                                 hard_vocab_limit=False, minloglevel=2)
        import sentencepiece.sentencepiece_model_pb2 as pb
        m = pb.ModelProto()
        m.ParseFromString(open(d + "/m.model", "rb").read())
        import base64
        return base64.b64encode(m.normalizer_spec.precompiled_charsmap).decode()


def added(t, *tokens):
    t.add_tokens(list(tokens))
    return t


def special(t, *names):
    t.add_special_tokens(list(names))
    return t


def rules():
    t = bpe(byte_level(True), specials=["<|endoftext|>"])
    return added(t, AddedToken("<mask>", lstrip=True, special=True), AddedToken("<sep>", rstrip=True, normalized=False),
                 AddedToken("word", single_word=True), AddedToken("the", single_word=True, normalized=False), AddedToken("<both>", lstrip=True, rstrip=True),
                 AddedToken("ab"), AddedToken("abc"), AddedToken("abcde", single_word=True), AddedToken("  "), AddedToken("é", normalized=False))


def families():
    seq = pre_tokenizers.Sequence
    llama2 = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    replace = normalizers.Replace(" ", "▁")
    precompiled = {"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": char_map()},
                                                       {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}
    yield "gpt2", bpe(byte_level(True))
    yield "gpt2-prefix", bpe(byte_level(True, True), template=lambda t: processors.RobertaProcessing(("<|endoftext|>", 0), ("<|endoftext|>", 0)))
    yield "neox", added(bpe(byte_level(True), normalizer=normalizers.NFC()), *[AddedToken(" " * k) for k in range(24, 1, -1)])
    yield "llama2", sentencepieces(llama2, None, template=begin("<s>"))
    yield "llama2-plain", sentencepieces(llama2, None, change=lambda j: add_bytes(j, False), template=begin("<s>"))
    yield "phi3", added(sentencepieces(llama2, None), *[AddedToken(x, rstrip=True, normalized=False, special=True) for x in ("<|user|>", "<|end|>")],
                        AddedToken("</s>", normalized=True, rstrip=True))
    yield "yi", sentencepieces(replace, None)
    yield "mistral-v3", special(sentencepieces(None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), template=begin("<s>"),
                                               decoder=LLAMA_DECODER), "[INST]", "[/INST]")
    yield "llama-legacy", sentencepieces(None, pre_tokenizers.Metaspace(prepend_scheme="always", split=False), template=begin("<s>"))
    yield "gemma", added(sentencepieces(replace, pre_tokenizers.Split(" ", "merged_with_previous"), template=begin("<s>"),
                                        decoder=decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])),
                         *[AddedToken("\n" * k, normalized=False) for k in range(8, 0, -1)], *[AddedToken("▁" * k, normalized=False) for k in range(8, 1, -1)])
    yield "unk", bpe(None, 300, replace, decoders.Fuse(), SPM, lambda j: j["model"].update(fuse_unk=False, byte_fallback=False), None, META(),
                     unk_token="<unk>", byte_fallback=True)
    yield "vanish", bpe(None, 300, replace, decoders.Fuse(), SPM, lambda j: j["model"].update(unk_token=None, byte_fallback=False), None, META(),
                        unk_token="<unk>", byte_fallback=True)
    yield "llama3", special(bpe(seq([split(G4), byte_level()]), ignore_merges=True, template=begin("<|begin_of_text|>"),
                                specials=["<|begin_of_text|>"]), "<|eot_id|>", "<|start_header_id|>")
    yield "cl100k", bpe(seq([split(CL, "removed", True), byte_level()]))
    yield "glm4", bpe(seq([split(G4), byte_level()]), specials=["[gMASK]", "<sop>"], template=begin("[gMASK]", "<sop>"))
    yield "qwen2", added(special(bpe(seq([split(Q2), byte_level()]), normalizer=normalizers.NFC()), "<|im_start|>", "<|im_end|>"),
                         AddedToken("<think>", normalized=False))
    yield "qwen35", bpe(seq([split(Q3), byte_level()]), normalizer=normalizers.NFC())
    yield "tekken", bpe(seq([split(TK), byte_level()]), ignore_merges=True, specials=["<s>"], template=begin("<s>"))
    yield "o200k", bpe(seq([split(O2, "removed", True), byte_level()]))
    yield "deepseek3", bpe(seq([split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(D3), byte_level()]), template=begin("<|endoftext|>"))
    yield "deepseek1", bpe(seq([split(r"[\r\n]"), split(r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ]+"),
                                split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), split(r"\s+$"), split("[一-龥ࠀ-一가-퟿]+"), pre_tokenizers.Digits(True), byte_level()]))
    yield "starcoder", bpe(seq([pre_tokenizers.Digits(True), byte_level(True)]))
    yield "command-r", bpe(seq([pre_tokenizers.Digits(True), byte_level(True)]), normalizer=normalizers.NFC())
    yield "falcon", bpe(seq([pre_tokenizers.Punctuation("contiguous"), byte_level(True), pre_tokenizers.Digits(False), split("[0-9][0-9][0-9]")]))
    yield "bloom", bpe(seq([split(r" ?[^(\s|[.,!?…。，、।۔،])]+"), byte_level()]))
    yield "kimi", bpe(seq([split(KIMI), byte_level()]))
    yield "superbpe", bpe(seq([split(r"\p{N}+"), split(r"(?=(\d{3})+(?!\d))"), byte_level()]), size=500,
                          learn=seq([split(r"\n"), byte_level()]))
    yield "words", bpe(seq([split(r"\w+|[^\w\s]+"), split(r"\bA", "merged_with_next"), byte_level()]), normalizer=normalizers.NFKC())
    yield "behaviors", bpe(seq([split(r"[\h&&[^a]]", "merged_with_previous"), split(r"\W", "merged_with_next"), split(r"[[.]\-x^]{2,3}+", "contiguous"),
                                byte_level()]), normalizer=normalizers.NFD())
    yield "rules", rules()
    yield "t5", unigram(precompiled, seq([pre_tokenizers.WhitespaceSplit(), META()]))
    yield "xglm", unigram(precompiled, META(), template=begin("</s>"))
    yield "llm-jp", unigram({"type": "NFKC"}, pre_tokenizers.Metaspace(prepend_scheme="never", split=False), True)
    yield "nfkd", unigram({"type": "Sequence", "normalizers": [{"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "NFKD"}]}, META())


# ---- hostile strings ----

def strings():
    r = random.Random(34)
    out = ["", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "a", " a", "a ", "  a  b   c    ", "a\nb", "a\n\nb", "a \n b", " \n", "\n ", "\x00", "a\x00b",
           "I'm you're WE'VE he'D it'ſ 'S 'lL", "don't 'tis 'twas o'clock''s", "1", "12", "123", "1234", "12345", "1234567890123", "1,234,567.89", "٣٤٥ ½ ² Ⅷ 一二三",
           "Hello, world!", "<|endoftext|>", "a<|endoftext|>b", "<s>a</s> b", " <s> a </s> b ", "</s>", "a</s>b", "<unk>", "<|im_start|>user\nhi<|im_end|>\n", "<think>x</think>",
           "<|eot_id|><|eot_id|>", "[INST] hi [/INST]", "<|user|>\n hello<|end|>\n", "<mask>", "a <mask> b", "a  <mask>", "<sep>  b", "x <both> y", "<both> <both>  <mask> <sep>  ",
           "word words sword word.", "the them other the", "abcdef abcde abcd abc ab", "abcdex abcde", "éa é é", "e\u0301e\u0301", "\u0301", "a\u0301\u0323", "a\u0323\u0301", "Å Å Å",
           "ﬁnd ﬂow ﬁ\u0301 ſt ﬀ", "が か\u3099 か\u309a", "각 \u1100\u1161\u11a8 가\u11a8", "A\u030a\u0327", "①②③ ㍿ ㎏ ﷺ", "𝐀𝑩𝒞 Ａｂｃ１２", "ＡＢＣ\u3000ＤＥＦ", "\u00a0\u2003\u3000 x", "a\u200bb\u200dc\ufeffd",
           "👍🏽 👨‍👩‍👧‍👦 🇩🇪🇫🇷 ❤️‍🔥 🏴󠁧󠁢󠁥󠁮󠁧󠁿", "你好，世界！", "今天是2024年3月15日。", "こんにちは、世界。カタカナﾊﾝｶｸ", "안녕하세요 세계", "สวัสดีชาวโลก", "नमस्ते दुनिया।", "שלום עולם", "مرحبا بالعالم ۱۲۳",
           "Привет, Мир!", "ΑΒΓ αβγ ς σ", "ǅ ǈ ʰ ª º ﹏ ‿ _", "İıŞş ẞß", "\U00031350\U0002ebf0", "\ua7ce\ua7dc \u1c89\u1c8a", "\U00010d40\U00011bf1", "\u0898\u0899a\u1ac1b", "\U00016d67\U00016d68",
           "HelloWorld camelCase HTTPServer XMLHttpRequest ABCdefGHI", "snake_case __init__ a_b", "http://example.com/a?b=c&d=e#f", "path/to/file.txt //// \\\\", "a/b\n/c\r/\n",
           "....", "!!!???", "a.b.c", "--- ***", "(a)[b]{c}", "\"quoted\" ‘x’ “y” «z»", "a…b", "$100 €50 £20 ¥", "x²+y³=z⁴", "∑∫√∞≠≤", "→←↑↓", "\u2028\u2029\u0085x", "\x1f\x1e\x7f\x80\x9f",
           "def f(x):\n    if x:\n        return  {1: 2}\n\n\n\nx\t\ty", "    indented\n        more", "\t\t\ttabs", "a\r\nb\rc\n\rd", " \n \n ", "x \r\n \r\n y", "\n\n\na\n\n\n", "trailing   ",
           "▁▁ ▁a ▁", "▁</s>", "Ġ Ċ ĠHello", "<0x41><0x0A>", "ÿþ", "a" * 100, "ab" * 60, " " * 50, " " * 50 + "x", "\n" * 20, "😀" * 12, "é" * 40, "=" * 77, "1" * 50, "中" * 45, "ab " * 30]
    assigned = [c for c in range(0x20000) if unicodedata.category(chr(c)) not in ("Cs", "Cn", "Co")]
    by_category = {}
    for c in assigned:
        by_category.setdefault(unicodedata.category(chr(c)), []).append(c)
    for category in sorted(by_category):
        some = by_category[category]
        out.append("".join(chr(r.choice(some)) for _ in range(12)))
        out.append(" ".join("a" + chr(r.choice(some)) + "b " + chr(r.choice(some)) for _ in range(6)))
    atoms = ["a", "B", "the", " ", "  ", "\n", "\r\n", "1", "23", "4567", "'s", "'", ".", ",", "!", "é", "e\u0301", "中", "の", "한", "\u0301", "👍", "<s>", "</s>", "<|endoftext|>", "word", "ab",
             "abc", "<mask>", "<sep>", "\u00a0", "\t", "Ж", "ß", "_", "-", "/", "▁", "\u200d", "½", "ﬁ", "Ａ", "A", "Aa", "aA", "\u3000", "<think>", "[INST]", "ก", "ि", "\u0000"]
    while len(out) < 400:
        out.append("".join(r.choice(atoms) for _ in range(r.randint(2, 24))))
    while len(out) < 460:
        out.append("".join(chr(r.choice(assigned)) for _ in range(r.randint(1, 20))))
    text = SAMPLE.replace("\n", " ")
    while len(out) < 500:
        k = r.randint(0, len(SAMPLE) // 3 - 400)
        out.append(SAMPLE[k:k + r.randint(20, 300)])
    return out


def checksum(data):
    h = 2166136261
    for b in data:
        h = (h ^ b) * 16777619 & 0xFFFFFFFF
    return "%04x" % (h >> 16 ^ h & 0xFFFF)


def main():
    os.makedirs(OUT, exist_ok=True)
    hostile = strings()
    with open(os.path.join(HERE, "strings.jsonl"), "w") as f:
        for s in hostile:
            f.write(json.dumps(s) + "\n")
    with open(os.path.join(HERE, "golden.txt"), "w") as f:
        for name, t in families():
            t.save(os.path.join(OUT, name + ".json"), pretty=False)
            t = Tokenizer.from_file(os.path.join(OUT, name + ".json"))
            rows = {"ids": [], "text": []}
            for s in hostile:
                ids = t.encode(s).ids
                rows["ids"].append(checksum(",".join(map(str, ids)).encode()))
                rows["text"].append(checksum(t.decode(ids, skip_special_tokens=len(ids) % 2 == 0).encode()))
            for kind, sums in rows.items():
                f.write(f"{name} {kind} {''.join(sums)}\n")


if __name__ == "__main__":
    main()
