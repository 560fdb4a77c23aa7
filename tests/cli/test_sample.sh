#!/bin/sh
# `ltrain sample`: prompts from everywhere, bytes and tokenizers, ends of answers, seeds, placements, a chat by lines, refusals.
. "${LTRAIN_SOURCE_ROOT:?}/tests/cli/helpers.sh"
golden=$source/tests/golden
same() { # WHAT FILE FILE
    cmp -s "$2" "$3" || { fail "$1"; head -c 400 "$2" "$3"; }
}
sample() { "$ltrain" sample --threads 1 "$@" >out 2>err </dev/null; }
refused() { # STATUS TEXT OPTION...
    want=$1 text=$2
    shift 2
    status=0
    sample "$@" || status=$?
    [ "$status" = "$want" ] || { fail "status $status, not $want: $*"; cat out err; }
    says err "$text"
}
ids() { sed 's/.*"tokens":\(\[[^]]*\]\).*/\1/' out; }
model=$golden/llama-gqa

# A prompt given in three ways gets the same answer each time, and so it does with each placement.
sample --model "$model" --prompt "To be or not" --json --max-new-tokens 12 || { fail "a prompt"; cat err; }
ids >resident
says out '"prompt_tokens":12,"prefill_tokens":12'
printf 'To be or not' >prompt
sample --model "$model" --prompt-file prompt --json --max-new-tokens 12 && ids >other
same "a file" resident other
"$ltrain" sample --threads 1 --model "$model" --json --max-new-tokens 12 <prompt >out && ids >other
same "standard input" resident other
sample --model "$model" --prompt-file prompt --json --max-new-tokens 12 --device cpu:discrete --offload params=nvme,acts=nvme \
    --nvme-path . --nvme-max 100M --tiles rows=8 --seq-len 64 && ids >other
same "everything on drives" resident other

# A text that no memory has room for is refused without its programs being made.
refused 3 "a text of 1,073,741,828 tokens and its model need 1.0 TiB on the " --model tiny --prompt aaaa --max-new-tokens 1073741824 \
    --device-mem 1G --host-mem 1G
says err " tokens fit"

# The seed decides which tokens are drawn.
for seed in 1 2; do
    sample --model "$model" --prompt-file prompt --json --max-new-tokens 12 --temperature 1 --top-k 50 --seed $seed && ids >seed$seed
done
sample --model "$model" --prompt-file prompt --json --max-new-tokens 12 --temperature 1 --top-k 50 --seed 1 && ids >other
same "a seed again" seed1 other
! cmp -s seed1 seed2 || fail "seeds give one answer"
sample --model "$model" --prompt-file prompt --json --max-new-tokens 12 --temperature 1 --top-k 1 && ids >other
same "the best of one" resident other

# Answers end at a length, and at the bytes of a stop text.
says out '"ended":"length"'
sample --model "$model" --prompt-file prompt --json --seq-len 14 --tiles rows=8
says out '"ended":"context"'
sample --model tiny --prompt "aaaa" --json --max-new-tokens 9 && text=$(sed 's/.*"text":"\([^"]*\)".*/\1/' out)
sample --model tiny --prompt "aaaa" --json --max-new-tokens 9 --stop-at "$(printf '%s' "$text" | cut -c3-4)"
says out '"ended":"stop-at"'

