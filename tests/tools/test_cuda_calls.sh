#!/bin/sh
# The plugin checks every result of CUDA, cuBLASLt and NCCL, or casts it to void; and each of their functions is made to fail by a test.
set -eu
cd "$(dirname "$0")/../.."
command -v python3 >/dev/null || { echo "no python3"; exit 77; }
python3 - <<'EOF'
import glob
import re
import sys

CALL = re.compile(r"\b((?:cuda|nccl|cublasLt)[A-Z]\w*)\(")
# functions that return a text, or nothing
TELLS = {"cudaGetErrorString", "cudaGetErrorName", "ncclGetErrorString", "ncclGetLastError", "cublasLtGetStatusString", "cublasLtGetVersion"}
LOOKS = re.compile(r"CUDA_STATUS\(|cuda_status\(|first_status\(|NCCL_STATUS\(|NCCL_BEGUN\(|settle\(|has_left\(|LT\(|\(void\)|\b(?:error|status|result) = |!= ncclSuccess")


def statements(text):
    text = re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:[^\"\\]|\\.)*\"", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    text = re.sub(r"^[ \t]*#(?:.*\\\n)*.*$", lambda m: "\n" * m[0].count("\n"), text, flags=re.M)
    line = 1
    for piece in re.split(r"(?<=[;{}])", text):
        yield line + len(piece) - len(piece.lstrip("\n")), piece.strip()
        line += piece.count("\n")


failures, called = 0, {}
for path in sorted(glob.glob("src/**/*", recursive=True)):
    if not path.endswith((".c", ".h", ".cu", ".cuh")) or path.endswith("/nccl.h"):
        continue
    for line, statement in statements(open(path).read()):
        functions = [f for f in CALL.findall(statement) if f not in TELLS]
        for f in functions if "(void)" not in statement else []:
            called.setdefault(f, set()).add(path)
        if functions and not LOOKS.search(statement):
            print(f"not ok: {path}:{line}: nobody looks at what {functions[0]} returns")
            failures += 1

# Files in which tests make every CUDA call fail: the first two by tests/engine/test_cuda.c, by the calls' names; the last by
# tests/ops/test_cuda_gemm.c, call number n of cuBLASLt for every n.
swept = {"src/device/cuda/device.c", "src/device/cuda/streams.c", "src/ops/cuda_gemm.c"}
named = open("tests/engine/test_cuda_failures.sh").read() + open("tests/engine/test_cuda_sim.c").read()
named += '"cudaLaunchKernelExC"' if '"kernel launch"' in named else "" # the simulator's has another name
for f, paths in sorted(called.items()):
    if not paths <= swept and not re.search(rf"\b{f}\b", named):
        print(f"not ok: no test makes {f} fail, which {', '.join(sorted(paths - swept))} calls")
        failures += 1
print(f"{len(called)} functions, {failures} not ok")
sys.exit(failures > 0 or len(called) < 45)
EOF
