#!/bin/sh
# How long the largest public shape of each family takes to plan at 128k tokens: `bench/planner/families.sh LTRAIN`. Seconds on the clock and of
# the processor: on a machine that does other things the latter tell more, for planning has one thread.
set -eu
ltrain=$1 dir=$(dirname "$0")/../../tests/model/configs
echo "machine: $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg)"
printf '%-40s %8s %8s %8s\n' 'plan --seq-len 128k --machine 8xh200 bf16' 'clock s' 'cpu s' 'peak MB'
for name in Llama-3.3-70B-Instruct Mistral-Small-24B-Base-2501 Qwen2.5-72B-Instruct Qwen3-32B SmolLM3-3B phi-4 gemma-2-27b gemma-3-27b-it \
    Olmo-3-1025-7B granite-3.1-8b-base GLM-4-9B-0414 starcoder2-7b gpt-neox-20b c4ai-command-r-v01 c4ai-command-a-03-2025 \
    Ministral-3-14B-Base-2512; do
    figures=$( { /usr/bin/time -f '%e %U %S %M' "$ltrain" plan --model "$dir/$name" --seq-len 128k --machine 8xh200 --dtype bf16 >/dev/null; } 2>&1 | tail -1)
    echo "$figures" | awk -v name="$name" '{ printf "%-40s %8.1f %8.1f %8.0f\n", name, $1, $2 + $3, $4 / 1024 }'
done