# A model with a tokenizer, end tokens and a template of its own.
cp -r "$model" chatty
{
    printf '{"model": {"type": "BPE", "unk_token": "?", "vocab": {"?": 0, " ": 1, "\\u00e9": 2, "<0xE2>": 30'
    i=3
    for c in a b c d e f g h i j k l m n o p q r s t u v w x y z; do
        printf ', "%s": %d' "$c" "$i"
        i=$((i + 1))
    done
    i=31
    while [ $i -lt 254 ]; do
        printf ', "w%d": %d' $i $i
        i=$((i + 1))
    done
    printf ', "\\u00fc": 29'
    printf '}, "merges": []}, "added_tokens": [{"id": 254, "content": "<s>", "special": true}, {"id": 255, "content": "<end>", "special": true}], '
    printf '"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], '
    printf '"special_tokens": {"<s>": {"ids": [254]}}}, "decoder": {"type": "Fuse"}}\n'
} >chatty/tokenizer.json
printf '{"bos_token": "<s>", "eos_token": "<end>", "chat_template": "{%% for m in messages %%}<s>{{ m.role }} {{ m.content }}<end>{%% endfor %%}{%% if add_generation_prompt %%}<s>assistant {%% endif %%}"}\n' >chatty/tokenizer_config.json
sample --model chatty --prompt "the cat" --json --max-new-tokens 5 || { fail "a tokenizer"; cat err; }
says out '"prompt_tokens":8'
first=$(ids | sed 's/\[\([0-9]*\).*/\1/')
printf '{"eos_token_id": [7, %s]}\n' "$first" >chatty/generation_config.json
sample --model chatty --prompt "the cat" --json --max-new-tokens 5
says out '"text":"","tokens":[],"ended":"eos"'
rm chatty/generation_config.json
printf 'hello\nagain\n/reset\nhello\n/exit\nnever\n' >turns
"$ltrain" sample --threads 1 --model chatty --chat --json --max-new-tokens 4 --repetition-penalty 1.3 <turns >out 2>err || { fail "a chat"; cat err; }
[ "$(wc -l <out)" = 3 ] || { fail "three answers"; cat out; }
sed -n '1p' out | sed 's/.*"tokens"/"tokens"/; s/"prefill.*//' >one
sed -n '3p' out | sed 's/.*"tokens"/"tokens"/; s/"prefill.*//' >three
same "a chat that begins anew" one three
sample --model chatty --chat --prompt "hi" --system "be kind" --json --max-new-tokens 2 || { fail "a chat's prompt"; cat err; }

# A chat at a terminal, played by Python if there is one: two turns; Ctrl-C at the prompt, at once, and in the middle of an endless answer
# (the model never takes an end token); Ctrl-D.
if command -v python3 >/dev/null; then
    python3 - "$ltrain" <<'END' || fail "a chat at a terminal"
import json, os, pty, re, select, signal, struct, sys

with open("chatty/model.safetensors", "r+b") as f: # logits of 0 are never the best ones
    size = struct.unpack("<Q", f.read(8))[0]
    head = json.loads(f.read(size))["lm_head.weight"]
    row = head["shape"][1] * {"F32": 4, "BF16": 2, "F16": 2}[head["dtype"]]
    f.seek(8 + size + head["data_offsets"][0] + 254 * row)
    f.write(bytes(2 * row))

class Terminal:
    def __init__(self, *options):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(sys.argv[1], [sys.argv[1], "sample", "--threads", "1", "--model", "chatty", *options])
        self.text = ""

    def read(self): # "" at the end
        if not select.select([self.fd], [], [], 250)[0]:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            sys.exit(f"it hangs behind {self.text[-200:]!r}")
        try:
            return os.read(self.fd, 1 << 16).decode(errors="replace")
        except OSError: # the other end is closed
            return ""

    def until(self, pattern): # takes and returns the output up to and with the pattern
        while not (found := re.search(pattern, self.text)):
            more = self.read()
            if not more:
                sys.exit(f"it has ended, and {pattern!r} is not in {self.text!r}")
            self.text += more
        taken, self.text = self.text[:found.end()], self.text[found.end():]
        return taken

    def say(self, text):
        os.write(self.fd, text.encode())

    def leave(self):
        self.say("\x04")
        while more := self.read():
            self.text += more
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if status or not self.text.endswith("\n"):
            sys.exit(f"Ctrl-D: it ends with {status} and {self.text!r}")

cores = os.sched_getaffinity(0)
os.sched_setaffinity(0, {min(cores)}) # on one core the person answers a prompt before the program goes on
t = Terminal("--max-new-tokens", "6", "--verbose", "--seq-len", "1k")
t.until(r"room for 1024 tokens.*Ctrl-C stops an answer")
t.until("> $")
read = []
for line in "hello", "again":
    t.say(line + "\n")
    read.append(re.search(r"\[(\d+) of (\d+) tokens read .* 6 written .*: length\]", t.until(r"\]\r\n> ")).groups())
if read[0][0] != read[0][1] or not int(read[1][0]) < int(read[1][1]) - int(read[0][1]) + 1:
    sys.exit(f"of a conversation more is read than what is new: {read}")
