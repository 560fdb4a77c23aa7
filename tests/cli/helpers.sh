# First part of every test of this folder: a directory of its own, and functions that run ltrain and check its output.
set -eu
ltrain=${LTRAIN:?}
source=${LTRAIN_SOURCE_ROOT:?}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
export XDG_CACHE_HOME="$scratch/cache" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
failures=0
fail() { echo "not ok: $1"; failures=$((failures + 1)); }

# Makes tests of several ranks ignore leaks, as Open MPI and its libraries leak.
forgive_leaks() { export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"; }

says() { # FILE TEXT
    grep -qF -- "$2" "$1" || { fail "'$2' is not in:"; cat "$1"; }
}

# Runs ltrain with its output in NAME.out; fails unless ltrain succeeds and prints nothing on stderr.
run() { # NAME ARGUMENT...
    name=$1
    shift
    "$ltrain" "$@" >"$name.out" 2>"$name.err" || { fail "ltrain $* ends with $?"; cat "$name.err"; }
    [ ! -s "$name.err" ] || { fail "ltrain $* says something on standard error"; cat "$name.err"; }
}

# Fails unless ltrain ends with 2 and one sentence that has the text.
refuse() { # TEXT ARGUMENT...
    text=$1
    shift
    status=0
    "$ltrain" "$@" >out 2>err || status=$?
    [ $status = 2 ] || fail "ltrain $* ends with $status"
    [ "$(grep -vc '^    ' err)" = 1 ] || { fail "ltrain $* says more than one sentence"; cat err; }
    says err "$text"
}

# Writes book.txt with lines that differ.
make_book() { # LINES
    awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++)
        printf "In the beginning was word %d, and the word was with number %d.\n", i, i * 37 % 101 }' >book.txt
}

# Makes a model's directory with a tokenizer and a chat template, without weights.
make_model() { # DIRECTORY
    mkdir "$1"
    cp "$source/tests/text/families/qwen2.json" "$1/tokenizer.json"
    echo '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 1000, "hidden_size": 64,
     "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "rms_norm_eps": 1e-5}' >"$1/config.json"
    cat >"$1/tokenizer_config.json" <<'END'
{"model_max_length": 1000000000000000019884624838656, "eos_token": "<|im_end|>",
 "chat_template": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"}
END
}
