#!/bin/sh
# Installs the software that benches compare with, in a virtual environment: bench/perf/peers.sh [DIRECTORY, default ~/.cache/ltrain/peers]
# PyTorch and transformers, and DeepSpeed if possible (optional, as is fio: benches skip what is missing). 5 GB, a few minutes.
set -eu
[ "${1:-}" != --help ] || { sed -n '2,3s/^# //p' "$0"; exit; }
dir=${1:-${LTRAIN_PEERS:-$HOME/.cache/ltrain/peers}}
mkdir -p "$dir"
exec 9> "$dir/.lock"
flock 9 # one installation at a time
[ -x "$dir/bin/python" ] || python3 -m venv "$dir"
"$dir/bin/python" -c 'import torch, transformers' 2> /dev/null ||
  "$dir/bin/pip" install --quiet torch==2.13.0 transformers numpy
# DeepSpeed compiles its CPU Adam and its async I/O (libaio-dev) on first use, with ninja; neither needs CUDA.
"$dir/bin/python" -c 'import deepspeed' 2> /dev/null ||
  DS_BUILD_OPS=0 "$dir/bin/pip" install --quiet setuptools wheel ninja deepspeed ||
  echo "no DeepSpeed: its peers are left out" >&2
command -v fio > /dev/null || echo "no fio: apt-get install fio" >&2
