#!/bin/bash
# tools/gpu-check.sh without a GPU: sections are counted rightly, skipped without a GPU, and stopped when they hang. A stand-in for
# nvidia-smi reports a GPU, and one for test_cuda_ops passes, fails or hangs.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0
mkdir "$folder/bin" "$folder/build"
export GPU_BUILD=$folder/build OUT=$folder/out

check() { # WHAT WANTED_STATUS WANTED_LAST_LINE
    if [ "$status" != "$2" ] || [ "$(tail -n 1 "$folder/log")" != "$3" ]; then
        echo "not ok: $1: exit status $status, printed:"
        cat "$folder/log"
        failures=$((failures + 1))
    fi
}
run() { # SECTION ...
    status=0
    PATH=$folder/bin:$PATH timeout 300 "$root/tools/gpu-check.sh" "$@" >"$folder/log" 2>&1 || status=$?
}
printf '#!/bin/sh\nexit 0\n' >"$folder/bin/python3" # the checks in Python need PyTorch
chmod +x "$folder/bin/python3"
ops_does() {
    printf '#!/bin/sh\n%s\n' "$1" >"$folder/build/test_cuda_ops"
    chmod +x "$folder/build/test_cuda_ops"
}
gpu() { # output of nvidia-smi about GPUs
    # shellcheck disable=SC2016 # the stand-in's own $1
    printf '#!/bin/sh\ncase $1 in -L) echo "%s";; *) echo 9.0;; esac\n' "$1" >"$folder/bin/nvidia-smi"
    chmod +x "$folder/bin/nvidia-smi"
}

gpu 'No devices found.'
mkdir "$OUT"
echo '{"of": "a former call"}' >"$OUT/gpu-check.json"
run ops bench-elements
check "no GPU" 0 "0 passed, 0 failed, 2 skipped"
grep -q '2 skipped' "$OUT/gpu-check.json" || { echo "not ok: figures are $(cat "$OUT/gpu-check.json")"; failures=$((failures + 1)); }
run nonsense
[ "$status" = 2 ] || { echo "not ok: an unknown section gives $status"; failures=$((failures + 1)); }

gpu 'GPU 0: a stand-in'
ops_does 'echo fine'
run ops
check "a section that passes" 0 "1 passed, 0 failed, 0 skipped"
ops_does 'exit 3'
run ops
check "a section that fails" 1 "0 passed, 1 failed, 0 skipped"
ops_does "echo lost >\"\$OUT/ops.txt\"; trap '' TERM; sleep 600 & echo \$! >$folder/child; wait" # like a process that waits for a hanging GPU
BUDGET=2 run ops
check "a section that hangs" 1 "0 passed, 1 failed, 0 skipped"
for _ in $(seq 100); do # a zombie has ended, too
    state=$(cut -d' ' -f3 "/proc/$(cat "$folder/child")/stat" 2>/dev/null || echo gone)
    case $state in gone | Z | X) break ;; esac
    sleep 0.2
done
case $state in
gone | Z | X) ;;
*)
    echo "not ok: what the hanging section had started still runs"
    kill "$(cat "$folder/child")"
    failures=$((failures + 1))
    ;;
esac
tar tzf "$OUT/gpu-check.tar.gz" | grep -q 'ops.txt$' || { echo "not ok: what a stopped section wrote is lost"; failures=$((failures + 1)); }
[ "$(find "$OUT" -type f | wc -l)" = 3 ] && grep -q "== ops: status" "$OUT/gpu-check.log" || { echo "not ok: results are $(ls "$OUT")"; failures=$((failures + 1)); }
BUDGET=10 run bench-elements
check "a benchmark without time" 0 "0 passed, 0 failed, 1 skipped"

