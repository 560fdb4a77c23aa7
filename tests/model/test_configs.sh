#!/bin/sh
# Published configurations (configs/*/config.json, their contents as public): each is planned, without a warning about keys. One
# of each kind at 8k tokens on a given mesh by default, all of them at 128k with LTRAIN_LONG=1. `test_configs.sh LTRAIN`.
set -eu
ltrain=$1 dir=$(dirname "$0")/configs out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
quick='Llama-3.3-70B-Instruct Mistral-Small-24B-Base-2501 Qwen2.5-72B-Instruct Qwen3-32B SmolLM3-3B Phi-4-mini-instruct gemma-2-27b
gemma-3-1b-it Olmo-3-1025-7B granite-3.1-8b-base GLM-4-9B-0414 starcoder2-7b pythia-1.4b c4ai-command-r7b-12-2024 gemma-3-4b-it Ministral-3-3B-Base-2512
Seed-OSS-36B-Instruct EXAONE-4.0-32B ERNIE-4.5-0.3B-PT gemma-7b falcon-40b'
failed=0 planned=0 length=8k mesh='--mesh dp=8'
[ "${LTRAIN_LONG:-0}" != 1 ] || length=128k mesh=''
for config in "$dir"/*/config.json; do
    model=$(dirname "$config") name=$(basename "$(dirname "$config")")
    if [ "${LTRAIN_LONG:-0}" != 1 ]; then
        echo "$quick" | tr '\n' ' ' | grep -qw -- "$name" || continue
    fi
    planned=$((planned + 1))
    # shellcheck disable=SC2086 # --mesh is two words
    if ! "$ltrain" plan --model "$model" --seq-len $length $mesh --machine 8xh200 --dtype bf16 --effort quick --strict-config >"$out/plan" 2>&1; then
        echo "not ok: $name: $(tail -1 "$out/plan")"
        failed=1
    elif ! grep -q "^rope: base" "$out/plan"; then
        echo "not ok: $name: no line about its positions"
        failed=1
    fi
done
[ "$planned" -ge 12 ] || { echo "not ok: only $planned configurations"; exit 1; }
exit $failed
