#!/bin/sh
# tools/ptxas.py reads ptxas' output and refuses forbidden results. A stand-in for nvcc prints the output.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

cat >"$folder/nvcc" <<'NVCC'
#!/bin/sh
cat "$SAID" >&2
for last; do :; done
while [ $# -gt 0 ]; do [ "$1" != -o ] || : >"$2"; shift; done
NVCC
chmod +x "$folder/nvcc"

kernel=_Z6kernelILi64EEvv
says() { # SPILLED_BYTES [LINE]: sets nvcc's output about the kernel
    {
        echo "ptxas info    : Compiling entry function '$kernel' for 'sm_80'"
        echo "ptxas info    : Function properties for $kernel"
        echo "    $1 bytes stack frame, $1 bytes spill stores, $1 bytes spill loads"
        echo "ptxas info    : Used 42 registers, used 1 barriers, 512 bytes smem, 400 bytes cmem[0]"
        [ $# -lt 2 ] || echo "$2"
    } >"$folder/said"
}

check() { # WHAT WANTED_STATUS SOURCE
    rm -rf "${folder:?}/out"
    mkdir -p "$folder/out"
    status=0
    out=$(SAID=$folder/said "$root/tools/ptxas.py" compile "$folder/nvcc" -c "$3" -o "$folder/out/x.cu.o" 2>&1) || status=$?
    if [ "$status" != "$2" ]; then
        echo "not ok: $1: exit status $status, printed '$out'"
        failures=$((failures + 1))
    fi
}

says 0
check "a clean kernel" 0 src/attention/sm80_forward.cu
record=$("$root/tools/ptxas.py" collect "$folder/out")
case $record in
*'"registers": 42'*'"static_shared_bytes": 512'*) ;;
*) echo "not ok: recorded '$record'"; failures=$((failures + 1)) ;;
esac
kernel=_Z4eachIL4gate1EfEvPT0_ # void each<(gate)1, float>(float*)
says 0
check "a template over an enumeration" 0 src/ops/gelu.cu
record=$("$root/tools/ptxas.py" collect "$folder/out")
case $record in
*'"each<(gate)1, float>"'*) ;;
*) command -v c++filt >/dev/null && { echo "not ok: recorded '$record'"; failures=$((failures + 1)); } ;;
esac
kernel=_Z6kernelILi64EEvv
says 8
check "spills in attention" 1 src/attention/sm80_forward.cu
[ ! -e "$folder/out/x.cu.o" ] || { echo "not ok: the object of a refused kernel is left"; failures=$((failures + 1)); }
check "spills elsewhere are recorded" 0 src/ops/embed.cu
kernel=_Z6kernelILi64ELi256EEvv says 8
check "spills at head dim 64 with 256 elsewhere" 1 src/attention/sm80_backward.cu
kernel=_Z6kernelILi256ELi64EEvv says 8
check "spills at head dim 256 backward are recorded" 0 src/attention/sm80_backward.cu
check "spills at head dim 256 forward" 1 src/attention/sm80_forward.cu
kernel=_Z6kernelI5shapeILi64ELi256EEEvv says 8
check "spills at head dim 64 of a shape" 1 src/attention/sm90_backward.cu
for code in C7508 C7510 C7511 C7512 C7514 C7517 C7519; do
    says 0 "ptxas info    : ($code) something about wgmma"
    check "$code" 1 src/attention/sm90_forward.cu
done
says 0 "x.cu(3): warning #177-D: variable was declared but never referenced"
check "a warning" 1 src/ops/add.cu
[ "$failures" = 0 ] && echo "ok"
[ "$failures" = 0 ]