for _ in range(8):
    t.say("half a line\x03")
    t.until(r"\n> ")
    t.say("go on\n")
    t.until(r"\]\r\n> ")
t.leave()
os.sched_setaffinity(0, cores)

t = Terminal("--verbose", "--seq-len", "400k")
t.until("> $")
for line in "hello", "again":
    t.say(line + "\n")
    t.until(line + r"\r\n(?s:.{40})")
    t.say("\x03")
    t.until(r": interrupted\]\r\n> ")
t.leave()
END
fi

# A run's model and its checkpoint give the same answers.
head -c 3000 "$golden/make_golden.py" >text
"$ltrain" --model tiny --data text --seq-len 128 --steps 1 --save-every 1 --threads 1 --device cpu --effort quick --out run >log 2>&1 || { fail "a run"; cat log; }
sample --model run --prompt "ab" --json --max-new-tokens 4 && ids >hf
rm -r run/hf
sample --model run --prompt "ab" --json --max-new-tokens 4 && ids >other
same "a run's model and its checkpoint" hf other
sample --model run --prompt "ab" --max-new-tokens 4 || fail "a checkpoint's answer"
says err "note: the state of run/checkpoints/step-000001 is taken"
grep -q "note: " out && fail "a note stands in the answer"

# A run removes checkpoints while they are read: the newest one is read, or the message says what happened.
refused 2 "run/checkpoints/step-000009/config.json: No such file or directory: it is not, or not any more, among the checkpoints that its run keeps" --model run/checkpoints/step-000009 --prompt ab
cp -r run moving
mv moving/checkpoints/step-000001 moving/checkpoints/step-100000
(
    cd moving/checkpoints
    for n in $(seq 100000 200000); do # saves and prunes as a run does
        cp -r step-$n step-$((n + 1)).partial && mv step-$((n + 1)).partial step-$((n + 1)) && echo step-$((n + 1)) >latest.partial && mv latest.partial latest &&
            mv step-$n step-$n.partial && rm -r step-$n.partial || exit
    done
) &
mover=$!
for i in 1 2 3 4 5 6 7 8; do
    if ! "$ltrain" sample --model moving --prompt "ab" --json --max-new-tokens 1 >out 2>err; then
        grep -q "moving/checkpoints/step-.* its run keeps" err || fail "a checkpoint that is removed: $(cat err)"
    fi
done
kill $mover
wait $mover 2>/dev/null || true

# generation_config.json: values that are refused, and keys that get a warning.
cp -r "$model" odd
says_odd() { # TEXT OF_FILE
    echo "$2" >odd/generation_config.json
    refused 2 "$1" --model odd --prompt-file prompt
}
says_odd 'odd/generation_config.json: temperature is "hot"; it is a number from 0 to 1000' '{"temperature": "hot"}'
says_odd 'odd/generation_config.json: top_p is 1.5; it is a number from 0 to 1' '{"top_p": 1.5}'
says_odd 'odd/generation_config.json: eos_token_id has "2", which is no token' '{"eos_token_id": [2, "2"]}'
echo '{"eos_token_id": -1, "temperature": null, "num_beams": 1, "typical_p": 0.5, "suppress_tokens": [], "no_repeat_ngram_size": 3, "bad_words_ids": [[7]]}' \
    >odd/generation_config.json
"$ltrain" sample --model odd --prompt-file prompt --max-new-tokens 2 >out 2>err || fail "generation_config.json with more than is done"
says err "warning: generation_config.json asks for no_repeat_ngram_size 3, bad_words_ids [[7]], which ltrain does not do: transformers writes other texts"

# Adapters answer with the chat template that they were trained with, whether the run has ended or not.
echo '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "a cat"}]}' >chats.jsonl
printf '{%% for m in messages %%}<s>{{ m.content }}<end>{%% endfor %%}' >bare.jinja
"$ltrain" --model chatty --data chats.jsonl --chat-template ./bare.jinja --seq-len 64 --lora r=2 --steps 1 --save-every 1 --threads 1 --device cpu \
    --effort quick --out tuned >log 2>&1 || { fail "adapters"; cat log; }
