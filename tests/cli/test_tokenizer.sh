#!/bin/sh
# Training by a model's tokenizer: from its directory, by --tokenizer, as bytes. A second run and other ranks take the tokens of the first;
# resuming with another tokenizer is refused; its files are copied to the result. Then `ltrain tokenize`.
. "${LTRAIN_SOURCE_ROOT:?}/tests/cli/helpers.sh"
check() { # WHAT CONDITION...
    what=$1
    shift
    "$@" >/dev/null 2>&1 || fail "$what"
}

# The vocabulary is letters, and an unknown token.
mkdir small
{
    printf '{"model": {"type": "BPE", "unk_token": "?", "vocab": {"?": 0, "he": 1, " ": 2'
    i=3
    for c in a b c d e f g h i j k l m n o p q r s t u v w x y z; do
        printf ', "%s": %d' "$c" "$i"
        i=$((i + 1))
    done
    printf '}, "merges": ["h e"]}, "added_tokens": [{"id": 29, "content": "<s>", "special": true}], '
    printf '"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], '
    printf '"special_tokens": {"<s>": {"ids": [29]}}}, "decoder": {"type": "Fuse"}}\n'
} >small/tokenizer.json
sed 's/"id": 29/"id": 29, "rstrip": true/' small/tokenizer.json >other.json
i=0
while [ $i -lt 400 ]; do
    echo "the hen heard $i things" >>text
    i=$((i + 1))
done

among_ranks() { # Open MPI leaks
    (
        forgive_leaks
        "$@"
    )
}
train() { "$ltrain" --model tiny --data text --seq-len 128 --steps 2 --device cpu --effort quick --threads 1 "$@" >out 2>err; }

check "trains" train --tokenizer small --out a --save-every 2
says out "1 document"
says out "tokens of small/tokenizer.json"
says out "tokenizer: the result gets that of small/tokenizer.json"
check "the result has it" cmp small/tokenizer.json a/hf/tokenizer.json
check "a second time" train --tokenizer small --out b
says out "kept from an earlier run"
check "equal losses" sh -c 'cut -d, -f1-3 a/metrics.jsonl >1; cut -d, -f1-3 b/metrics.jsonl >2; cmp 1 2'
check "bytes" train --tokenizer bytes --out c
says out "text as bytes"
check "from the preset" train --out d
says out "text as bytes"
if "$ltrain" --version | grep -q 'with.*Open MPI'; then
    check "two ranks" among_ranks train --tokenizer small --out e --ranks 2 --token-cache tokens
    says out "tokens of small/tokenizer.json"
    check "where it was told to" test -n "$(ls tokens/*.tokens)"
fi
check "goes on" "$ltrain" --resume a --effort quick --steps 3
"$ltrain" --resume a --effort quick --steps 4 --tokenizer bytes >out 2>err && fail "resumed as bytes"
says err "--tokenizer: the checkpoint's run read its data by another tokenizer (or --text-column, --append-eos, --chat-template, --template-var, --chat-turns, --train-on), and this one takes bytes"
"$ltrain" --resume a --effort quick --steps 4 --text-column other >out 2>err && fail "resumed by a column of texts"
says err "--text-column is of rows of text in .jsonl files"
"$ltrain" --resume a --effort quick --steps 4 --tokenizer other.json >out 2>err && fail "resumed by another"
says err "--tokenizer: the checkpoint's run"
check "goes on all the same" "$ltrain" --resume a --effort quick --steps 4 --tokenizer other.json --data-changed continue
check "the result has the other one" cmp other.json a/hf/tokenizer.json
check "and the run" cmp other.json a/original/tokenizer.json

# Texts end with the tokenizer's eos if the tokenizer itself puts none there: a run keeps that, and tells such texts from texts without eos.
mkdir to-end
cp small/tokenizer.json to-end
echo '{"eos_token": "z"}' >to-end/tokenizer_config.json
check "trains with ends" train --tokenizer to-end --append-eos yes --out ended-run --save-every 2
ended=$(sed -n 's/.*, \([0-9,]*\) tokens kept.*/\1/p' out | head -n 1 | tr -d ,)
check "the run keeps it" grep -qx 'append-eos: yes' ended-run/config.yaml
check "goes on with ends" "$ltrain" --resume ended-run --effort quick --steps 3
"$ltrain" --resume ended-run --effort quick --steps 4 --append-eos no >out 2>err && fail "resumed without ends"
says err "by another tokenizer (or --text-column, --append-eos, "
check "trains without ends" train --tokenizer to-end --steps 1 --out plain-run
[ "$ended" = $(($(sed -n 's/.*, \([0-9,]*\) tokens kept.*/\1/p' out | head -n 1 | tr -d ,) + 1)) ] || { fail "one end for one text, $ended"; cat out; }
for how in yes no; do
    "$ltrain" eval --model ended-run/hf --eval-data text --lengths 128 --effort quick --append-eos $how --json >$how.json 2>err || cat err
