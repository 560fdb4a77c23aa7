#!/usr/bin/env python3
"""Whether vLLM takes an adapter that ltrain has written: by vLLM's own code that reads it, on any machine.

    pip download --no-deps vllm
    check_vllm.py vllm-*.whl RUN/hf [RANK]

Of the wheel only vllm/lora/{peft_helper,lora_model,lora_weights}.py and two functions of utils.py are run; what they import of the
rest of vLLM stands empty. They check adapter_config.json (RANK: --max-lora-rank, 16 unless it is given), take every tensor by its
name, and scale B. Against PEFT's formula each module's s B A is computed from the files. Nothing of vLLM's models is run. Needs torch,
safetensors and regex.
"""
import ast
import importlib.util
import json
import math
import os
import re
import sys
import types
import zipfile

import torch
from safetensors.torch import load_file

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

MODULES = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}  # of vLLM's Llama, Qwen and Mistral models


class Empty(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__getattr__": lambda self, _: lambda *a, **k: None, "__init__": lambda self, *a: None})


def empty(name, **members):
    module = sys.modules[name] = Empty(name)
    module.__path__ = []
    vars(module).update(members)
    return module


def load(wheel, name):
    spec = importlib.util.spec_from_loader(name, loader=None)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    exec(compile(wheel.read(name.replace(".", "/") + ".py"), name, "exec"), vars(module))
    return module


def load_reader(wheel):
    for name in ("vllm", "vllm.config", "vllm.config.lora", "vllm.lora", "vllm.model_executor", "vllm.model_executor.models",
                 "vllm.model_executor.models.utils", "vllm.utils"):
        empty(name)
    logger = types.SimpleNamespace(info_once=lambda *a: None, warning=lambda *a: None)
    empty("vllm.logger", init_logger=lambda name: logger)
    empty("vllm.utils.torch_utils", PIN_MEMORY=False)
    utils = empty("vllm.lora.utils", get_lora_id=lambda: 1)  # vllm/lora/utils needs only these two replacements
    tree = ast.parse(wheel.read("vllm/lora/utils.py"))
    names = ("parse_fine_tuned_lora_name", "is_base_embedding_weights")
    tree.body = [x for x in tree.body if isinstance(x, ast.FunctionDef) and x.name in names]
    exec(compile(tree, "vllm/lora/utils.py", "exec"), vars(utils))
    helper = load(wheel, "vllm.lora.peft_helper")
    load(wheel, "vllm.lora.lora_weights")
    return helper.PEFTHelper, load(wheel, "vllm.lora.lora_model").LoRAModel


def number_for(pattern, module, otherwise):
    return next((x for key, x in (pattern or {}).items() if re.match(rf"(.*\.)?({key})$", module)), otherwise)


def main():
    wheel, folder = zipfile.ZipFile(sys.argv[1]), sys.argv[2]
    most = int(sys.argv[3]) if len(sys.argv) > 3 else 16
    PEFTHelper, LoRAModel = load_reader(wheel)
    helper = PEFTHelper.from_local_dir(folder, None)
    helper.validate_legal(types.SimpleNamespace(max_lora_rank=most))
    model = LoRAModel.from_local_checkpoint(folder, MODULES, helper, device="cpu", dtype=torch.float32)
    with open(os.path.join(folder, "adapter_config.json")) as f:
        config = json.load(f)
    tensors, worst = load_file(os.path.join(folder, "adapter_model.safetensors")), 0.0
    for name, layer in model.loras.items():
        a, b = (tensors[f"base_model.model.{name}.lora_{x}.weight"] for x in "AB")
        rank, alpha = number_for(config["rank_pattern"], name, config["r"]), number_for(config["alpha_pattern"], name, config["lora_alpha"])
        ours = alpha / (math.sqrt(rank) if config["use_rslora"] else rank) * b @ a
        layer.optimize()
        theirs = layer.lora_b @ layer.lora_a
        worst = max(worst, ((theirs - ours).norm() / max(ours.norm().item(), 1e-30)).item())
        assert layer.rank == rank == a.shape[0] == b.shape[1], name
    assert 2 * len(model.loras) == len(tensors)
    version = os.path.basename(sys.argv[1]).split("-")[1]
    print(f"vLLM {version} takes {folder}: {len(model.loras)} modules, {len(tensors)} tensors; s B A differ from PEFT's formula by {worst:.1e} at most")


if __name__ == "__main__":
    main()