answer() { # NAME OPTION...
    name=$1
    shift
    sample "$@" --chat --prompt "a hat" --json --max-new-tokens 4 && sed 's/,"prefill_seconds.*//' out >"$name"
}
answer by-other --model chatty --adapter tuned/hf --chat-template ./bare.jinja
answer by-own --model chatty
answer by-tuned --model tuned
rm -r tuned/hf
answer by-saved --model tuned
same "the template that adapters were trained with" by-tuned by-other
same "the same of a checkpoint" by-saved by-other
! cmp -s by-own by-other || fail "templates make no difference"

# A base whose files are not those of its configuration is refused beside adapters, too.
sed -i 's/"tie_word_embeddings": false/"tie_word_embeddings": true/' chatty/config.json
refused 2 "lm_head.weight is not model.embed_tokens.weight, to which config.json ties the head" --model chatty --adapter tuned --prompt ab
sed -i 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' chatty/config.json

# Keeps some experts on the device where not all fit; the answer is the same.
sample --model moe-20m --prompt abc --json --max-new-tokens 8 || { fail "experts"; cat err; }
ids >all
sample --model moe-20m --prompt abc --json --max-new-tokens 8 --device cpu:discrete --device-mem 40M || { fail "experts that are kept"; cat err; }
says out '"experts":{"kept":4,"of":32,"hits":'
ids >kept
same "experts that are kept" all kept
sample --model moe-20m --prompt abc --verbose --max-new-tokens 8 --device-mem 40M || { fail "experts that are said"; cat err; }
says out "[4 of 32 experts of a layer kept on the device: "

# Adapters trained on bytes read bytes, even beside a base with a tokenizer.
"$ltrain" --model chatty --data text --tokenizer bytes --seq-len 64 --lora r=2 --steps 1 --save-every 1 --threads 1 --device cpu --effort quick \
    --out bytes >log 2>&1 || { fail "adapters of bytes"; cat log; }
counted() { # NAME
    "$ltrain" sample --model bytes --prompt "a hat, a hat" --json --max-new-tokens 4 >out 2>err || { fail "$1"; cat err; }
    grep -q '"prompt_tokens": *12[,}]' out || fail "$1: the prompt is not read as bytes: $(cat out)"
}
counted "adapters of bytes"
rm -r bytes/hf
counted "a checkpoint of adapters of bytes"

refused 2 "--stop-at: an empty text" --model tiny --prompt a --stop-at ""
refused 2 "the prompt is empty" --model "$model" --prompt ""
refused 2 "cannot read nothing" --model "$model" --prompt-file nothing
refused 2 "both give a prompt" --model "$model" --prompt a --prompt-file prompt
for option in "system b" "chat-template chatml" "template-var a=b"; do
    refused 2 "--${option% *} is of a chat, and the prompt is read on as it is: give --chat" --model "$model" --prompt a --${option% *} ${option#* }
done
for option in "mesh dp=2" "zero 3" "alpha 0.5" "update host" "effort quick" "deterministic no"; do
    refused 2 "--${option% *} is of steps and their ranks, of which ltrain sample has none" --model "$model" --prompt a --${option% *} ${option#* }
done
refused 2 "--prompt-file: an empty name" --model "$model" --prompt-file ""
mkdir begun
printf 'model: tiny\n' >begun/config.yaml
refused 2 "--resume goes on with training; sample a run's model by --model begun" --resume begun --prompt a
refused 2 "the prompt has 12 tokens, and 8 is the longest text" --model "$model" --prompt-file prompt --seq-len 8
refused 2 "learned positions" --model "$golden/gpt2" --prompt "$(head -c 200 text | tr -d '\n')"
refused 2 "needs a tokenizer" --model "$model" --chat --prompt hello
refused 2 "runs on one rank" --model "$model" --prompt a --ranks 2
refused 2 "give --nvme-path" --model "$model" --prompt a --offload nvme
refused 3 "tokens fit" --model "$model" --prompt a --seq-len 1m --device-mem 3M --host-mem 3M
says err "on the device, of which there are 3.0 MiB (--device-mem)"
status=0
"$ltrain" --model tiny --data text --seq-len 64 --prompt hi >out 2>err || status=$?
[ $status = 2 ] || fail "training takes a prompt"
says err "--prompt is for ltrain sample"

[ $failures = 0 ] || exit 1
