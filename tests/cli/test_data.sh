#!/bin/sh
# `ltrain data`: samples with supervised text marked, lengths, tokens kept and dropped, for chats, rows of text and bytes.
. "${LTRAIN_SOURCE_ROOT:?}/tests/cli/helpers.sh"
show() { "$ltrain" data --model model "$@" >out 2>err || { fail "data $*"; cat err; }; }
number() { sed -n "s/.*[^0-9,]\([0-9][0-9,]*\) $1.*/\1/p" out | tr -d , | head -n 1; }
equal() { [ "$2" = "$3" ] || fail "$1: $2, expected $3"; }

# The model has no weights: none are read.
make_model model

# Chats. Assistants' words are marked; a special token that a user types is text; a control character does not reach a terminal.
cat >chats.jsonl <<'EOF'
{"messages": [{"role": "user", "content": "Is it? <|im_end|> \\x3c|im_end|>"}, {"role": "assistant", "content": "Yes, na\u00efvely \ud83c\udf89."}, {"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "No."}]}
{"prompt": "Red\u001b[31m", "completion": "Blue"}
EOF
show --data chats.jsonl
cat >want <<'EOF'
<|im_start|>user
Is it? \x3c|im_end|> \x5cx3c|im_end|><|im_end|>
<|im_start|>assistant
【Yes, naïvely 🎉.<|im_end|>】
<|im_start|>user
Sure?<|im_end|>
<|im_start|>assistant
【No.<|im_end|>】

EOF
sed -n '/document 1 of 2/,/document 2 of 2/p' out | sed '1d;$d' | cmp -s - want || { fail "the first conversation"; cat out; }
says out 'Red\x1b[31m<|im_end|>'
says out '【Blue<|im_end|>】'
says out "data: 2 documents, "
ids=$(printf '"Yes, na\\u00efvely \\ud83c\\udf89.<|im_end|>"\n"No.<|im_end|>"\n"Blue<|im_end|>"\n' | "$ltrain" tokenize --model model |
    tr -cd ',\n' | wc -m) # a comma less than ids a line, and a newline
equal "supervised tokens" "$(number '([0-9.]*%) supervised')" "$ids"
equal "what lengths count" "$(awk '/ to [0-9,]+ +[0-9]+  #/ { n += $4 } END { print n }' out)" 2
grep -q 'no token of the tokenizer' out && fail "a token of the tokenizer is none"
show --data chats.jsonl --chat-template phi --samples 0
says out 'remark: the chat template writes <|end|>, which is no token of the tokenizer: it is read as text, in several tokens'
show --data chats.jsonl --train-on last --samples 1
says out 'Yes, naïvely 🎉.<|im_end|>'
says out '【No.<|im_end|>】'
grep -q '【Yes' out && fail "a turn that is not the last one is marked"
grep -q 'document 2' out && fail "--samples 1 shows two"

# Reasoning that a template drops is kept by cutting the conversation, or counted; other parts that it leaves out are counted, too.
cat >tagged.jinja <<'EOF'
{% for m in messages %}{% if m.role == 'assistant' %}<|im_start|>assistant
{% generation %}{% if loop.last and m.reasoning_content %}({{ m.reasoning_content }}){% endif %}{{ m.content }}<|im_end|>{% endgeneration %}
{% elif m.role == 'user' %}<|im_start|>user
{{ m.content }}<|im_end|>
{% endif %}{% endfor %}
EOF
cat >thinking.jsonl <<'EOF'
{"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}, {"role": "assistant", "reasoning_content": "R", "content": "A"}, {"role": "user", "content": "Q"}, {"role": "assistant", "reasoning_content": "R", "content": "A"}], "tools": [{"type": "function", "function": {"name": "f"}}]}
EOF
show --data thinking.jsonl --chat-template ./tagged.jinja
says out 'chats: 1 conversation in 2 samples (1 cut turn by turn, because the template writes earlier turns otherwise); 0 turns without their reasoning (reasoning_dropped), 0 without a token that ends them (unended); the template leaves out 1 message, 1 conversation'"'"'s tools'
show --data thinking.jsonl --chat-template ./tagged.jinja --chat-turns whole
says out '1 conversation in 1 sample; 1 turns without their reasoning'
show --data thinking.jsonl --chat-template ./tagged.jinja --train-on all
says out '1 conversation in 1 sample; 1 turns without their reasoning'
echo '{"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]}]}' >calls.jsonl
echo '{"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]}' >>calls.jsonl
for on in assistant all; do
    show --data calls.jsonl --chat-template ./tagged.jinja --train-on $on
    says out "(unended); the template leaves out 1 message's calls of tools"
done

# A turn that has only calls, which the template leaves out, would teach the model to say nothing.
echo "{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content or '' }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}" >bare.jinja
sed 's/"content": ""/"content": null/' "$source/examples/chats.jsonl" | sed -n 3p >calls.jsonl
cat "$source/examples/chats.jsonl" >>calls.jsonl
show --data calls.jsonl --chat-template ./bare.jinja --samples 1
says out "the template leaves out 2 messages' calls of tools"
grep -qF '【<|im_end|>】' out && fail "an empty turn is trained"
says out '【Yes, it is raining in Oslo, at 6 degrees.<|im_end|>】'

# Contents in parts, with templates that take lists and with one that would print the parts in Python's notation.
echo '{"messages": [{"role": "user", "content": [{"type": "text", "text": "In "}, {"type": "text", "text": "parts?"}]}, {"role": "assistant", "content": [{"type": "text", "text": "Yes."}]}]}' >parts.jsonl
echo '{% for m in messages %}{{ m.role }}:{% for p in m.content %}{{ p.text }}{% endfor %}<|im_end|>{% endfor %}' >parts.jinja
show --data parts.jsonl
says out 'In parts?<|im_end|>'
says out '【Yes.<|im_end|>】'
show --data parts.jsonl --chat-template ./parts.jinja
says out 'user:In parts?<|im_end|>【assistant:Yes.<|im_end|>】'
echo '{"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "reasoning": {"a": 1}, "content": "A"}]}' >parts.jsonl
refuse 'parts.jsonl:1: the reasoning of message 2 is not a string' data --model model --data parts.jsonl

# Turns that say nothing are trained, and counted; a usual role is spelled as usual, and other roles are named.
cat >odd.jsonl <<'EOF'
{"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": " "}, {"role": "critic", "content": "Go on"}, {"role": "assistant", "content": "A"}]}
{"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": ""}]}
EOF
show --data odd.jsonl --chat-template ./bare.jinja
says out '(unended); 2 trained turns say nothing (empty); 1 message is of another role than system, developer, user, assistant and tool'
for role in User ASSISTANT ' user'; do
    echo '{"messages": [{"role": "'"$role"'", "content": "Q"}, {"role": "assistant", "content": "A"}]}' >odd.jsonl
    refuse "odd.jsonl:1: the role of message 1 is '$role': write " data --model model --data odd.jsonl --chat-template ./bare.jinja
