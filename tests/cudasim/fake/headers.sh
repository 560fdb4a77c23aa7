#!/bin/sh
# Compiles the plugin's C files with the CUDA toolkit's own headers, if they are installed: constants, types and prototypes of the replacement
# headers in tests/cudasim/include must agree with CUDA's. `headers.sh SOURCES BUILD`; exits with 77 (skipped) without a toolkit.
set -eu
cuda=${CUDA_HOME:-/usr/local/cuda}
[ -f "$cuda/include/cuda_runtime.h" ] || { echo "skipped: no CUDA toolkit in $cuda"; exit 77; }
both=$(mktemp -d)
trap 'rm -rf "$both"' EXIT
flags="-std=c11 -D_GNU_SOURCE -Wall -Wextra -Wshadow -Werror -fsyntax-only -I $1/src -I $2"
for file in src/device/cuda/device src/device/cuda/streams src/ops/cuda_gemm tests/cudasim/fake/cublaslt; do
    ${CC:-cc} $flags -I "$1/tests/cudasim/fake" -isystem "$cuda/include" "$1/$file.c"
done
# NCCL's own header is used if it is installed with the toolkit, else ours.
for file in src/device/cuda/libraries src/comm/cuda_nccl tests/cudasim/fake/nccl; do
    ${CC:-cc} $flags -I "$1/tests/cudasim/fake" -isystem "$cuda/include" -isystem "$1/src/device/cuda/nccl" "$1/$file.c"
done
# Constants that the C files use must have the same numbers in our headers and in the toolkit's.
words='cuda[A-Z][A-Za-z]*|CUBLAS(LT)?_[A-Z0-9_]+|CUDA_R_[0-9A-Z]+|nccl[A-Z][A-Za-z0-9]*|NCCL_UNIQUE_ID_BYTES'
grep -ohE "\b($words)\b" "$1"/src/device/cuda/*.[ch] "$1"/src/ops/cuda_gemm.c "$1"/src/comm/cuda_nccl.c "$1"/tests/cudasim/fake/*.c | sort -u >"$both/words"
grep -ohE "^ +($words) = [0-9]+" "$1/tests/cudasim/include/cuda_runtime.h" "$1/tests/cudasim/include/cublasLt.h" "$1/src/device/cuda/nccl/nccl.h" | sed 's/^ *//; s/ = / /' |
    sort -u >"$both/numbers"
{
    echo '#include <cublasLt.h>'
    echo '#include <nccl.h>'
    join "$both/words" "$both/numbers" | sed 's/\(.*\) \(.*\)/_Static_assert((int)\1 == \2, "\1");/'
} >"$both/numbers.c"
[ "$(grep -c assert "$both/numbers.c")" -ge 50 ] || { echo "not ok: constants are not found"; exit 1; }
# shellcheck disable=SC2086 # a list of words
${CC:-cc} $flags -isystem "$cuda/include" -isystem "$1/src/device/cuda/nccl" "$both/numbers.c"
echo "$(grep -c assert "$both/numbers.c") constants are CUDA's"