done
[ "$(grep -m 1 '"tokens"' yes.json)" != "$(grep -m 1 '"tokens"' no.json)" ] || fail "eval reads no ends"

# A model's directory has its own tokenizer, and the result has a copy.
mkdir model
cp a/hf/* model
cp small/tokenizer.json model
echo '{}' >model/tokenizer_config.json
"$ltrain" --model model --data text --seq-len 128 --steps 1 --out f --device cpu --effort quick >out 2>err || cat err
says out "model/tokenizer.json"
check "copied" cmp small/tokenizer.json f/hf/tokenizer.json
check "copied, too" cmp model/tokenizer_config.json f/hf/tokenizer_config.json
"$ltrain" --model model --tokenizer bytes --data text --seq-len 128 --steps 1 --out of-bytes --device cpu --effort quick >out 2>err || cat err
says out "tokenizer: the result gets none, as its text was read as bytes"
check "none beside a model of bytes" test ! -e of-bytes/hf/tokenizer.json -a ! -e of-bytes/original/tokenizer_config.json -a -e of-bytes/original/config.json
rm model/tokenizer.json
"$ltrain" --model model --data text --seq-len 128 --steps 1 --out g --device cpu --effort quick >out 2>err || cat err
says out "text as bytes: the model has no tokenizer"
# A tokenizer in files of another kind is named in a refusal, unless bytes are asked for, or the data are ids already.
refused() { # FILE... NAMED
    rm -rf named
    mkdir named
    cp model/config.json named
    while [ $# -gt 1 ]; do
        printf '{"tokenizer_class": "GPT2Tokenizer"}' >"named/$1"
        shift
    done
    "$ltrain" data --model named --data text --samples 0 >out 2>err && fail "$1 is not refused"
    says err "$1"
    says err "--tokenizer bytes reads the bytes of text as ids 0 to 255"
    check "as bytes beside $1" "$ltrain" data --model named --tokenizer bytes --data text --samples 0
    check "ids beside $1" "$ltrain" data --model named --data ids.jsonl --samples 0
}
echo '{"input_ids": [1, 2, 3]}' >ids.jsonl
refused vocab.json merges.txt "named has its tokenizer in vocab.json and merges.txt, which is not read: python3"
for f in tekken.json vocab.json merges.txt spiece.model source.spm sentencepiece.bpe.model tokenizer.model.v3 vocab.txt; do
    refused "$f" "named has its tokenizer in $f, which is not read: python3"
done
refused tekken_240718.json "named has its tokenizer in tekken_240718.json, which is not read"
for f in added_tokens.json special_tokens_map.json tokenization_kimi.py; do
    refused "$f" "named/$f belongs to a tokenizer, and no file of its vocabulary is there"
done
for f in tiktoken.model qwen.tiktoken; do
    refused "$f" "named has its tokenizer in $f, which is not read: convert_tiktoken_to_fast"
done
refused tokenizer_config.json "named/tokenizer_config.json names a GPT2Tokenizer, and no file of its vocabulary is there"
"$ltrain" sample --model named --prompt a >out 2>err && fail "samples by bytes"
says err "names a GPT2Tokenizer"
echo '"a"' | "$ltrain" tokenize --model named >out 2>err && fail "tokenizes by nothing"
says err "names a GPT2Tokenizer"
"$ltrain" tokenize --model small <. >out 2>err && fail "takes a directory for a text"
says err "cannot read standard input: Is a directory"
echo '{"added_tokens_decoder": []}' >small/tokenizer_config.json
echo '"a"' | "$ltrain" tokenize --model small >out 2>err && fail "takes a list of tokens"
says err "added_tokens_decoder of tokenizer_config.json is no object"
rm small/tokenizer_config.json
echo '{"chat_template": "x"}' >named/tokenizer_config.json
"$ltrain" data --model named --data text --samples 0 >out 2>err || cat err
says out "text as bytes"
echo x >model/tokenizer.model
"$ltrain" --model model --data text --seq-len 128 --steps 1 --out h --device cpu --effort quick >out 2>err && failures=$((failures + 1))
says err "model/tokenizer.model: it is no model of sentencepiece, or damaged"

# sentencepiece's file is read if there is no other, and chats by the template beside it.
pieces=${LTRAIN_SOURCE_ROOT:?}/tests/text/sentencepiece
cp "$pieces"/small/* model
check "trains by tokenizer.model" "$ltrain" --model model --data text --seq-len 128 --steps 1 --out j --device cpu --effort quick
"$ltrain" data --model model --data text >out 2>err || cat err
says out "tokens of model/tokenizer.model"
check "copied" cmp "$pieces/small/tokenizer.model" j/hf/tokenizer.model
"$ltrain" --model model --tokenizer small --data text --seq-len 128 --steps 1 --save-every 1 --out l --device cpu --effort quick >out 2>err || cat err
says out "tokenizer: the result gets that of small/tokenizer.json, not the model's own"
check "that it was trained with" cmp small/tokenizer.json l/hf/tokenizer.json
check "and nothing of the model's" test ! -e l/hf/tokenizer.model -a ! -e l/hf/tokenizer_config.json
"$ltrain" --model model --tokenizer model --data text --seq-len 128 --steps 1 --out m --device cpu --effort quick >out 2>err || cat err
check "the model's own is no other" sh -c '! grep -q "the result gets" out'
check "the model's own takes another one's place" "$ltrain" --resume l --tokenizer model --data-changed continue --steps 2
check "in the run and the result" cmp "$pieces/small/tokenizer.model" l/hf/tokenizer.model
check "with nothing of the other one" test ! -e l/hf/tokenizer.json
echo '{"messages": [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "the hen <|im_end|>"}]}' >chats.jsonl
"$ltrain" data --model model --data chats.jsonl >out 2>err || cat err
says out "<|im_start|> user<unk>Who?<|im_end|> <unk>【<|im_start|> assistant<unk>the hen <unk>im<unk>end<unk><|im_end|>】"

# The result has the chat template that was used, even if that is not the model's own, and after a resume, too.
chats() { # OUT ARGUMENT...: a step
    "$ltrain" --model model --data chats.jsonl --seq-len 128 --device cpu --effort quick --threads 1 "$@" >out 2>err || { fail "chats $*"; cat err; }
}
kept() { cmp -s "$1" "$2/original/chat_template.jinja" && cmp -s "$1" "$2/hf/chat_template.jinja" || fail "$2 has not $1"; }
template() { printf '{%% for m in messages %%}%s{{ m.content }}<|im_end|>{%% endfor %%}' "$1"; }
chats --steps 1 --chat-template chatml --out n
says out "template: the result gets that of chatml (--chat-template)"
grep -q "im_start.*message.role" n/hf/chat_template.jinja || fail "n has no template of chatml"
grep -q '^{% set' n/hf/chat_template.jinja && fail "chatml names no token"
mkdir ended && echo '{"eos_token": "<|im_end|>", "chat_template": "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"}' >ended/tokenizer_config.json
chats --steps 1 --chat-template ended --out o
says o/hf/chat_template.jinja "{% set eos_token = '<|im_end|>' %}"
"$ltrain" data --model o/hf --data chats.jsonl >out 2>err || cat err
says out "the hen <unk>im<unk>end<unk><|im_end|>】"
# Templates by name are kept in runs, results, adapters and exports. From another directory that --chat-template names, only default and
# tool_use are kept.
cp -r model several
mkdir several/additional_chat_templates
template D >several/chat_template.jinja
template T >several/additional_chat_templates/tool_use.jinja
template R >several/additional_chat_templates/rag.jinja
echo no >several/additional_chat_templates/note.txt
named() { # DIRECTORY NAME...: it has just these of `several`
    dir=$1
    shift
    [ "$(ls "$dir/additional_chat_templates" 2>/dev/null | tr '\n' ' ')" = "$(for name; do printf '%s.jinja ' $name; done)" ] || { fail "$dir: $*"; ls "$dir"; }
    for name; do cmp -s several/additional_chat_templates/$name.jinja "$dir/additional_chat_templates/$name.jinja" || fail "$dir: $name is another one"; done
}
several() { "$ltrain" --model several --data chats.jsonl --seq-len 128 --device cpu --effort quick --threads 1 "$@" >out 2>err || { fail "several $*"; cat err; }; }
several --steps 1 --save-every 1 --out s1
named s1/original rag tool_use
named s1/hf rag tool_use
cmp -s several/chat_template.jinja s1/hf/chat_template.jinja || fail "the default is lost"
"$ltrain" --resume s1 --effort quick --steps 2 >out 2>err || { fail "resumed with templates"; cat err; }
named s1/hf rag tool_use
several --steps 1 --lora r=2 --out s2
named s2/hf rag tool_use
"$ltrain" export --model s2 --to s2-export >out 2>err || { fail "export with templates"; cat err; }
named s2-export rag tool_use
check "nothing partial is left" test ! -e s2-export/export.partial -a ! -e s1/hf.partial
several --steps 1 --chat-template rag --out s3
named s3/hf rag
cmp -s several/additional_chat_templates/rag.jinja s3/hf/chat_template.jinja || fail "the template that was named is not the result's"
chats --steps 1 --chat-template ./several --out s4
named s4/hf tool_use
kept several/chat_template.jinja s4

# Variables of a template that fails without them: a run keeps the variables, and its held-out text and samples are read with them.
echo "{% if mood is not defined %}{{ raise_exception('no mood') }}{% endif %}{% for m in messages %}{{ mood }} {{ m.content }}<|im_end|>{% endfor %}" >mood.jinja
grep -h . chats.jsonl chats.jsonl chats.jsonl chats.jsonl chats.jsonl chats.jsonl chats.jsonl chats.jsonl >chats8.jsonl
fails() { # TEXT ARGUMENT...
    text=$1
    shift
    "$ltrain" "$@" >out 2>err && fail "$* succeeds"
    says err "$text"
}
chats --data chats8.jsonl --eval-data chats.jsonl --chat-template ./mood.jinja --template-var mood=glad --steps 1 --save-every 1 --out moody
grep -q '^template-var: \["\?mood=glad"\?\]$' moody/config.yaml || { fail "the run does not keep the variable"; grep template moody/config.yaml; }
"$ltrain" --resume moody --effort quick --steps 2 >out 2>err || { fail "resumed with the variable"; cat err; }
fails "by another tokenizer (or --text-column" --resume moody --effort quick --steps 3 --template-var mood=sad
"$ltrain" eval --model moody --lengths 128 --effort quick >out 2>err || { fail "held-out text with the variable"; cat err; }
"$ltrain" eval --model moody/hf --eval-data chats.jsonl --lengths 128 --effort quick --template-var mood=glad >out 2>err || { fail "eval with the variable"; cat err; }
fails "no mood" eval --model moody/hf --eval-data chats.jsonl --lengths 128 --effort quick
"$ltrain" sample --model moody/hf --chat --prompt Q --max-new-tokens 1 --template-var mood=glad >out 2>err || { fail "sample with the variable"; cat err; }
fails "no mood" sample --model moody/hf --chat --prompt Q --max-new-tokens 1

# The result's texts end with its chats' end token, another one than the model's, which is reported; merged adapters have it, too. Files
# that have it already are left alone.
ends() { tr -d ' \n' <"$1/generation_config.json" | grep -q "\"eos_token_id\":$2[,}]" || { fail "$1 does not end at $2"; cat "$1/generation_config.json"; }; }
cp -r model based
im_end=$(printf '"<|im_end|>"\n' | "$ltrain" tokenize --model based | tr -d '[]')
echo '{"temperature": 0.6, "eos_token_id": 2}' >based/generation_config.json
ended() { "$ltrain" --model based --data chats.jsonl --seq-len 128 --device cpu --effort quick --threads 1 --steps 1 "$@" >out 2>err || { fail "ended $*"; cat err; }; }
ended --chat-template ended --out e1
says out "generation: the chats end turns at <|im_end|> ($im_end), which ended no text before"
ends e1/hf "\[2,$im_end\]"
says e1/hf/generation_config.json '"temperature": 0.6,'
ended --chat-template ended --out e2 --lora r=2
says out "once adapters are merged"
"$ltrain" export --model e2 --to merged >out 2>err || cat err
ends merged "\[2,$im_end\]"
echo "{\"eos_token_id\": [$im_end, 2], \"top_k\": 7}" >based/generation_config.json
ended --chat-template ended --out e3
check "as it was" cmp based/generation_config.json e3/hf/generation_config.json
rm based/generation_config.json
ended --chat-template ended --out e4
ends e4/hf "\[$im_end\]"
"$ltrain" --model based --data text --eval-data chats.jsonl --eval-before --seq-len 128 --device cpu --effort quick --threads 1 --steps 1 --chat-template ended \
    --out e5 >out 2>err || { fail "text with chats to evaluate"; cat err; }
check "evaluation teaches no end" test ! -e e5/hf/generation_config.json

# Rows of ids that end at a token other than the model's are remarked, once; those that end at the model's, or at no common one, are not.
echo "{\"eos_token_id\": [2]}" >based/generation_config.json
ids() { for i in 3 4 5 6 7 8 9; do echo "{\"input_ids\": [$i, 5, 6, 7, 8, $1]}"; done >ids.jsonl; }
of_ids() { "$ltrain" --model based --data ids.jsonl --seq-len 16 --device cpu --effort quick --threads 1 --steps 1 --out "$1" >out 2>err || { fail "ids $1"; cat err; }; }
ids "$im_end"
of_ids i1
says out "remark: documents of ids.jsonl end at <|im_end|> ($im_end), and the model's texts at other ids (eos_token_id [2])"
[ "$(grep -c 'documents of ids.jsonl end' out)" = 1 ] || fail "said more than once"
ids 2
of_ids i2
grep -q 'documents of ids.jsonl end' out && fail "the model's own end is remarked"
for i in 3 4 5; do echo "{\"input_ids\": [5, 6, 7, $i]}"; done >ids.jsonl
of_ids i3
grep -q 'documents of ids.jsonl end' out && fail "different ends are remarked"
mkdir linked && ln -s ../model/tokenizer.model linked && template A >linked/chat_template.jinja
chats --steps 1 --tokenizer linked --out p
says out "tokenizer: the result gets that of linked/tokenizer.model, not the model's own"
kept linked/chat_template.jinja p
"$ltrain" --model model --data text --seq-len 128 --device cpu --effort quick --threads 1 --steps 1 --save-every 1 --tokenizer linked --out q >out 2>err || cat err
template B >linked/chat_template.jinja
rm linked/tokenizer.model && ln -s ../q/original/tokenizer.model linked && cp model/tokenizer.model before
"$ltrain" --resume q --effort quick --steps 2 --tokenizer linked >out 2>err || cat err
kept linked/chat_template.jinja q
check "a link into the run" cmp before q/original/tokenizer.model
"$ltrain" --resume q --effort quick --steps 2 --tokenizer q/original >out 2>err || { fail "by its own"; cat err; }
kept linked/chat_template.jinja q
check "its own" cmp before q/original/tokenizer.model
check "nothing else is left" test ! -e q/original/tokenizer.partial
train --tokenizer "$pieces/llama/tokenizer.model" --out k && failures=$((failures + 1))
says err "tokenizer.model has"
printf '"the hen"\n"<s>a"\n' | "$ltrain" tokenize --model "$pieces/llama" --special >out 2>err
check "ids of tokenizer.model" grep -q "^\[1, 1, " out
"$ltrain" tokenize --model "$pieces/llama" --decode <out >back 2>err
check "and back" grep -qx '"the hen"' back
train --tokenizer nowhere --out i && failures=$((failures + 1))
says err "cannot open"

# `ltrain tokenize`.
tokens() { "$ltrain" tokenize --model small "$@" >out 2>err; }
printf '"the hen"\n"a\\u0000<s>"\n' | tokens
check "ids" sh -c 'printf "[22, 1, 2, 1, 16]\n[3, 0, 29]\n" | cmp - out'
printf '"a"\n' | tokens --special
check "with the template" sh -c 'echo "[29, 3]" | cmp - out'
echo '[29, 22, 1]' | tokens --decode
check "back" sh -c 'echo "\"the\"" | cmp - out'
echo '[29, 22, 1]' | tokens --decode --special
check "back, with what is special" sh -c 'echo "\"<s>the\"" | cmp - out'
for bad in 'x' '"a' '7' '[1]'; do
    echo "$bad" | tokens && fail "$bad is taken"
    says err "line 1 of standard input: "
done
echo '[99]' | tokens --decode && failures=$((failures + 1))
says err "no token has the id 99"
"$ltrain" tokenize --model small --xyz >out 2>err </dev/null && failures=$((failures + 1))
says err "'--xyz' is not known"
exit $failures
