#!/usr/bin/env python3
"""Golden data of models with recurrent layers in hybrid/CASE, as make_golden.py, which see for the environment and for what a case has.

    /tmp/venv-golden/bin/python tests/golden/make_hybrid.py [CASE ...]

hybrid/wrapped and hybrid/wrapped-moe are the first and hybrid/qwen3_5_moe as multimodal models. Models are saved in bf16. transformers lets states and convolutions run on from one
packed document into the next, so each document is computed by itself; its scans go through fp32 whatever the model's type, so their modules see another torch. Cases with experts are
made by make_moe.py, which says what else they have; hybrid/qlora has PEFT's adapters beside bitsandbytes' NF4 as make_qlora.py has them, and hybrid/lora-* its adapters of all
maps beside the bases of LORA.
"""
import json
import os
import re
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

import make_golden as golden

HERE = os.path.join(golden.HERE, "hybrid")
import make_moe as moe

golden.HERE = HERE
FLOAT = torch.Tensor.float
LINEAR, FULL = "linear_attention", golden.FULL
ALIKE = dict(vocab_size=32, hidden_size=16, num_attention_heads=2, num_key_value_heads=1, head_dim=8, intermediate_size=24, max_position_embeddings=256,
             rope_parameters=dict(golden.DEFAULT_ROPE, partial_rotary_factor=0.5), tie_word_embeddings=True, pad_token_id=None, bos_token_id=None, eos_token_id=None)
LATENT = dict(kv_lora_rank=14, q_lora_rank=None, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=16)
DELTA = dict(linear_conv_kernel_dim=4, linear_key_head_dim=8, linear_value_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4)
MAMBA = dict(mamba_n_heads=4, mamba_d_head=8, mamba_n_groups=2, mamba_d_state=8, mamba_expand=2, mamba_chunk_size=16, rms_norm_eps=1e-5)
FACTORS = dict(embedding_multiplier=3.0, residual_multiplier=0.5, attention_multiplier=0.25, logits_scaling=2.0)
NEMOTRON = dict(mamba_num_heads=4, mamba_head_dim=8, n_groups=2, ssm_state_size=8, chunk_size=16, time_step_min=0.25, tie_word_embeddings=False)
FALCON = dict(mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_n_groups=2, mamba_d_state=8, mamba_chunk_size=16, num_hidden_layers=2, rope_parameters=golden.DEFAULT_ROPE,
              lm_head_multiplier=0.5, embedding_multiplier=2.0, mlp_multipliers=[1.5, 0.5], key_multiplier=0.8, attention_out_multiplier=0.7, attention_in_multiplier=1.2,
              ssm_in_multiplier=1.1, ssm_out_multiplier=0.6)
MINIMAX = dict(num_local_experts=5, num_experts_per_tok=2, intermediate_size=8, block_size=16, rope_parameters=golden.DEFAULT_ROPE, full_attn_alpha_factor=2.5, full_attn_beta_factor=0.75,
               linear_attn_alpha_factor=3.5, linear_attn_beta_factor=1.25, mlp_alpha_factor=3.0, mlp_beta_factor=0.5, tie_word_embeddings=False)
# shorter than the convolution, and longer than a chunk of the scan
DOCUMENTS = [70, 1, 2, 33]

