#!/bin/bash
# Tests and measures ltrain on a machine with an NVIDIA GPU: `tools/gpu-check.sh [SECTION ...]`. Default: the group `training` if there is a
# folder or archive made by tools/gpu-pack.sh (GPU_PACK, else .gpu-pack), otherwise `kernels`. A group of sections takes nine minutes at most:
#   kernels    needs the CUDA toolkit, gcc, Python and PyTorch (no Debian packages, no meson):
#     build      nvcc and gcc, for this GPU (without a GPU: for GPU_ARCH, 90 unless set)
#     ops        every op's kernel against its CPU twin; tensors of more than 2^31 elements
#     attention  flash attention against fp64 in PyTorch: masks, GQA, head dims, values wider and narrower than
#                keys, odd lengths, both backward modes, determinism
#     sanitizer  compute-sanitizer (memcheck, racecheck) on small shapes, if it is installed
#     bench-attention, bench-elements   speed compared with PyTorch's cuDNN and flash backends; with a device copy
#     experts    (by name only, after build) ops of experts against their CPU twins; their products beside PyTorch's dense ones
#     hybrid     (by name only, after build) ops of linear attention against their CPU twins; scans beside a dense product and fla; with the
#                folder of gpu-pack.sh, golden models of hybrids
#     bench-ways   (by name only, after build) candidates for Hopper's backward attention (bench/gpu/ways) compared with the kernel and cuDNN
#   training   needs the folder of gpu-pack.sh, or a program named by LTRAIN; and Python. The most informative sections come first:
#     machine    driver, libraries, limits; then the full output of three steps of a tiny model, and the driver's messages if they fail
#     golden     models of tests/golden against PyTorch in fp64, with three placements
#     products   every distinct product of 25m, 1b and 8b against fp64; same bits when repeated and at other addresses; rates
#     check      25m with none, cpu, nvme and mixed: equal bits; chaos mode; memory as planned; moments, adapters
#     steps      25m at 64k, 1b at 32k and 4k, planned from the data sheet: share of hidden transfers, cost of submission, time of a step by op
#     faults     refused requests; a signal, a resume
#     memcheck   two steps under compute-sanitizer
#     long       1b at 128k, offloaded and resident: equal results; MFU
#     large      1b with none, cpu, nvme and mixed: equal bits
#   second     for a second call:
#     predict    --profile, then predicted against measured steps: 25m 64k, 1b 32k and 128k offloaded and resident, 8b 32k
#     ranks      2 and 4 ranks on one GPU, with staged messages, against one rank
#     sample     greedy tokens compared with the CPU's; tokens per second of a 1b, prompt and generated
#     nccl       one GPU per rank with messages by NCCL, against one rank and against staged messages; skipped if there is only one GPU
#     limits     memory used by opening the device and by NCCL, pinning, calls, NCCL with a single rank; speed of products by shape, and of
#                copies in each direction, in both, and during products (PyTorch)
#   peers      PyTorch + transformers compared with ltrain, by length (PEERS_SHAPE: 1b unless set; PEERS_SECONDS: all remaining time unless set)
# CASES: a regular expression; sections of `training` run only the cases whose names match (`CASES='int8|illegal' tools/gpu-check.sh check faults`).
# Results are in $OUT (build-gpu/out unless set) and updated after each section: gpu-check.log, the printed output; gpu-check.json, all
# sections' figures; gpu-check.tar.gz, their files, and in failures.log the output of failing cases. The whole run stays below BUDGET seconds
# (520 unless set): the benchmarks share the time that the checks leave. The last line is `N passed, N failed, N skipped`, counting sections.
set -u
cd "$(dirname "$0")/.." || exit 2

