#!/usr/bin/env python3
"""Writes src/text/unicode_tables.inc: which characters are what to the `tokenizers` library.

The library holds several Unicodes: its regular expressions (Oniguruma) have 16, its normal forms 9, `Digits` and `Punctuation` what
their crates have. Categories come from unicodedata2, scripts from regex (what Unicode 16 assigns), the rest is measured by asking the
library about each code point. Run it with Python 3.11, whose own unicodedata is of Unicode 14, like PCRE2 10.42:

    pip install unicodedata2==16.0.0 regex tokenizers==0.23.3
    tools/unicode_tables.py > src/text/unicode_tables.inc
"""
import subprocess
import sys
import unicodedata
import regex
import unicodedata2
from tokenizers import Regex, pre_tokenizers

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

assert unicodedata.unidata_version.startswith("14.") and unicodedata2.unidata_version.startswith("16.")
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn".split()
SCRIPTS = "Han Hiragana Katakana Hangul Latin Cyrillic Greek Arabic Hebrew Thai Devanagari".split()


def ranges(points):
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def write(items):
    line = "   "
    for item in items:
        if len(line) + len(item) > 118:
            print(line)
            line = "   "
        line += " " + item
    print(line)


def table(name, comment, points):
    print(f"\n/* {comment} */\nstatic const struct code_range {name}[] = {{")
    write(f"{{0x{a:x}, 0x{b:x}}}," for a, b in ranges(points))
    print("};")


def removed_by(step):
    return [c for c in POINTS if not step.pre_tokenize_str(chr(c))]


def isolated_by(step):
    return [c for c in POINTS if len(step.pre_tokenize_str("\u4e00" + chr(c))) == 2]


def matched(pattern):
    return set(removed_by(pre_tokenizers.Split(Regex(pattern), "removed")))


def after_unicode_9():
    """Returns the characters that matter to normal forms and are not in Unicode 9: perl knows in which version a character came."""
    perl = "binmode STDOUT, ':utf8'; for (0..0x10ffff) { print \"$_\\n\" if chr($_) =~ /\\p{Present_In=9.0}/ }"
    old = {int(x) for x in subprocess.run(["perl", "-e", perl], capture_output=True, text=True, check=True).stdout.split()}
    moves = lambda ch: unicodedata2.combining(ch) or unicodedata2.decomposition(ch) or unicodedata2.normalize("NFC", "\u0915" + ch) != "\u0915" + ch
    parts = {ord(p) for c in POINTS if c not in old for p in unicodedata2.normalize("NFD", chr(c))}
    return [c for c in POINTS if c not in old and (moves(chr(c)) or c in parts)]


category = {c: unicodedata2.category(chr(c)) for c in POINTS}
before = {c: unicodedata.category(chr(c)) for c in POINTS}
moved = [c for c in POINTS if before[c] not in ("Cn", category[c])]
word = matched(r"\w")
print(f"moved between Unicode 14 and 16: {[hex(c) for c in moved]}", file=sys.stderr)
print(f"\\w beyond letters, marks, Nd, Pc: {ranges(word - {c for c in POINTS if category[c][0] in 'LM' or category[c] in ('Nd', 'Pc')})[:20]}", file=sys.stderr)
for name in ("L", "N", "M", "P", "S", "Lu", "Lo", "Nd"):
    expected = {c for c in POINTS if category[c].startswith(name)}
    assert matched(r"\p{%s}" % name) == expected, name

print("/* Written by tools/unicode_tables.py. Private to this folder. */")
print("\n/* General categories of Unicode 16, in runs: the category of the code points from `first` on to the next run's. */")
print("static const struct category_run category_runs[] = {")
runs, last = [], None
for c in range(0x110000):
    now = category.get(c, "Cs")
    if now != last:
        runs.append(f"{{0x{c:x}, {now.upper()}}},")
        last = now
write(runs)
print("};")
table("since_14", "Assigned by Unicode 15 to 16.", [c for c in POINTS if before[c] == "Cn" and category[c] != "Cn" or c in moved])
table("word_ranges", "Characters that \\w takes in Oniguruma.", word)
table("rust_word_ranges", "Characters that \\w takes in Rust's regular expressions: neighbours that spoil a `single_word` token.",
      [c for c in POINTS if len(pre_tokenizers.Whitespace().pre_tokenize_str("a" + chr(c))) == 1 and pre_tokenizers.Whitespace().pre_tokenize_str(chr(c))])
table("numeric_ranges", "Characters that the pre-tokenizer Digits takes.", isolated_by(pre_tokenizers.Digits(True)))
table("punctuation_ranges", "Characters that the pre-tokenizer Punctuation takes.", isolated_by(pre_tokenizers.Punctuation()))
table("space_ranges", "White space.", removed_by(pre_tokenizers.WhitespaceSplit()))
table("inert_ranges", "Characters that normal forms of Unicode 9 leave as they are.", after_unicode_9())
for name in SCRIPTS:
    points = [c for c in POINTS if category[c] != "Cn" and regex.match(r"\p{Script=%s}" % name, chr(c))]
    assert matched(r"\p{%s}" % name) == set(points), name
    table(f"script_{name.lower()}", f"The script {name}.", points)