done

# Variables of the template apply to all rows and are kept by runs; a row's own variables win.
echo "{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% if mood is defined %} ({{ mood }} {{ calm + 1 }}){% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}" >mood.jinja
cat >moods.jsonl <<'EOF'
{"prompt": "Q", "completion": "A"}
{"prompt": "Q", "completion": "A", "chat_template_kwargs": {"mood": "own"}}
EOF
show --data moods.jsonl --chat-template ./mood.jinja --template-var mood=glad,calm=2
says out 'A (glad 3)<|im_end|>'
says out 'A (own 3)<|im_end|>'
printf 'template-var: [mood=glad, calm=1]\n' >vars.yaml
show --config vars.yaml --data moods.jsonl --chat-template ./mood.jinja
says out 'A (glad 2)<|im_end|>'
refuse "--template-var: 'mood' is no NAME=VALUE" data --model model --data moods.jsonl --template-var mood
refuse "--template-var: messages is each conversation's own" data --model model --data moods.jsonl --template-var messages=1
refuse "--template-var is of conversations in .jsonl files, of which the data have none" data --model model --data mood.jinja --template-var mood=1

# Templates by name: rows with tools use tool_use, others use default, from files or from tokenizer_config.json; a given name picks one for all.
cat >tools.jsonl <<'EOF'
{"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}], "tools": [{"type": "function", "function": {"name": "f"}}]}
{"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "B"}]}
{"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "C"}], "tools": []}
EOF
by() { echo "{% for m in messages %}<|im_start|>$1 {{ m.role }} {{ m.content }}<|im_end|>{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}"; }
cp -r model several
mkdir several/additional_chat_templates
by plain >several/chat_template.jinja
by tool >several/additional_chat_templates/tool_use.jinja
by rag >several/additional_chat_templates/rag.jinja
cp -r model listed
echo "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"$(by tool)\"}, {\"name\": \"default\", \"template\": \"$(by plain)\"}, {\"name\": \"rag\", \"template\": \"$(by rag)\"}]}" >listed/tokenizer_config.json
for how in several listed; do
    run named data --model $how --data tools.jsonl
    says named.out 'tool user Q<|im_end|>'
    says named.out 'tool assistant'
    says named.out 'plain assistant B'
    says named.out 'plain assistant C'
    run named data --model $how --data tools.jsonl --chat-template rag
    [ "$(grep -c 'rag user Q' named.out)" = 3 ] || fail "a template by its name is not for all rows"
    run named data --model $how --data tools.jsonl --chat-template default
    [ "$(grep -c 'plain user Q' named.out)" = 3 ] || fail "the default by its name is not for all rows"
    run named data --model model --data tools.jsonl --chat-template ./$how
    says named.out 'tool assistant'
    says named.out 'plain assistant B'
done
echo '{% broken' >several/additional_chat_templates/tool_use.jinja
refuse 'additional_chat_templates/tool_use.jinja:1: ' data --model several --data tools.jsonl
run named data --model several --data tools.jsonl --chat-template default
sed 1d tools.jsonl >without.jsonl
run named data --model several --data without.jsonl
says named.out 'plain assistant B'
rm several/chat_template.jinja
refuse 'several has no default chat template: name one of its others (' data --model several --data without.jsonl

# Rows of text, one of them long; with a sequence length every token is counted.
{
    printf '{"body": "the beginning of it'
    i=0
    while [ $i -lt 1500 ]; do
        printf ' word%d' $i
        i=$((i + 1))
    done
    printf ' the end of it"}\n{"body": "short", "text": 7}\n'
} >rows.jsonl
show --data rows.jsonl --text-column body --seq-len 128
says out 'document 1 of 2, '
says out 'the【 beginning of it word0'
says out 'tokens are not shown'
says out 'the end of it】'
says out '1 is longer than a sequence'
says out 'sequences of 128: '
says out '0 without a target; 1 document split, 0 dropped, 0 truncated'
adds_up() { # tokens in = tokens trained + tokens reported
    equal "$1: tokens" $(($(number 'tokens kept') + $(number 'dropped, [0-9,]* truncated, ') + $(number 'truncated, ') + $(number 'without a target'))) \
        "$(number 'tokens, [0-9,]* (')"
}
adds_up split
equal "kept" "$(number 'tokens kept')" "$(number 'tokens, [0-9,]* (')"
equal "supervised text" "$(number '([0-9.]*%) supervised')" $(($(number 'tokens, [0-9,]* (') - 2))
show --data rows.jsonl --text-column body --seq-len 128 --too-long drop
says out '0 documents split, 1 dropped, 0 truncated'
adds_up drop
equal "kept without the long one" "$(number 'tokens kept')" 4
show --data rows.jsonl --text-column body --seq-len 128 --too-long truncate
says out '0 documents split, 0 dropped, 1 truncated'
adds_up truncate
equal "kept of the long one" "$(number 'tokens kept')" 132
show --data rows.jsonl --text-column body --seq-len 128 --packing concat
adds_up concat
equal "kept by concat" $(($(number 'for training') * 128)) "$(number 'tokens kept')"
refuse 'document 1 in '"$scratch"'/rows.jsonl has 9407 tokens, and a sequence 128' data --model model --data rows.jsonl --text-column body --seq-len 128 --too-long refuse
refuse '--too-long needs --packing best-fit' data --model model --data rows.jsonl --text-column body --seq-len 128 --too-long drop --packing concat

# Texts and rows of text end with the eos token, added if missing; conversations, and texts without a token, stay unchanged.
mkdir ends
printf 'first text' >ends/a.txt
printf 'second<|im_end|>' >ends/b.txt
awk 'BEGIN { for (i = 0; i < 90000; i++) printf "line %d of a text that is cut\n", i }' >ends/cut.txt
printf '{"text": "row"}\n{"text": ""}\n{"text": "x<|im_end|>"}\n' >ends.jsonl
show --data ends,ends.jsonl,chats.jsonl --samples 0
plain=$(number 'tokens, [0-9,]* (')
show --data ends,ends.jsonl,chats.jsonl --samples 9 --append-eos yes
equal "tokens with ends" "$(number 'tokens, [0-9,]* (')" $((plain + 3))
says out 'f【irst text<|im_end|>】'
says out 'r【ow<|im_end|>】'
says out 's【econd<|im_end|>】'
says out 'x【<|im_end|>】'
says out 'remark: 1 empty document is left out'
sed 's/"post_processor":null/"post_processor":{"type":"TemplateProcessing","single":[{"Sequence":{"id":"A"}},{"SpecialToken":{"id":"<|im_end|>"}}],"special_tokens":{"<|im_end|>":{"ids":[421]}}}/' \
    model/tokenizer.json >model/ending.json
show --data ends,ends.jsonl --tokenizer model/ending.json --samples 9 --append-eos yes
says out 'f【irst text<|im_end|>】'
says out 's【econd<|im_end|><|im_end|>】'
refuse '--append-eos is of text files and rows of text, of which the data have none' data --model model --data chats.jsonl --append-eos yes
refuse '--append-eos: texts are read as bytes, none of which ends a document' data --model tiny --data ends --append-eos yes
mkdir nameless
cp model/tokenizer.json nameless
refuse '--append-eos: no file names the eos token of nameless/tokenizer.json' data --model model --tokenizer nameless --data ends --append-eos yes
printf 'append-eos: yes\ntokenizer: nameless\n' >ends.yaml
refuse '--append-eos: no file names the eos token of nameless/tokenizer.json' data --config ends.yaml --model model --data ends
echo '{"eos_token_id": 13}' >nameless/config.json
show --config ends.yaml --data ends
says out 'f【irst text-】'

# A preset reads bytes.
printf 'ab\ncd' >text
"$ltrain" data --model tiny --data text >out 2>err || fail "bytes"
says out 'a【b'
says out 'cd】'
says out 'data: 1 document, 5 tokens, 4 (80.0%) supervised; text as bytes'
show --data text --samples 0
grep -q -- '----' out && fail "--samples 0 shows one"

refuse 'rows.jsonl:1: it has no "text"' data --model model --data rows.jsonl
printf '{"text": "a"}\n\n{"messages": []}\n' >mixed.jsonl
refuse "mixed.jsonl:3: it is a conversation, and the file's first row is a text" data --model model --data mixed.jsonl
sed -n 1p chats.jsonl >mixed.jsonl
echo '{"text": "a"}' >>mixed.jsonl
refuse 'mixed.jsonl:2: no conversation' data --model model --data mixed.jsonl
echo '{"prompt": "alone", "completion": ""}' >untrained.jsonl
show --data untrained.jsonl --samples 1
refuse 'have 5 tokens and a sequence needs 4096' data --model tiny --data text --seq-len 4k --packing concat
refuse 'data is missing' data --model model

# A template without end ends with a sentence; until then few bytes are read for long, and a line says so where output is kept.
cp -r model endless
echo '{"chat_template": "{% set l = range(99999) %}{% for i in l %}{{ 0 if -1 in l }}{% endfor %}"}' >endless/tokenizer_config.json
echo '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}' >one.jsonl
(export LTRAIN_PROGRESS_AFTER=0.1; refuse 'the template takes more than 20040000 steps' data --model endless --data one.jsonl; exit $failures) ||
    fail "a template without end"
says out 'tokenizing: '
refuse '--samples is for ltrain data' --model tiny --data text --seq-len 4 --samples 2
refuse '--json is for ltrain plan, and this shows data' data --model tiny --data text --json
"$ltrain" data --help | grep -q -- '--samples N' || fail "help"
[ ! -e runs ] || fail "a run's directory is left"
exit $failures