started=$SECONDS
budget=${BUDGET:-520}
build=${GPU_BUILD:-build-gpu}
export PYTHONUNBUFFERED=1 LTRAIN_PTXAS=warn # warnings only: meson's build is the strict one
case $build in /*) ;; *) build=$PWD/$build ;; esac
export LTRAIN_GPU_BUILD=$build
results=${OUT:-$build/out} # three files only: the transfer of results may be limited to few
export OUT=$build/sections
rm -rf "$OUT"
mkdir -p "$results" "$OUT" || exit 2
rm -f "$results/gpu-check.json" "$results/gpu-check.tar.gz" # files of an earlier call
log=$results/gpu-check.log
: >"$log"
kernels='build ops attention sanitizer bench-attention bench-elements'
training='machine golden products check steps faults memcheck long large'
second='predict ranks sample nccl limits'
pack=${GPU_PACK:-.gpu-pack}
if [ -f "$pack.tar.gz" ] && [ ! -e "$pack" ]; then # gpu-pack.sh's archive, not yet unpacked
    mkdir -p "$build/pack" && tar xzf "$pack.tar.gz" -C "$build/pack" --strip-components=1 && pack=$build/pack
fi
[ ! -x "$pack/ltrain" ] || pack=$(cd "$pack" && pwd)
sections=''
[ $# -gt 0 ] || { if [ -x "$pack/ltrain" ]; then set -- training; else set -- kernels; fi; }
for s in "$@"; do
    case " $kernels bench-ways experts hybrid $training $second peers kernels training second " in
    *" $s "*) ;;
    *) sed -n '2,/^set -u/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
    case $s in
    kernels) sections="$sections $kernels" ;;
    training) sections="$sections $training" ;;
    second) sections="$sections $second" ;;
    *) sections="$sections $s" ;;
    esac
done

cuda=${CUDA_HOME:-/usr/local/cuda}
nvcc=$(command -v nvcc || echo "$cuda/bin/nvcc")
python=$(command -v python3)
smi=$(command -v nvidia-smi) || for smi in /usr/local/nvidia/bin/nvidia-smi /usr/lib/wsl/lib/nvidia-smi nvidia-smi; do [ ! -x "$smi" ] || break; done
export GPU_SMI=$smi
has_gpu() { "$smi" -L 2>/dev/null | grep -q GPU || [ -c /dev/nvidia0 ]; }
arch=''
! has_gpu || arch=$("$smi" --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '. ')
case $arch in '' | *[!0-9]*) arch=${GPU_ARCH:-90} ;; esac # nvidia-smi may have printed an error
[ ! -c /dev/nvidia0 ] || { exec 8</dev/nvidia0; } 2>/dev/null || true # while the device is open, the driver need not start again for each process
remaining() { echo $((budget - (SECONDS - started))); }

# Builds a library with every kernel as machine code for this GPU, and the tests --------------------------------------------------------
compile_kernel() { # SOURCE
    local target=$arch object
    case $(basename "$1") in sm90_*) target=90a ;; esac
    object=$build/$(echo "${1#src/}" | tr / _).o
    if [ "$object" -nt "$1" ] && [ -z "$(find src -newer "$object" \( -name '*.cuh' -o -name '*.h' \) -print -quit)" ] && [ -f "$object" ]; then return; fi
    "$python" tools/ptxas.py compile "$nvcc" -std=c++17 -O3 -lineinfo -Xcompiler=-fPIC -Isrc \
        "-gencode=arch=compute_$target,code=sm_$target" -c "$1" -o "$object" || { echo "gpu-check: $1 does not compile" >&2; return 255; }
}
section_build() {
    [ -x "$nvcc" ] || { echo "no nvcc: put it on PATH or set CUDA_HOME"; return 1; }
    export -f compile_kernel
    export arch build nvcc python
    find src -name '*.cu' | sort | xargs -P "$(nproc)" -I{} bash -c 'compile_kernel {}' || return 1
    "$python" tools/ptxas.py collect "$build" "$OUT/ptxas.json" || return 1
    local flags=(-std=c11 -D_GNU_SOURCE -O2 -fPIC -fopenmp -ffp-contract=off -fno-math-errno -Isrc -I"$cuda/include" -Itests/cudasim) f
    # First the library's tables and dispatchers, then the CPU twins.
    mkdir -p "$build/c" "$build/test"
    rm -f "$build"/c/* "$build"/test/*
    for f in src/ops/cuda_table.c src/attention/cuda_*.c src/recurrence/cuda_*.c src/base/{status,blocks8,nf4}.c src/program/op.c; do
        gcc "${flags[@]}" -c "$f" -o "$build/c/$(echo "$f" | tr / _).o" || return 1
    done
    for f in tests/cudasim/ops_*.c src/base/{rng,isa,rows8}.c $(find src/ops src/recurrence -name '*.c' ! -name 'cuda_*' | sort); do
        gcc "${flags[@]}" -c "$f" -o "$build/test/$(echo "$f" | tr / _).o" || return 1
    done
    "$nvcc" -shared "$build"/*.cu.o "$build"/c/*.o -o "$build/libltrain-cuda.so" || return 1
    "$nvcc" "$build"/test/*.o "$build/libltrain-cuda.so" -Xlinker=-rpath,"$build" -lgomp -lm -o "$build/test_cuda_ops" || return 1
    gcc -std=c11 -Isrc bench/gpu/layout.c -o "$build/layout" && "$build/layout" >"$build/layout.json" || return 1
    "$python" bench/gpu/kernels.py
}

section_ops() { "$build/test_cuda_ops" && "$python" bench/gpu/check_large.py; }
section_experts() {
    "$build/test_cuda_ops" routes pairs travel experts && "$python" bench/gpu/bench_experts.py --seconds "$(($1 > 50 ? $1 - 40 : 10))"
}
section_hybrid() {
    "$build/test_cuda_ops" convolutions decays scans summaries && "$python" bench/gpu/bench_scans.py --seconds "$(($1 > 60 ? $1 - 50 : 10))" || return 1
    local name
    for name in ${golden_program:+hybrid/qwen3_5 hybrid/qwen3_next hybrid/bamba hybrid/nemotron-h hybrid/kimi-linear}; do
        LTRAIN_GOLDEN=$golden $golden_program "$name" || return 1
    done
}
section_attention() { "$python" bench/gpu/check_attention.py; }
section_sanitizer() {
    local tool
    tool=$(command -v compute-sanitizer || echo "$cuda/bin/compute-sanitizer")
    [ -x "$tool" ] || { echo "compute-sanitizer is not here"; return 77; }
    # A run that does not finish in its time is reported, but does not count as a failure: racecheck is slow, and the benchmarks need time, too.
    local until=$((SECONDS + 100)) status
    run_tool() { # TOOL COMMAND...
        local left=$((until - SECONDS))
        [ "$left" -gt 5 ] || { echo "sanitizer: no time left for $*"; return 0; }
        timeout "$((left < 40 ? left : 40))" "$tool" --tool "$1" --error-exitcode 9 --print-limit 5 "${@:2}"
        status=$?
        [ "$status" != 124 ] || { echo "sanitizer: not finished in time: $*"; return 0; }
        return "$status"
    }
    run_tool memcheck "$python" bench/gpu/check_attention.py --small &&
        run_tool memcheck "$build/test_cuda_ops" embedding rope columns update &&
        run_tool racecheck "$build/test_cuda_ops" columns rope &&
        run_tool memcheck "$build/test_cuda_ops" moves elements norms loss
}
# Training with the folder that gpu-pack.sh made, else with an installed ltrain ---------------------------------------------------------
if [ -x "$pack/ltrain" ]; then
    export LTRAIN=${LTRAIN:-$pack/ltrain} LTRAIN_TEXT=${LTRAIN_TEXT:-$pack/books.txt}
    golden=tests/golden golden_program="$pack/env $pack/bin/engine_golden_gpu"
else
    export LTRAIN=${LTRAIN:-$(command -v ltrain)} LTRAIN_TEXT=${LTRAIN_TEXT:-$build/books.txt}
    golden=tests/golden golden_program=${GOLDEN_PROGRAM:-}
    [ -f "$LTRAIN_TEXT" ] || find src docs -name '*.[ch]' -o -name '*.md' | LC_ALL=C sort | xargs cat >"$LTRAIN_TEXT"
fi
scratch=${TMPDIR:-/tmp} # folder for files on drives, which must not be in memory
case $(stat -f -c %T "$scratch" 2>/dev/null) in tmpfs | ramfs) scratch=$build ;; esac
train() { # SECTION [ARGUMENT ...]: train.py
    [ -n "$LTRAIN" ] || { echo "there is no ltrain: set LTRAIN, or GPU_PACK to a folder that tools/gpu-pack.sh made"; return 77; }
    # shellcheck disable=SC2086 # options
    "$python" bench/gpu/train.py "$@" --scratch "$scratch" ${CASES:+--cases "$CASES"} ${TRAIN_OPTIONS:-}
}
# Describes the machine as far as steps depend on it; then runs three steps and prints the driver's messages if they fail.
section_machine() {
    local file until=$((SECONDS + $1))
    facts 2>&1
    [ -n "$LTRAIN" ] || { echo "there is no ltrain: set LTRAIN, or GPU_PACK to a folder that tools/gpu-pack.sh made"; return 77; }
    echo "-- ltrain"
    $LTRAIN --version
    if [ -f "$pack/bin/libltrain-cuda.so" ]; then
        for file in "$pack/bin/libltrain-cuda.so" "$pack/bin/ltrain"; do
            "$pack/env" ldd "$file" 2>&1 | grep -E 'not found|not a dynamic' && echo "in $file"
        done
    fi
    train machine --seconds "$((until - SECONDS > 5 ? until - SECONDS : 5))"
}
facts() {
    echo "-- system: $(date -u +%FT%TZ), $(uname -srm), $(sed -n 's/^PRETTY_NAME=//p' /etc/os-release), $(ldd --version 2>&1 | head -n 1)"
    echo "-- $(nproc) processors, $(grep -E '^(MemTotal|MemAvailable|HugePages_Total)' /proc/meminfo | tr -s ' ' | tr '\n' ' ')"
    echo "-- memlock $(ulimit -l), files $(ulimit -n), address space $(ulimit -v), cgroup $(cat /sys/fs/cgroup/memory.max 2>/dev/null || echo unknown), huge pages $(cat /sys/kernel/mm/transparent_hugepage/enabled 2>/dev/null)"
    df -hT . "${TMPDIR:-/tmp}" /dev/shm
    "$smi"
    "$smi" --query-gpu=name,driver_version,compute_cap,compute_mode,persistence_mode,memory.total,memory.used,ecc.errors.uncorrected.volatile.total,pcie.link.gen.current,pcie.link.width.current,clocks.max.sm --format=csv
    ls -l /dev/nvidia* 2>&1
    for file in python3 nvcc compute-sanitizer mpiexec; do echo "-- $file: $(command -v $file)"; done
    env | grep -E '^(CUDA|NVIDIA|NCCL|LD_|PYTHONPATH|VIRTUAL_ENV|CONDA|OMP|OMPI|TMPDIR)' | sort
    ldconfig -p 2>/dev/null | grep -E 'libcuda\.so|libcublasLt|libnccl|libcudart'
    "$python" -c 'import glob, site, sys; print(sys.version, *[f for d in site.getsitepackages() for f in glob.glob(d + "/nvidia/*/lib/lib*so*") if "cublasLt" in f or "nccl" in f], sep="\n")'
    dmesg 2>/dev/null | grep -iE 'nvrm|xid' | tail -n 5
}
section_limits() {
    local failed=0
    [ ! -x "$pack/bin/engine_limits_gpu" ] || timeout -k 5 $(($1 / 2)) "$pack/env" "$pack/bin/engine_limits_gpu" || failed=1
    "$python" bench/gpu/bench_limits.py --seconds "$(($1 > 44 ? $1 - 32 : 12))" && return $failed
}
section_products() {
    [ -x "$pack/bin/engine_products_gpu" ] || { echo "the program of products comes with tools/gpu-pack.sh"; return 77; }
    local failed=0 tried=0 model left until=$((SECONDS + $1))
    for model in '25m 16384' '1b 16384' '8b 8192'; do
        left=$(((until - SECONDS) * 2 / 3))
        [ "$left" -ge 3 ] || { echo "no time left for products of ${model% *}"; continue; }
        tried=1
        # shellcheck disable=SC2086 # two arguments
        timeout -k 5 "$left" "$pack/env" "$pack/bin/engine_products_gpu" $model >"$OUT/products-${model% *}.txt" 2>&1 || failed=1
        tail -n 60 "$OUT/products-${model% *}.txt"
    done
    [ "$tried" = 1 ] || return 77
    return $failed
}
section_golden() {
    [ -n "$golden_program" ] || { echo "the program of golden data comes with tools/gpu-pack.sh"; return 77; }
    train golden --seconds "$1" --golden "$golden" --golden-program "$golden_program"
}
section_check() { train check --seconds "$1"; }
section_faults() { train faults --seconds "$1" --golden "$golden" --golden-program "$golden_program"; }
section_ranks() { train ranks --seconds "$1"; }
section_nccl() { train nccl --seconds "$1"; }
section_steps() { train steps --seconds "$1"; }
section_long() { train long --seconds "$1"; }
section_large() { train large --seconds "$1"; }
section_predict() { train predict --seconds "$1"; }
section_sample() { train sample --seconds "$1"; }
section_memcheck() { train memcheck --seconds "$1"; }
section_peers() { "$python" bench/gpu/peers.py --seconds "$1" --shape "${PEERS_SHAPE:-1b}" --text "$LTRAIN_TEXT" --ltrain "$LTRAIN"; }
share_of() { # SECTION: its seconds of a call
    case $1 in
    faults) echo 30 ;;
    golden | memcheck | limits) echo 50 ;;
    machine | products | ranks | nccl) echo 60 ;;
    experts) echo 100 ;;
    hybrid) echo 150 ;;
    sample) echo 80 ;;
    check | steps) echo 90 ;;
    long) echo 200 ;;
    predict | large) echo 250 ;;
    esac
}