# Training, by a stand-in for train.py: groups, shares of the time, arguments passed on.
cat >"$folder/bin/python3" <<EOF
#!/bin/sh
echo "\$@" >>$folder/asked
case \$2 in check) echo '{"cases": []}' >"\$OUT/check.json" ;; esac
exit 0
EOF
mkdir -p "$folder/pack/bin"
printf '#!/bin/sh\nexit 0\n' >"$folder/pack/ltrain"
printf '#!/bin/sh\nexec "$@"\n' >"$folder/pack/env"
printf '#!/bin/sh\necho limits alone >>%s/asked\nexit ${LIMITS_STATUS:-0}\n' "$folder" >"$folder/pack/bin/engine_limits_gpu"
chmod +x "$folder/pack/ltrain" "$folder/pack/env" "$folder/pack/bin/engine_limits_gpu"
GPU_PACK=$folder/pack run
check "training without arguments where there is a pack" 0 "8 passed, 0 failed, 1 skipped"
python3 -c 'import json, sys; sys.exit("check" not in json.load(open(sys.argv[1])))' "$OUT/gpu-check.json" || { echo "not ok: the figures of check are lost"; failures=$((failures + 1)); }
GPU_PACK=$folder/pack run second
check "the second call" 0 "5 passed, 0 failed, 0 skipped"
LIMITS_STATUS=1 GPU_PACK=$folder/pack run limits
check "limits that fail" 1 "0 passed, 1 failed, 0 skipped"
for words in "limits alone" "bench_limits.py --seconds 18" "train.py golden --seconds 50 --golden tests/golden" "train.py check --seconds 90" "train.py machine --seconds " \
    "train.py steps --seconds 90" "train.py long --seconds 200" "train.py large --seconds 250" "train.py faults --seconds 30" "train.py ranks --seconds 60" "train.py predict --seconds 250" "train.py sample --seconds 80" "train.py memcheck --seconds 50"; do
    grep -qF -- "$words" "$folder/asked" || { echo "not ok: nobody asked for $words"; failures=$((failures + 1)); }
done
GPU_PACK=$folder/pack PEERS_SHAPE=tiny PEERS_SECONDS=31 BUDGET=90 run peers predict
check "peers" 0 "2 passed, 0 failed, 0 skipped"
grep -q "peers.py --seconds 31 --shape tiny" "$folder/asked" || { echo "not ok: peers.py was not asked"; failures=$((failures + 1)); }
GPU_PACK=$folder/pack PEERS_SHAPE=tiny BUDGET=40 CASES='a|b' run peers check
check "peers without time" 0 "1 passed, 0 failed, 1 skipped"
grep -q "train.py check --seconds [1-9][0-9]* .*--cases a|b" "$folder/asked" || { echo "not ok: CASES is not passed on"; failures=$((failures + 1)); }
GPU_PACK=$folder/nothing LTRAIN='' PATH=/usr/bin:/bin run golden check
check "no ltrain" 0 "0 passed, 0 failed, 2 skipped"

# The build's C parts have all symbols that they need of each other. A stand-in for nvcc makes empty kernels. The program may lack only
# these, CUDA and the simulator, whose headers stand in for CUDA's.
if [ -n "${LTRAIN_LONG:-}" ]; then
    cat >"$folder/bin/nvcc" <<'NVCC'
#!/bin/bash
for last; do :; done
case " $* " in
*' -c '*) gcc -x c -c /dev/null -o "$last" ;;
*' -shared '*) gcc "$@" ;;
*)
    gcc "${@//-Xlinker=-rpath,/-Wl,-rpath,}" 2>&1 | grep -o 'undefined reference to .*' | sort -u |
        grep -vE '`(cuda[A-Z]|ops_cuda_|attn_sm|sim_)' && exit 1
    exit 0
    ;;
esac
NVCC
    printf '#!/bin/sh\n[ "$2" != compile ] || { shift 2; exec "$@"; }\n' >"$folder/bin/python3"
    chmod +x "$folder/bin/nvcc"
    CUDA_HOME=$root/tests/cudasim run build
    check "the build's C parts" 0 "1 passed, 0 failed, 0 skipped"
    CUDA_HOME=$root/tests/cudasim run bench-ways
    check "candidates" 0 "1 passed, 0 failed, 0 skipped"
    for source in "$root"/bench/gpu/ways/sm90_backward_*.cu; do
        name=$(basename "$source" .cu)
        [ -s "$folder/build/ways/libltrain-cuda-${name#sm90_backward_}.so" ] || { echo "not ok: no library of $source"; failures=$((failures + 1)); }
    done
fi

[ "$failures" = 0 ] && echo "ok"
[ "$failures" = 0 ]