# name: family, keys of its configuration, document lengths
CASES = {
    "qwen3_5": ("qwen3_5_text", dict(DELTA, num_hidden_layers=3, layer_types=[LINEAR, FULL, LINEAR]), DOCUMENTS),
    "granite": ("granitemoehybrid", dict(MAMBA, **FACTORS, num_hidden_layers=3, layer_types=[LINEAR, FULL, LINEAR], num_local_experts=0, num_experts_per_tok=0, rope_parameters=golden.DEFAULT_ROPE,
                                         shared_intermediate_size=24), DOCUMENTS),
    "nemotron-h": ("nemotron_h", dict(NEMOTRON, layers_block_type=[LINEAR, "mlp", FULL, LINEAR]), DOCUMENTS),
    "lfm2": ("lfm2", dict(num_hidden_layers=3, layer_types=["conv", FULL, "conv"], block_auto_adjust_ff_dim=False, rope_parameters=golden.DEFAULT_ROPE), DOCUMENTS),
    "bamba": ("bamba", dict(MAMBA, mamba_n_groups=1, num_hidden_layers=2, attn_layer_indices=[1], mamba_proj_bias=True, time_step_limit=(0.25, float("inf"))), DOCUMENTS),
    # maps and convolutions of queries, keys and values apart, strengths up to 2, heads that share keys; norms of another epsilon
    "olmo-hybrid": ("olmo_hybrid", dict(DELTA, num_hidden_layers=3, layer_types=[LINEAR, FULL, LINEAR], rope_parameters=dict(rope_type="default", rope_theta=None), rms_norm_eps=1e-2,
                                        tie_word_embeddings=False), DOCUMENTS),
    # attention and a mixer side by side, factors everywhere, of which those of values, keys and queries differ; a norm before the gate
    "falcon-h1": ("falcon_h1", dict(FALCON, mamba_rms_norm=True, mamba_norm_before_gate=True, ssm_multipliers=[0.9, 1.1, 0.8, 1.2, 1.3]), DOCUMENTS),
    # a norm after the gate, one map for values, keys and queries
    "falcon-h1-after": ("falcon_h1", dict(FALCON, num_hidden_layers=1, mamba_rms_norm=True, mamba_norm_before_gate=False, ssm_multipliers=[0.9, 1.1, 1.1, 1.1, 1.3]), DOCUMENTS),
    # no norm
    "falcon-h1-plain": ("falcon_h1", dict(FALCON, num_hidden_layers=1, mamba_rms_norm=False), DOCUMENTS),
}

# with experts, an expert that no token gets (-1: none)
EXPERTS = {
    "qwen3_5_moe": ("qwen3_5_moe_text", dict(DELTA, num_hidden_layers=2, layer_types=[LINEAR, FULL], num_experts=5, num_experts_per_tok=2, moe_intermediate_size=8,
                                             shared_expert_intermediate_size=16), 4, [66, 1, 2]),
    # a dense layer, maps that files interleave by key head
    "qwen3_next": ("qwen3_next", dict(DELTA, num_hidden_layers=3, layer_types=[LINEAR, FULL, LINEAR], num_experts=5, num_experts_per_tok=2, moe_intermediate_size=8,
                                      shared_expert_intermediate_size=16, mlp_only_layers=[1], intermediate_size=24), -1, [65, 1, 4]),
    "granite-moe": ("granitemoehybrid", dict(MAMBA, residual_multiplier=0.5, intermediate_size=8, num_hidden_layers=2, layer_types=[LINEAR, FULL], num_local_experts=5,
                                             num_experts_per_tok=2, shared_intermediate_size=16, position_embedding_type="rope", rope_parameters=golden.DEFAULT_ROPE), 4, [66, 1, 2]),
    # experts of two maps, a shared one, groups; an MLP of another width
    "nemotron-moe": ("nemotron_h", dict(NEMOTRON, layers_block_type=[LINEAR, "moe", FULL, "mlp"], intermediate_size=24, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=8,
                                        moe_shared_expert_intermediate_size=16, n_group=3, topk_group=2, routed_scaling_factor=2.5), -1, [66, 1, 2]),
    # a dense layer, then experts behind a convolution and behind attention
    "lfm2-moe": ("lfm2_moe", dict(num_hidden_layers=3, layer_types=["conv", "conv", FULL], rope_parameters=golden.DEFAULT_ROPE, num_dense_layers=1, intermediate_size=24, num_experts=5,
                                  num_experts_per_tok=2, moe_intermediate_size=8, routed_scaling_factor=1.5), 4, [66, 1, 2]),
    # decays of channels, a dense layer, latent attention without positions, experts from groups; three heads, so that ranks' shares differ
    "kimi-linear": ("kimi_linear", dict(LATENT, num_hidden_layers=3, num_key_value_heads=2, layer_types=[LINEAR, FULL, LINEAR], mlp_layer_types=["dense", "sparse", "sparse"], intermediate_size=24,
                                        linear_head_dim=8, linear_num_heads=3, num_local_experts=6, num_experts_per_tok=2, moe_intermediate_size=8, n_shared_experts=1, n_group=3, topk_group=2,
                                        head_dim=None, rope_parameters=None, tie_word_embeddings=False), -1, [70, 1, 2, 33]),
    # experts that read and give rows narrower than the stream
    "nemotron-latent": ("nemotron_h", dict(NEMOTRON, layers_block_type=["moe", FULL], intermediate_size=24, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=8,
                                           moe_shared_expert_intermediate_size=16, n_group=1, topk_group=1, moe_latent_size=6), -1, [33, 1, 22]),
    # lightning attention of two heads, whose decays follow from the layer, and factors of norms and of what is added to these
    "minimax": ("minimax", dict(MINIMAX, num_hidden_layers=3, layer_types=[LINEAR, FULL, LINEAR]), 4, DOCUMENTS),
}


