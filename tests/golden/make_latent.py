#!/usr/bin/env python3
"""Golden data of models with latent attention in latent/CASE, as make_golden.py, which see for the environment and for what a case has.

    /tmp/venv-golden/bin/python tests/golden/make_latent.py [CASE ...]

Models are saved in bf16. Cases with experts are made by make_moe.py, which says what else they have; latent/lora and latent/qlora, whose
base is NF4, have PEFT's adapters of all maps, as make_hybrid.py makes them. Modules see another torch, since their rotations and routers go through fp32 whatever the model's type.
"""
import copy
import os
import shutil
import subprocess
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

import make_golden as golden
import make_hybrid as hybrid
import make_moe as moe

YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0)
# heads of 12 + 8 for queries and keys, of 10 for values
ALIKE = dict(vocab_size=32, hidden_size=16, num_attention_heads=2, num_key_value_heads=2, intermediate_size=24, max_position_embeddings=128, kv_lora_rank=14, q_lora_rank=10,
             qk_rope_head_dim=8, qk_nope_head_dim=12, v_head_dim=10, rope_parameters=golden.DEFAULT_ROPE, tie_word_embeddings=True, pad_token_id=None, bos_token_id=None,
             eos_token_id=None, rms_norm_eps=1e-5)
EXPERTS = dict(n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=8, n_shared_experts=1, num_hidden_layers=2, hidden_size=16)
DOCUMENTS = [33, 1, 22]

# name: family, keys of its configuration, document lengths
CASES = {
    "youtu": ("youtu", dict(num_hidden_layers=2), DOCUMENTS),
    "minicpm3": ("minicpm3", dict(num_hidden_layers=2, qk_nope_head_dim=8, v_head_dim=8, scale_emb=3, scale_depth=1.4, dim_model_base=8,
                                  rope_parameters=dict(golden.longrope(4), original_max_position_embeddings=128)), DOCUMENTS),
}
# with experts, an expert that no token gets (-1: none)
WITH_EXPERTS = {
    "deepseek-v2": ("deepseek_v2", dict(EXPERTS, q_lora_rank=None, first_k_dense_replace=1, routed_scaling_factor=1.5, rope_parameters=dict(YARN, mscale=0.707, mscale_all_dim=0.5)), 5,
                    DOCUMENTS),
    "deepseek-v3": ("deepseek_v3", dict(EXPERTS, num_attention_heads=4, num_key_value_heads=4, first_k_dense_replace=1, n_group=3, topk_group=2, routed_scaling_factor=2.5,
                                        rope_parameters=YARN, attention_bias=True), -1, DOCUMENTS),
    "glm4-moe-lite": ("glm4_moe_lite", dict(EXPERTS, mlp_layer_types=["dense", "sparse"], v_head_dim=20, routed_scaling_factor=1.8), 1, DOCUMENTS),
    # groups ranked by their greatest expert, as in V2's larger models
    "deepseek-v2-groups": ("deepseek_v2", dict(EXPERTS, first_k_dense_replace=1, n_routed_experts=9, num_experts_per_tok=3, topk_method="group_limited_greedy", n_group=3, topk_group=2,
                                               routed_scaling_factor=3.0), -1, DOCUMENTS),
}


patched = set()


def attempt(*case):
    """As make_moe.attempt, whose model is made with torch itself."""
    for name in patched:
        sys.modules[name].torch = torch
    return moe.attempt(*case)


class Exact:
    """torch, with fp64 in place of fp32."""

    def __getattr__(self, name):
        return torch.float64 if name in ("float", "float32") else getattr(torch, name)


def use_fp64(model):
    golden.to_fp64(model)
    sys.modules[type(model).__module__].torch = Exact()
    patched.add(type(model).__module__)
    for module in model.modules():
        if type(module).__name__ == "DeepseekV2RotaryEmbedding":
            module.forward = lambda x, position_ids, m=module: turns(*golden.tables(model.config, m, position_ids, None))
    return model


def turns(cosine, sine):
    """Returns rotations as complex numbers, from tables that have each twice."""
    return torch.complex(*(x[..., :x.shape[-1] // 2].contiguous() for x in (cosine, sine)))


def make_case(name, family, keys, lengths, seed):
    torch.manual_seed(seed)
    config = AutoConfig.for_model(family, **copy.deepcopy({**ALIKE, **keys}))
    config._attn_implementation = "sdpa"
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    golden.randomize(model, seed)
    folder = os.path.join(golden.HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    if os.path.exists(os.path.join(folder, "generation_config.json")):
        os.remove(os.path.join(folder, "generation_config.json"))
    use_fp64(model)
    golden.measure(name, model, dict(model.named_parameters()), golden.make_batch(lengths, seed, sum(lengths), config.vocab_size), lengths)


def make_adapted(name, keys, **words):
    """Writes latent/NAME. Rows of maps are multiples of 64 numbers, as NF4 has them."""
    for module in patched:
        sys.modules[module].torch = torch
    torch.manual_seed(7)
    config = AutoConfig.for_model("youtu", **copy.deepcopy({**ALIKE, **keys}))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    golden.randomize(model, 7)
    folder = os.path.join(golden.HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    if os.path.exists(os.path.join(folder, "generation_config.json")):
        os.remove(os.path.join(folder, "generation_config.json"))
    hybrid.make_adapted(name, folder, golden.make_batch(DOCUMENTS, 7, sum(DOCUMENTS), config.vocab_size), *words.pop("convert", ()), **words)


WIDE = dict(hidden_size=64, intermediate_size=64, num_hidden_layers=1, kv_lora_rank=64, q_lora_rank=64, qk_nope_head_dim=24, qk_rope_head_dim=8, v_head_dim=32)

if __name__ == "__main__":
    golden.use_exact()
    torch.Tensor.float = torch.Tensor.double
    golden.HERE, hybrid.use_fp64, hybrid.forward = os.path.join(os.path.dirname(golden.HERE), "latent"), use_fp64, golden.forward
    moe.ALIKE = ALIKE
    fp64 = moe.use_fp64
    moe.use_fp64 = lambda model: use_fp64(fp64(model))
    asked = sys.argv[1:] or [*CASES, *WITH_EXPERTS, "lora", "qlora"]
    for number, case in enumerate(CASES):
        if case in asked:
            make_case(case, *CASES[case], seed=number + 1)
    for number, case in enumerate(WITH_EXPERTS):
        seed = 1000 * (number + 1)
        while case in asked and not attempt(case, *WITH_EXPERTS[case], seed):
            seed += 1
            assert seed % 1000 < 100, case
    # of adapters, each in a process of its own: loading one model leaves its rotary settings to the next
    for case in ("lora", "qlora"):
        if case in asked and len(asked) > 1:
            subprocess.run([sys.executable, __file__, case], check=True)
    if asked == ["lora"]:
        make_adapted("lora", dict(num_hidden_layers=2))
    if asked == ["qlora"]:
        make_adapted("qlora", WIDE, convert=(hybrid.nf4_of,), base="nf4")
