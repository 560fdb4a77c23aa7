#!/usr/bin/env python3
"""Tiny random models with experts, as transformers saves them: experts/FAMILY, and experts/qwen3_moe-joined, whose stacks of experts are whole.

    /tmp/venv-golden/bin/python tests/golden/make_experts.py [FAMILY ...]

Made with transformers 5.24; make_golden.py says how the virtual environment is made. Values are bf16 but where a family keeps others.
"""
import json
import os
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "experts")
ALIKE = dict(vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=8,
             max_position_embeddings=64, pad_token_id=None, bos_token_id=None, eos_token_id=None)
K = dict(num_experts_per_tok=2)
WIDE = dict(**K, moe_intermediate_size=12)
CASES = {
    "qwen3_moe": dict(**WIDE, num_experts=4, norm_topk_prob=True, mlp_only_layers=[0]),
    "mixtral": dict(**K, num_local_experts=4),
    "olmoe": dict(**K, num_experts=4),
    "qwen2_moe": dict(**WIDE, num_experts=4, shared_expert_intermediate_size=20, num_hidden_layers=3, decoder_sparse_step=2),
    "gpt_oss": dict(**K, num_local_experts=4),
    "granitemoe": dict(**K, num_local_experts=4, logits_scaling=4.0),
    "granitemoeshared": dict(**K, num_local_experts=4, shared_intermediate_size=20),
    "glm4_moe": dict(**WIDE, n_routed_experts=6, n_shared_experts=1, first_k_dense_replace=1, n_group=3, topk_group=2, routed_scaling_factor=1.5),
    "dots1": dict(**WIDE, n_routed_experts=4, n_shared_experts=2, first_k_dense_replace=1, sliding_window=None),
    "solar_open": dict(**WIDE, n_routed_experts=4, n_shared_experts=1),
    "exaone_moe": dict(**WIDE, num_experts=4, num_shared_experts=1, num_hidden_layers=4, sliding_window=16),
    "ernie4_5_moe": dict(moe_k=2, moe_intermediate_size=12, moe_num_experts=4, moe_num_shared_experts=2),
    "hunyuan_v1_moe": dict(moe_topk=2, num_experts=4),
    "minimax_m2": dict(**K, num_local_experts=4),
    "afmoe": dict(**WIDE, num_experts=4, num_shared_experts=1, num_dense_layers=1, num_hidden_layers=4, sliding_window=16),
    "flex_olmo": dict(**K, num_experts=4),
    "mellum": dict(**WIDE, num_local_experts=4, mlp_layer_types=["dense", "sparse"], layer_types=["sliding_attention", "full_attention"], sliding_window=16),
    "granitemoe_swa": dict(**K, num_local_experts=4, shared_intermediate_size=20, sliding_window=16),
    "hy_v3": dict(**WIDE, num_experts=4, num_shared_experts=1),
    "gemma4_text": dict(enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=12, attention_k_eq_v=True, global_head_dim=16, num_global_key_value_heads=1,
                        hidden_size_per_layer_input=0, vocab_size_per_layer_input=32, num_kv_shared_layers=0, sliding_window=16),
}


def make(case):
    torch.manual_seed(len(case))
    config = AutoConfig.for_model(case, **{**ALIKE, **CASES[case]})
    if case == "solar_open":
        del config.intermediate_size
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    with torch.no_grad():
        for name, buffer in list(model.named_buffers()) + list(model.named_parameters()):
            if "bias" in name or "sinks" in name or "scale" in name:
                buffer.normal_()
    folders = [(case, True)] + ([(case + "-joined", False)] if case == "qwen3_moe" else [])
    for folder, original in folders:
        path = os.path.join(HERE, folder)
        model.save_pretrained(path, save_original_format=original)
        unused = os.path.join(path, "generation_config.json")
        if os.path.exists(unused):
            os.remove(unused)
        with open(os.path.join(path, "config.json")) as f:
            print(folder, len(json.load(f)), "keys", os.path.getsize(os.path.join(path, "model.safetensors")), "bytes")


for case in sys.argv[1:] or CASES:
    make(case)
