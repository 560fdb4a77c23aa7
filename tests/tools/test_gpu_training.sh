#!/bin/bash
# The training sections of tools/gpu-check.sh, for real, on the fake GPU: GPUs are seldom at hand, and the checks themselves must not fail
# then. A stand-in for nvidia-smi reports two GPUs, and a folder of links stands for gpu-pack.sh's package. Then GPUs fail, and the sections
# must say so. LTRAIN_BUILD names the build (build-release or build).
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
build=''
for b in ${LTRAIN_BUILD:-} build-release build; do
    [ -n "$build" ] || [ ! -f "$b/tests/cudasim/fake/libltrain-cuda-twin.so" ] || build=$(cd "$b" && pwd)
done
[ -n "$build" ] || { echo "skipped: no build with the fake GPU"; exit 77; }
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0
fail() {
    echo "not ok: $*"
    failures=$((failures + 1))
}
PYTHONPYCACHEPREFIX=$folder/cache python3 -m py_compile bench/gpu/*.py tools/*.py || fail "a script is no Python"

mkdir -p "$folder/bin" "$folder/pack/bin"
printf '#!/bin/sh\nprintf "GPU 0: a stand-in\\nGPU 1: another\\n"\n' >"$folder/bin/nvidia-smi"
printf '#!/bin/sh\nexec "$@"\n' >"$folder/pack/env"
printf '#!/bin/sh\nexec "%s" "$@"\n' "$build/src/cli/ltrain" >"$folder/pack/ltrain"
chmod +x "$folder/bin/nvidia-smi" "$folder/pack/env" "$folder/pack/ltrain"
ln -s "$build/src/cli/ltrain" "$build/tests/engine/engine_golden_gpu" "$folder/pack/bin/"
cat docs/*.md >"$folder/pack/books.txt"
export PATH=$folder/bin:$PATH GPU_PACK=$folder/pack GPU_BUILD=$folder/build OUT=$folder/out TMPDIR=$folder TRAIN_OPTIONS='--size small'
export LTRAIN_CUDA_PLUGIN=$build/tests/cudasim/fake/libltrain-cuda-twin.so OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset LTRAIN LTRAIN_TEXT

run() { # GPU WANTED_LAST_LINE SECTION [CASES]
    LTRAIN_FAKE_CUDA=$1 CASES=${4:-} tools/gpu-check.sh "$3" >"$folder/log" 2>&1 || true
    [ "$(tail -n 1 "$folder/log")" = "$2" ] || { cat "$folder/log"; fail "$3, of a GPU with $1: not '$2'"; }
}
figure() { # WHAT EXPRESSION: of `cases`, those of the section by name
    python3 -c "
import json, sys
section = [v for k, v in json.load(open('$OUT/gpu-check.json')).items() if k != 'summary'][0]
cases = {c['case']: c for c in section['cases']}
sys.exit(not ($2))" || { cat "$OUT/gpu-check.json"; fail "the figures have not $1"; }
}
whole='1 passed, 0 failed, 0 skipped' broken='0 passed, 1 failed, 0 skipped'
ranks=1
ldd "$build/src/cli/ltrain" | grep -q libmpi || ranks=0

run seed=1 "$whole" machine
run seed=2 "$whole" golden '^(llama-gqa|gpt2|lora-qwen3)$'
figure "three models" "len(cases) == 3 and all(c['passed'] for c in cases.values())"
run seed=3 "$whole" check
figure "all cases, and memory as planned" "len(cases) >= 9 and all(c['passed'] for c in cases.values()) and cases['planned memory']['percent'] == 100"
run seed=4 "$whole" steps
figure "a step's time by op" "all(c['passed'] and c['planned'] > 0 and c['measured'] > 0 and len(c['by_op']) > 10 and len(c['submitting']) > 5 for c in cases.values())"
run seed=5 "$whole" faults
figure "what is refused, said and resumed" "len(cases) >= 5 and all(c['passed'] for c in cases.values())"
run seed=6 "$whole" sample
figure "tokens" "cases['the best 32 tokens']['same'] == 32 and all(c['passed'] for c in cases.values())"
run seed=7 "$whole" predict
if [ $ranks = 1 ]; then
    run seed=8 "$whole" ranks
    figure "ranks that share a card" "len(cases) == 4 and all(c['passed'] for c in cases.values())"
    run seed=9,devices=2 "$whole" nccl
    figure "NCCL" "len(cases) >= 5 and all(c['passed'] for c in cases.values()) and cases['2 cards, by NCCL and staged']['nccl_seconds'] > 0 and 'has died' in cases['2 cards, a rank that dies']['said']"
fi

# The section `peers`: ltrain's part; the other part needs PyTorch.
LTRAIN_FAKE_CUDA=seed=1 python3 bench/gpu/peers.py --no-peers --shape tiny --lengths 256,512 --seconds 200 --text "$folder/pack/books.txt" \
    --ltrain "$folder/pack/ltrain" --options '--device cuda --threads 1 --effort quick' >"$folder/log" 2>&1 || fail "peers.py: $(cat "$folder/log")"
[ "$(grep -Ec '^ +(256|512) tokens +ltrain +[0-9]+ tok/s' "$folder/log")" = 2 ] || fail "peers.py has no rates: $(cat "$folder/log")"

# GPUs fail in each way that a section looks for.
run seed=1,dies=800:719 "$broken" check '^tiny 256 nvme'
tar xzOf "$OUT/gpu-check.tar.gz" sections/failures.log | grep -q cudaErrorLaunchFailure || fail "what a failing case printed is lost"
run seed=1,grows=800:3M "$broken" check 'planned memory'
run seed=1,dies=800:719 "$broken" steps
run seed=1,dies=800:719 "$broken" golden 'llama-gqa'
run seed=1,devices=0 "$broken" machine

[ "$failures" = 0 ] && echo ok
[ "$failures" = 0 ]