# a multimodal model as published ones are: images' tensors, and a layer that predicts further tokens, which transformers leaves out
VISION = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, out_hidden_size=16, num_position_embeddings=4, patch_size=2)
FURTHER = {"mtp.fc.weight": (16, 32), "mtp.norm.weight": (16,), "mtp.layers.0.mlp.up_proj.weight": (24, 16)}


class Exact:
    """torch, with fp64 in place of fp32."""

    def __getattr__(self, name):
        return torch.float64 if name in ("float", "float32") else getattr(torch, name)


def randomize(model, seed):
    """As golden.randomize, with decays from slow to fast and norms of heads near 1."""
    golden.randomize(model, seed)
    randomize_scans(model, seed)


def randomize_scans(model, seed):
    g = torch.Generator().manual_seed(seed + 1000)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=g)
            if name.endswith("A_log"):
                p.copy_(-1 + noise)
            elif name.endswith("dt_bias"):
                p.copy_(0.5 * noise)
            elif name.endswith(("conv1d.weight", "conv.conv.weight")):
                p.copy_(0.4 * noise)
            elif name.endswith(("linear_attn.norm.weight", "self_attn.norm.weight", "o_norm.weight", "mamba.norm.weight", "mixer.norm.weight", ".D")):
                p.copy_(1 + 0.1 * noise)


def forward(model, batch):
    tokens, targets, positions = (torch.from_numpy(a) for a in batch[:3])
    begins = (positions == 0).nonzero()[:, 0].tolist() + [len(tokens)]
    logits = torch.cat([model(input_ids=tokens[None, a:b], use_cache=False).logits[0] for a, b in zip(begins, begins[1:])])
    assert logits.dtype == torch.float64
    return torch.nn.functional.cross_entropy(logits, targets, ignore_index=-1), logits


def use_fp64(model):
    golden.to_fp64(model)
    module = sys.modules[type(model).__module__]
    module.torch = Exact()
    if hasattr(module, "compute_mup_vector"):  # Falcon-H1's factors, which were rounded to bf16 with the model
        for layer in model.model.layers:
            layer.mamba.mup_vector = module.compute_mup_vector(model.config).double()
    for layer in model.model.layers:
        if hasattr(layer.self_attn if hasattr(layer, "self_attn") else None, "get_slope_rate"):
            make_decays(layer.self_attn)
    return model


def make_decays(attention):
    """Makes the decays of lightning attention, which were rounded to bf16 with the model, those of fp64."""
    torch.set_default_dtype(torch.float64)
    attention.slope_rate = attention.get_slope_rate().double()
    attention.query_decay, attention.key_decay, attention.diagonal_decay = attention.decay_factors(attention.slope_rate)
    torch.set_default_dtype(torch.float32)
    assert attention.diagonal_decay.dtype == attention.slope_rate.dtype == torch.float64


def decays(name, p):
    return p.ndim >= 2 and not any(part in name for part in ("norm", "conv1d", "conv.conv", "A_log"))