section_bench-attention() { "$python" bench/gpu/bench_attention.py --seconds "$1"; }
# Builds variants of libltrain-cuda.so, each with another file in place of sm90_backward.cu, and measures them.
section_bench-ways() {
    local until=$((SECONDS + $1)) source name object rest
    [ "$arch" = 90 ] || { echo "not a Hopper"; return 77; }
    export -f compile_kernel
    export arch nvcc python
    mkdir -p "$build/ways"
    printf '%s\n' bench/gpu/ways/*.cu | build=$build/ways xargs -P "$(nproc)" -I{} bash -c 'compile_kernel {}' || return 1
    "$python" tools/ptxas.py collect "$build/ways" "$OUT/ptxas_ways.json" || return 1
    rest=$(find "$build" -maxdepth 1 -name '*.cu.o' ! -name attention_sm90_backward.cu.o)
    for source in bench/gpu/ways/*.cu; do
        name=$(basename "$source" .cu) object=$build/ways/$(echo "$source" | tr / _).o
        # shellcheck disable=SC2086 # objects
        "$nvcc" -shared $rest "$object" "$build"/c/*.o -o "$build/ways/libltrain-cuda-${name#sm90_backward_}.so" || return 1
    done
    "$python" bench/gpu/bench_ways.py --seconds "$((until - SECONDS))"
}
section_bench-elements() { "$python" bench/gpu/bench_elements.py --seconds "$1"; }

# Copies the results so far to $results, so that they are complete whenever this script is ended.
bring_home() {
    local file
    {
        printf '{"summary": "%s passed, %s failed, %s skipped"' "$passed" "$failed" "$skipped"
        for file in "$OUT"/*.json; do
            [ ! -s "$file" ] || { printf ',\n"%s": ' "$(basename "$file" .json)" && cat "$file"; }
        done
        printf '}\n'
    } >"$build/gpu-check.json" && mv "$build/gpu-check.json" "$results/"
    tar czf "$build/gpu-check.tar.gz" -C "$build" sections && mv "$build/gpu-check.tar.gz" "$results/"
}
say() { echo "$*" | tee -a "$log"; }
skip() { # SECTION WHY
    say "== $1: skipped, $2"
    skipped=$((skipped + 1))
    bring_home
}

passed=0 failed=0 skipped=0
for s in $sections; do
    begun=$SECONDS
    case $s in
    build) within=$budget give='' ;;
    bench-*) # the remaining time less a reserve; attention gets three quarters of it if the elements follow
        give=$(($(remaining) - 15))
        case "$s $sections" in bench-attention*bench-elements*) give=$((give * 3 / 4)) ;; esac
        [ "$give" -ge 20 ] || { skip "$s" "$(remaining) s left of $budget"; continue; }
        within=$((give + 10)) ;;
    peers) # the remaining time less a reserve, but at least what CUDA and PyTorch need to start
        give=$(($(remaining) - 15))
        [ "$give" -le "${PEERS_SECONDS:-$give}" ] || give=$PEERS_SECONDS
        [ "$give" -ge 30 ] || { skip "$s" "$(remaining) s left of $budget"; continue; }
        within=$((give + 10)) ;;
    *)
        within=$(remaining) give=$(share_of "$s")
        if [ -n "$give" ]; then
            [ $# -gt 1 ] || [ "$s" != "$1" ] || give=$within # no other section is requested
            [ "$give" -lt $((within - 5)) ] || give=$((within - 5))
            [ "$give" -ge 10 ] || { skip "$s" "$(remaining) s left of $budget"; continue; }
            within=$((give + 5))
        fi ;;
    esac
    if [ "$s" != build ] && ! has_gpu; then
        skip "$s" "no GPU"
        continue
    fi
    say "== $s"
    ( # in its own process group, so that a section that hangs can be ended with all its processes
        set -m
        "section_$s" "$give" 2>&1 &
        child=$!
        { sleep "$within"; echo "gpu-check: $s is stopped after $within s"; kill -TERM -- "-$child"; } 2>/dev/null &
        clock=$!
        wait "$child"
        status=$?
        kill -TERM -- "-$clock" 2>/dev/null
        for _ in 1 2 3 4 5 6 7 8 9 10; do # processes that it left must not keep the GPU: ranks end on SIGTERM, hanging processes do not
            kill -TERM -- "-$child" 2>/dev/null || break
            sleep 0.5
        done
        kill -KILL -- "-$child" 2>/dev/null
        exit "$status"
    ) | tee -a "$log"
    status=${PIPESTATUS[0]}
    say "== $s: status $status, $((SECONDS - begun)) s"
    case $status in 0 | 77) ;; *) dmesg 2>/dev/null | grep -iE 'nvrm|xid' | tail -n 5 | tee -a "$log" ;; esac
    case $status in
    0) passed=$((passed + 1)) ;;
    77) skipped=$((skipped + 1)) ;;
    *) failed=$((failed + 1)) ;;
    esac
    bring_home
    [ "$s" != build ] || [ "$status" = 0 ] || break # without a build nothing can run
done
say "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