def make_case(name, family, keys, lengths, seed):
    torch.manual_seed(seed)
    config = AutoConfig.for_model(family, **{**ALIKE, **keys})
    config._attn_implementation = "sdpa"
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    randomize(model, seed)
    folder = os.path.join(golden.HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    if os.path.exists(os.path.join(folder, "generation_config.json")):
        os.remove(os.path.join(folder, "generation_config.json"))
    use_fp64(model)
    trained = dict(model.named_parameters())
    golden.measure(name, model, trained, golden.make_batch(lengths, seed, sum(lengths), config.vocab_size), lengths)
    if family == "olmo_hybrid":
        publish_olmo(folder, config)
    use_torch()


def published_olmo(tensors, config):
    """Returns tensors of OLMo Hybrid, by names of modules or as transformers 5.24 saves them, as published files have them. transformers cuts the convolution in three equal
    parts, where they are of queries, keys and values, and calls attention's norm as that of other layers' MLPs."""
    keys, values = config.linear_key_head_dim * config.linear_num_key_heads, config.linear_value_head_dim * config.linear_num_value_heads
    found = {}
    for name, x in tensors.items():
        layer = re.search(r"layers\.(\d+)\.", name)
        linear = layer and config.layer_types[int(layer[1])] == LINEAR
        if linear and ("k_conv1d" in name or "v_conv1d" in name):
            continue
        if linear and "conv1d" in name:
            whole = torch.cat([tensors[name.replace("q_conv1d", f"{c}_conv1d")] for c in "qkv"]) if "q_conv1d" in name else x
            for c, part in zip("qkv", whole.split([keys, keys, values])):
                found[re.sub("q_conv1d|conv1d", f"{c}_conv1d", name)] = part.contiguous()
            continue
        for here, there in (("input_layernorm", "attention_layer_norm"), ("post_attention_layernorm", "feedforward_layer_norm")) if linear else (("feedforward_layer_norm", "post_attention_layernorm"),):
            name = name.replace(here, there)
        found[name] = x
    return found


def publish_olmo(folder, config):
    """Makes the tensors in a case's files those of published files."""
    for file in ("model.safetensors", "golden.safetensors"):
        path = os.path.join(folder, file)
        save_file(published_olmo(load_file(path), config), path, metadata=dict(format="pt"))
    path = os.path.join(folder, "golden.json")
    with open(path) as f:
        info = json.load(f)
    info["trained"] = sorted(published_olmo({name: torch.zeros(1) if "conv1d" not in name else torch.zeros(2 * 16 + 64) for name in info["trained"]}, config))
    with open(path, "w") as f:
        json.dump(info, f, indent=1)
        f.write("\n")


def published_kimi(tensors, in_files):
    """Returns tensors of Kimi Linear, by names of modules, as ltrain has them: a convolution of queries, keys and values apart. in_files: as transformers 5.24 saves them, which calls a
    dense MLP as it calls experts; published files call it mlp."""
    found = {}
    for name, x in tensors.items():
        if "conv1d" in name and not in_files:
            found |= {name.replace("conv1d", f"{c}_conv1d"): part.contiguous() for c, part in zip("qkv", x.chunk(3))}
        else:
            found[re.sub(r"block_sparse_moe\.(gate|up|down)_proj", r"mlp.\1_proj", name)] = x
    return found


def publish_kimi(folder):
    for file in ("model.safetensors", "golden.safetensors"):
        path = os.path.join(folder, file)
        save_file(published_kimi(load_file(path), file == "model.safetensors"), path, metadata=dict(format="pt"))
    path = os.path.join(folder, "golden.json")
    with open(path) as f:
        info = json.load(f)
    info["trained"] = sorted(published_kimi({name: torch.zeros(3) for name in info["trained"]}, False))
    with open(path, "w") as f:
        json.dump(info, f, indent=1)
        f.write("\n")


def make_wrapped(name, case, kind, keys, **text_keys):
    """Writes hybrid/NAME: the model of a case as the text model of a multimodal one. No results: they are the same. kind: prefix of its classes."""
    torch.manual_seed(1)
    text = getattr(transformers, kind + "TextConfig")(**ALIKE, **keys, **text_keys)
    vision = getattr(transformers, kind + "VisionConfig")(**VISION)
    model = getattr(transformers, kind + "ForConditionalGeneration")(getattr(transformers, kind + "Config")(text_config=text, vision_config=vision, tie_word_embeddings=True)).bfloat16()
    plain = AutoModelForCausalLM.from_pretrained(os.path.join(golden.HERE, case))
    model.model.language_model.load_state_dict(plain.model.state_dict())
    folder = os.path.join(golden.HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, save_original_format=False)  # stacks of experts are whole in published files
    os.remove(os.path.join(folder, "generation_config.json"))
    path = os.path.join(folder, "model.safetensors")
    further = {name: torch.randn(shape, dtype=torch.bfloat16) for name, shape in FURTHER.items()}
    save_file(load_file(path) | further, path, metadata=dict(format="pt"))


def make_adapted(name, files, batch, convert=lambda folder: {}, targets="all-linear", **words):
    """Writes hybrid/NAME: ten steps of PEFT's adapters, all-linear, on top of a base in fp64. convert: function of the base's folder, which returns matrices to take in place of
    its own, by module."""
    from peft import LoraConfig, PeftModel, get_peft_model
    import make_qlora as qlora
    folder = os.path.join(golden.HERE, name)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(files, dtype=torch.float32), LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, target_modules=targets))
    g = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "lora_B" in key:
                p.copy_(0.1 * torch.randn(p.shape, generator=g))
    adapter = os.path.join(folder, "adapter")
    model.save_pretrained(adapter)
    os.remove(os.path.join(adapter, "README.md"))
    path = os.path.join(adapter, "adapter_config.json")
    with open(path) as f:
        written = json.load(f)
    written["base_model_name_or_path"] = ".."
    written["target_modules"].sort()
    with open(path, "w") as f:
        json.dump(written, f, indent=2)
    plain = AutoModelForCausalLM.from_pretrained(files, dtype=torch.float32)
    plain.config._experts_implementation = "eager"
    with torch.no_grad():
        for module, w in convert(files).items():
            plain.get_submodule(module).weight.copy_(w)
    model = PeftModel.from_pretrained(plain, adapter, is_trainable=True).double().train()
    (use_fp64 if name.startswith("qlora") else moe.use_fp64)(plain)
    losses, norms, out, trained = qlora.train(model, plain, batch, lambda m, b: forward(m, b)[0])
    out.update({k: a.astype("float32") for k, a in zip(("tokens", "targets", "positions", "lo"), batch)})
    save_file({k: torch.from_numpy(v).float().contiguous() for k, v in out.items()}, os.path.join(folder, "golden.safetensors"))
    info = dict(case=name, **words, seq_len=len(batch[0]), targets=int((batch[1] >= 0).sum()), freeze=[], adamw=dict(golden.ADAMW, steps=len(losses)), loss5=losses[:5],
                gnorm5=norms[:5], loss10=losses, gnorm10=norms, trained=trained, zero=False, torch=torch.__version__)
    with open(os.path.join(folder, "golden.json"), "w") as f:
        json.dump(info, f, indent=1)
        f.write("\n")
    print(f"{name}: loss {losses[0]:.6f} -> {losses[-1]:.6f}")


def nf4_of(folder):
    """Returns the numbers of bitsandbytes' NF4 of a base's maps, with double quantisation."""
    import bitsandbytes as bnb
    import make_qlora as qlora
    patched, torch.Tensor.float = torch.Tensor.float, FLOAT
    found = {name: bnb.functional.dequantize_4bit(m.weight.data, m.weight.quant_state)
             for name, m in qlora.quantised(folder).named_modules() if isinstance(m, bnb.nn.Linear4bit)}
    torch.Tensor.float = patched
    return found


def make_qlora(name, family, targets="all-linear", **words):
    """Writes hybrid/NAME. Rows are multiples of 64 numbers, as make_qlora.py says; a head of q_proj and its gate are less than a group of nested scales."""
    keys = dict(ALIKE, **DELTA, **words, hidden_size=64, head_dim=32, intermediate_size=64, num_hidden_layers=2, layer_types=[LINEAR, FULL])
    folder = os.path.join(golden.HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(5)
    config = AutoConfig.for_model(family, **keys)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    randomize(model, 5)
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    make_adapted(name, folder, golden.make_batch([70, 25], 5, 95, config.vocab_size), nf4_of, targets, base="nf4")


# cases and their bases
LORA = {"lora-moe": "qwen3_5_moe", "lora-next": "qwen3_next", "lora-kimi": "kimi-linear", "lora-lfm2": "lfm2", "lora-nemotron": "nemotron-h", "lora-granite": "granite",
        "lora-bamba": "bamba", "lora-minimax": "minimax", "lora-falcon": "falcon-h1", "lora-olmo": "olmo-hybrid"}
# all maps that may have an adapter, where PEFT refuses all-linear for out_proj, or adapts routers
TARGETS = {"lora-nemotron": ["in_proj", "up_proj", "down_proj", "q_proj", "k_proj", "v_proj", "o_proj"],
           "lora-next": ["in_proj_qkvz", "in_proj_ba", "out_proj", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "shared_expert_gate"],
           "lora-minimax": ["qkv_proj", "output_gate", "out_proj", "q_proj", "k_proj", "v_proj", "o_proj"],
           "lora-falcon": ["in_proj", "gate_proj", "up_proj", "down_proj", "q_proj", "k_proj", "v_proj", "o_proj"]}


# first seeds to try, where gradients of a later step are so large that fp32's norm is further than 1e-5 from fp64's
SEEDS = {"lora-next": 1040}


def make_lora(name, base):
    """Writes hybrid/NAME, with the base's files. A seed is taken whose tokens choose their experts, if there are any, by a clear margin."""
    base, folder = os.path.join(golden.HERE, base), os.path.join(golden.HERE, name)
    for seed in range(SEEDS.get(name, 1000), 1100):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        for file in ("config.json", "model.safetensors"):
            shutil.copy(os.path.join(base, file), folder)
        watch = moe.Watch(torch.nn.Module())
        try:
            make_adapted(name, folder, golden.make_batch([66, 1, 2], seed, 69, 32), targets=TARGETS.get(name, "all-linear"))
        finally:
            watch.stop()
        if watch.margin >= moe.MARGIN:
            return


def use_experts():
    """Makes make_moe.py make hybrids."""
    random, fp64 = moe.randomize, moe.use_fp64
    moe.ALIKE = {key: value for key, value in ALIKE.items() if key != "intermediate_size"}
    names = moe.names_in_files
    moe.names_in_files = lambda model: {key: key if model.config.model_type == "kimi_linear" else re.sub(r"^backbone\.", "model.", name) for key, name in names(model).items()}
    moe.randomize = lambda model, dead, seed: (random(model, dead, seed), randomize_scans(model, seed))
    moe.use_fp64 = lambda model: use_fp64(fp64(model))


def use_torch():
    """Makes all modules see torch as it is again, for the next model is created in its own types."""
    for module in list(sys.modules.values()):
        if isinstance(getattr(module, "torch", None), Exact):
            module.torch = torch


if __name__ == "__main__":
    golden.use_exact()
    use_experts()
    golden.forward, golden.decays, torch.Tensor.float = forward, decays, torch.Tensor.double
    asked = sys.argv[1:] or [*CASES, *EXPERTS, "wrapped", "wrapped-moe", "qlora", "qlora-next", *LORA]
    for number, case in enumerate(CASES):
        if case in asked:
            make_case(case, *CASES[case], seed=number + 1)
    for number, case in enumerate(EXPERTS):
        seed = 1000 * (number + 1)
        while case in asked and not moe.attempt(case, *EXPERTS[case], seed):
            use_torch()
            seed += 1
            assert seed % 1000 < 100, case
        if case in asked and case == "kimi-linear":
            publish_kimi(os.path.join(HERE, case))
    if "wrapped" in asked:
        make_wrapped("wrapped", "qwen3_5", "Qwen3_5", CASES["qwen3_5"][1], mtp_num_hidden_layers=1)
    if "wrapped-moe" in asked:
        make_wrapped("wrapped-moe", "qwen3_5_moe", "Qwen3_5Moe", EXPERTS["qwen3_5_moe"][1], mtp_num_hidden_layers=1)
    if "qlora" in asked:
        make_qlora("qlora", "qwen3_5_text")
    if "qlora-next" in asked:  # without experts, which bitsandbytes leaves as they are
        make_qlora("qlora-next", "qwen3_next", ["in_proj_qkvz", "in_proj_ba", "out_proj", "q_proj", "k_proj", "v_proj", "o_proj"], mlp_only_layers=[0, 1], num_experts=4, num_experts_per_tok=2)
    for name, base in LORA.items():
        if name in asked:
            make_lora(name, base)
            use_torch()
