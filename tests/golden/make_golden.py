#!/usr/bin/env python3
"""Golden data from PyTorch and transformers, computed in fp64 and stored in fp32.

    python3 -m venv /tmp/venv-golden
    /tmp/venv-golden/bin/pip install torch==2.13.0 transformers safetensors numpy
    /tmp/venv-golden/bin/python tests/golden/make_golden.py [CASE ...]

Each case is a folder: config.json and model.safetensors as save_pretrained writes them, and golden.safetensors with
  tokens, targets, positions, lo   [S] as fp32 numbers; token i attends tokens lo[i]..i (lo: its document's start, or i - window + 1);
                                   target < 0: not counted
  loss [1], logits [ROWS, vocab]   the mean over counted targets, and the logits' last rows, before any update
  grad.NAME                        of that mean loss, for every trained parameter (a tied head's lie in the embedding)
  loss5, gnorm5 [5], step5.NAME    five AdamW steps on the same batch: each step's loss and gradient norm before clipping,
                                   and the trained parameters after the last
golden.json repeats the scalars, the hyperparameters, the document lengths and the frozen globs.
"""
import fnmatch
import functools
import json
import math
import os
import sys

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import (ArceeConfig, AutoModelForCausalLM, AutoModelForImageTextToText, Cohere2Config, CohereConfig, CwmConfig,
                          CodeGenConfig, Ernie4_5Config, Exaone4Config, FalconConfig, Gemma2Config, GemmaConfig, GlmConfig, GPTBigCodeConfig, GPTJConfig, GPTNeoConfig, GraniteSWAConfig,
                          HeliumConfig, HunYuanDenseV1Config, HyperCLOVAXConfig, Jais2Config, MinistralConfig, NemotronConfig, OlmoConfig,
                          OPTConfig, PhiConfig, SeedOssConfig, StableLmConfig, VaultGemmaConfig, Gemma3Config, Gemma3TextConfig, Gemma4Config, Gemma4TextConfig, Gemma4VisionConfig,
                          Glm4Config, GPT2Config, GPTNeoXConfig, GptOssConfig, GptOssForCausalLM, GraniteConfig, LlamaConfig,
                          Ministral3Config, Mistral3Config, MistralConfig, Olmo2Config, Olmo3Config, Phi3Config,
                          PixtralVisionConfig, Qwen2Config, Qwen3_5TextConfig, Qwen3Config, SiglipVisionConfig, SmolLM3Config, Starcoder2Config)
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention

HERE = os.path.dirname(os.path.abspath(__file__))
ADAMW = dict(lr=1e-3, beta1=0.9, beta2=0.95, eps=1e-3, weight_decay=0.1, clip=1.0, steps=5)
LOGIT_ROWS = 8
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)


def llama(heads, kv_heads, head_dim, dim=64, ffn=96, layers=2, tied=False, rope=None, kind=LlamaConfig, **more):
    return kind(vocab_size=256, hidden_size=dim, intermediate_size=ffn, num_hidden_layers=layers, num_attention_heads=heads,
                num_key_value_heads=kv_heads, head_dim=head_dim, max_position_embeddings=256, tie_word_embeddings=tied,
                rms_norm_eps=1e-5, rope_parameters=rope or dict(rope_type="default", rope_theta=10000.0), **more)


DEFAULT_ROPE = dict(rope_type="default", rope_theta=10000.0)
SLIDE, FULL = "sliding_attention", "full_attention"


def small(kind, heads=2, kv_heads=1, head_dim=32, layers=2, eps="rms_norm_eps", **more):
    """A model of 32 columns; what a family needs beside that is in `more`."""
    keys = {**dict(vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=layers, num_attention_heads=heads,
                          num_key_value_heads=kv_heads, head_dim=head_dim, max_position_embeddings=256, tie_word_embeddings=True,
                          rope_parameters=DEFAULT_ROPE, bos_token_id=None, eos_token_id=None, pad_token_id=None), eps: 1e-5, **more}
    if head_dim is None:  # hidden_size / heads
        del keys["head_dim"]
    return kind(**keys)


def longrope(pairs):
    return dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1 + 0.05 * i for i in range(pairs)],
                long_factor=[1.5 + 0.4 * i for i in range(pairs)], original_max_position_embeddings=32)


def phi3():
    return small(Phi3Config, head_dim=None, layers=1, hidden_size=64, intermediate_size=40,
                 rope_parameters=dict(longrope(12), partial_rotary_factor=0.75), original_max_position_embeddings=32)


class GptOssDense(torch.nn.Module):
    """One of gpt-oss' experts, applied to every token: its clamped gate, with maps stored as other models store theirs."""
    def __init__(self, config):
        super().__init__()
        d, f = config.hidden_size, config.intermediate_size
        self.gate_proj, self.up_proj, self.down_proj = torch.nn.Linear(d, f), torch.nn.Linear(d, f), torch.nn.Linear(f, d)
        self.limit, self.alpha = config.swiglu_limit, config.swiglu_alpha

    def forward(self, x):
        gate_up = torch.stack((self.gate_proj(x), self.up_proj(x)), dim=-1).flatten(-2)  # an expert's columns: gate, up, gate, up, ...
        return self.down_proj(GptOssExperts._apply_gate(self, gate_up)), None


def dense_gpt_oss(config):
    """transformers' model, but for its MLPs: num_local_experts 0 says that. Published models all have experts."""
    model = GptOssForCausalLM(GptOssConfig.from_dict(dict(config.to_dict(), num_local_experts=1)))
    for layer in model.model.layers:
        layer.mlp = GptOssDense(config)
    model.config.num_local_experts = 0
    model.set_attn_implementation("eager")
    return model


# attributes of single layers of "qwen3-layers": two windows (others have none), four shapes of heads with the usual one
OWN = {1: dict(num_key_value_heads=1, sliding_window=5), 2: dict(num_attention_heads=2, head_dim=32, sliding_window=11), 3: dict(head_dim=8)}


def attend(attention, own, original, hidden_states, position_embeddings, attention_mask, **more):
    """With the layer's own rotation and window."""
    positions, d = more["position_ids"], attention.head_dim
    angle = positions[..., None].double() * 10000.0 ** -(torch.arange(0, d, 2, dtype=torch.float64) / d)
    angle = torch.cat((angle, angle), dim=-1)
    keys = attention_mask.shape[-1] if attention_mask is not None else int(positions.max()) + 1
    i, j = torch.arange(keys - hidden_states.shape[1], keys)[:, None], torch.arange(keys)[None, :]
    mask = (j <= i) & (j > i - own.get("sliding_window", keys))
    mask = mask[None, None] if attention_mask is None else mask & attention_mask
    cos, sin = (x.to(hidden_states.dtype) for x in (angle.cos(), angle.sin()))
    return original(hidden_states=hidden_states, position_embeddings=(cos, sin), attention_mask=mask, **more)


def qwen3_layers(config):
    """transformers' model, but for the attention of some layers: its own Qwen3 takes no per_layer_config, which says so."""
    model = AutoModelForCausalLM.from_config(config)
    for l, layer in enumerate(model.model.layers):
        own = OWN.get(l, {})
        alike = Qwen3Config.from_dict(dict(config.to_dict(), **{k: v for k, v in own.items() if k != "sliding_window"}))
        alike._attn_implementation = "sdpa"
        layer.self_attn = Qwen3Attention(alike, l)
        layer.self_attn.forward = functools.partial(attend, layer.self_attn, own, layer.self_attn.forward)
    return model


def save_own(folder):
    path = os.path.join(folder, "config.json")
    with open(path) as f:
        config = dict(json.load(f), per_layer_config=OWN)
    with open(path, "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")


def gpt2(positions=96, dim=64, layers=2):
    return GPT2Config(vocab_size=256, n_positions=positions, n_embd=dim, n_layer=layers, n_head=2, bos_token_id=None,
                      eos_token_id=None, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)


def tiny(kind, dim=16, **more):
    """A model of 16 columns and 64 tokens."""
    return kind(**{**dict(vocab_size=64, hidden_size=dim, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                          max_position_embeddings=256, rope_parameters=DEFAULT_ROPE, bos_token_id=None, eos_token_id=None,
                          pad_token_id=None), **more})


def falcon(**more):
    return FalconConfig(**{**dict(vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, ffn_hidden_size=32,
                                  rope_parameters=DEFAULT_ROPE, bos_token_id=None, eos_token_id=None), **more})


def gptj(kind, **more):
    return kind(vocab_size=64, n_positions=96, n_embd=16, n_layer=1, n_head=2, n_inner=32, rotary_dim=4, bos_token_id=None, eos_token_id=None, **more)


def gpt_bigcode(**more):
    return GPTBigCodeConfig(vocab_size=64, n_positions=96, n_embd=16, n_layer=1, n_head=2, n_inner=32, bos_token_id=None, eos_token_id=None,
                            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **more)


VISION = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, image_size=28, patch_size=14, head_dim=8)


def ministral3():
    rope = dict(rope_type="yarn", rope_theta=1e6, factor=4.0, beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
                original_max_position_embeddings=16, llama_4_scaling_beta=0.1)
    return Mistral3Config(text_config=tiny(Ministral3Config, vocab_size=256, num_key_value_heads=1, head_dim=16, num_hidden_layers=1,
                                           rope_parameters=rope, max_position_embeddings=64, tie_word_embeddings=True),
                          vision_config=PixtralVisionConfig(**VISION), tie_word_embeddings=True)


def gemma3():
    return Gemma3Config(text_config=tiny(Gemma3TextConfig, vocab_size=256, num_key_value_heads=1, head_dim=8, query_pre_attn_scalar=24,
                                         sliding_window=7, layer_types=[SLIDE, FULL], rope_parameters={
                                             FULL: dict(rope_type="linear", rope_theta=1e6, factor=8.0), SLIDE: DEFAULT_ROPE}),
                        vision_config=SiglipVisionConfig(**{k: v for k, v in VISION.items() if k != "head_dim"}, vision_use_head=False),
                        mm_tokens_per_image=4)


PROPORTIONAL = dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.25)


def gemma4(**more):
    """The dense published model in small: fewer and larger KV heads, whose keys are values, in layers that attend everything."""
    return Gemma4TextConfig(**{**dict(vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                                      num_key_value_heads=2, head_dim=8, global_head_dim=16, num_global_key_value_heads=1,
                                      attention_k_eq_v=True, layer_types=[SLIDE, FULL], sliding_window=7,
                                      max_position_embeddings=256, hidden_size_per_layer_input=0, final_logit_softcapping=3.0,
                                      rope_parameters={FULL: PROPORTIONAL, SLIDE: DEFAULT_ROPE}, rms_norm_eps=1e-5, bos_token_id=None,
                                      eos_token_id=None, pad_token_id=None), **more})


def gemma4_wrapped():
    vision = Gemma4VisionConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1,
                                head_dim=8, position_embedding_size=16, patch_size=14)
    text = gemma4(global_head_dim=32, num_global_key_value_heads=2, num_key_value_heads=4)
    return Gemma4Config(text_config=text, vision_config=vision, audio_config=None)


# name: config, document lengths, globs of frozen parameters
CASES = {
    "llama-gqa": (llama(4, 2, 32), [96], []),
    "llama-tied-docs": (llama(2, 2, 32, ffn=48, tied=True), [40, 1, 55], []),
    "llama-h80": (llama(2, 1, 80, dim=48, ffn=64, layers=1, tied=True), [72], []),
    "llama-mqa7": (llama(7, 1, 32, dim=56, ffn=48, layers=1, tied=True), [61], []),  # dim must be a multiple of heads
    "llama3-rope": (llama(2, 1, 64, ffn=64, layers=1, tied=True, rope=LLAMA3), [128], []),
    "gpt2": (gpt2(), [50, 30], []),
    "llama-frozen": (llama(2, 1, 32, dim=32, ffn=48), [33, 31], ["model.embed_tokens.weight", "model.layers.0.mlp.*"]),
    "mistral-window": (llama(4, 2, 32, ffn=48, layers=1, tied=True, kind=MistralConfig, sliding_window=16), [60, 1, 35], []),
    "qwen2-window": (llama(2, 1, 32, ffn=48, layers=1, tied=True, kind=Qwen2Config, use_sliding_window=True, sliding_window=7,
                           max_window_layers=0), [50, 30], []),
    "qwen3": (small(Qwen3Config, heads=4, kv_heads=2), [40, 1, 33], []),
    "qwen3-windows": (small(Qwen3Config, use_sliding_window=True, sliding_window=7, max_window_layers=1), [50, 30], []),
    "smollm3": (small(SmolLM3Config, no_rope_layers=[1, 0], attention_bias=True, mlp_bias=True), [33, 31], []),
    "granite": (small(GraniteConfig, head_dim=None, layers=1, embedding_multiplier=6.0, residual_multiplier=0.3,
                      attention_multiplier=0.1, logits_scaling=4.0), [33, 31], []),
    "phi3-long": (phi3(), [80], []),
    "phi3-short": (phi3(), [30], []),
    "gemma2": (small(Gemma2Config, query_pre_attn_scalar=24, sliding_window=7, attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
               [50, 1, 30], []),
    "gemma3": (small(Gemma3TextConfig, query_pre_attn_scalar=24, sliding_window=7, layer_types=[SLIDE, FULL],
                     rope_parameters={FULL: dict(rope_type="linear", rope_theta=1e6, factor=8.0), SLIDE: DEFAULT_ROPE}), [50, 30], []),
    "olmo2": (small(Olmo2Config, head_dim=None, kv_heads=2, hidden_size=64), [40, 1, 33], []),
    "olmo3": (small(Olmo3Config, head_dim=None, kv_heads=1, hidden_size=64, sliding_window=7, layer_types=[SLIDE, FULL],
                    rope_parameters={FULL: dict(rope_type="yarn", rope_theta=500000.0, factor=8.0, beta_fast=32.0, beta_slow=1.0,
                                                original_max_position_embeddings=32), SLIDE: dict(rope_type="default", rope_theta=500000.0)}),
              [50, 30], []),
    "glm4": (small(Glm4Config, heads=4, kv_heads=2, layers=1, rope_parameters=dict(DEFAULT_ROPE, partial_rotary_factor=0.5)), [40, 33], []),
    "starcoder2": (small(Starcoder2Config, eps="norm_epsilon", head_dim=None, kv_heads=1, hidden_size=64, layers=1, sliding_window=16),
                   [50, 30], []),
    "llama-yarn": (small(LlamaConfig, layers=1, rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, truncate=False,
                                                                     beta_fast=8.0, original_max_position_embeddings=32)), [96], []),
    "llama-dynamic": (small(LlamaConfig, layers=1, max_position_embeddings=32,
                            rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0)), [96], []),
    # a table much longer than the run: rows behind its last position have no gradient, but AdamW's weight decay shrinks them here,
    # while a run of ltrain leaves them as they are; so step5's are compared as far as the run's positions reach
    "gpt2-positions": (gpt2(positions=1024, dim=32, layers=1), [50, 41], []),
    "neox": (tiny(GPTNeoXConfig, rope_parameters=dict(DEFAULT_ROPE, partial_rotary_factor=0.25), dim=32, intermediate_size=24,
                  num_hidden_layers=1), [50, 1, 30], []),
    "neox-sequential": (tiny(GPTNeoXConfig, rope_parameters=dict(DEFAULT_ROPE, partial_rotary_factor=1.0), use_parallel_residual=False,
                             hidden_act="gelu_new", tie_word_embeddings=True), [40, 33], []),
    "cohere": (tiny(CohereConfig, num_attention_heads=4, num_key_value_heads=2, dim=32, num_hidden_layers=1, logit_scale=0.25),
               [50, 30], []),
    "cohere2": (tiny(Cohere2Config, num_key_value_heads=1, sliding_window=7, layer_types=[SLIDE, FULL], logit_scale=0.5),
                [50, 1, 30], []),
    # sinks, a window in every second layer, a ramp of yarn that is not rounded, a limit that gate and up reach
    "gpt-oss": (small(GptOssConfig, heads=4, kv_heads=2, tie_word_embeddings=False, sliding_window=7, swiglu_limit=0.5,
                      num_local_experts=0, rope_parameters=dict(rope_type="yarn", rope_theta=150000.0, factor=8.0, beta_fast=32.0,
                                                                beta_slow=1.0, truncate=False, original_max_position_embeddings=32)),
                [50, 1, 30], []),
    "gpt-oss-one": (small(GptOssConfig, heads=8, kv_heads=1, layers=1, sliding_window=40, num_local_experts=0, layer_types=[SLIDE],
                          swiglu_alpha=1.3), [96], []),
    # multimodal models, of which the text model alone is trained
    "gemma3-wrapped": (gemma3(), [50, 30], []),
    "mistral3-wrapped": (ministral3(), [50, 1, 30], []),
    # layer norms of each head, whose weights are [heads, head size] and are no matrices
    "cohere-norms": (tiny(CohereConfig, num_attention_heads=4, num_key_value_heads=2, dim=32, num_hidden_layers=1, use_qk_norm=True),
                     [50, 1, 30], []),
    # gates of what heads give, between the queries' rows in files
    "qwen3_5": (tiny(Qwen3_5TextConfig, num_attention_heads=4, num_key_value_heads=2, head_dim=16, layer_types=[FULL, FULL],
                     rope_parameters=dict(DEFAULT_ROPE, partial_rotary_factor=0.5)), [40, 1, 33], []),
    "seed-oss": (tiny(SeedOssConfig, num_key_value_heads=1, head_dim=16, num_hidden_layers=1, attention_dropout=0.0, residual_dropout=0.0),
                 [50, 30], []),
    "ernie4_5": (tiny(Ernie4_5Config, num_key_value_heads=1, head_dim=16, num_hidden_layers=1, use_bias=True), [50, 30], []),
    "arcee": (tiny(ArceeConfig, num_key_value_heads=1, num_hidden_layers=1), [50, 30], []),
    "ministral": (tiny(MinistralConfig, num_key_value_heads=1, head_dim=16, sliding_window=7, layer_types=[SLIDE, FULL]), [50, 30], []),
    "cwm": (tiny(CwmConfig, bos_token_id=1, num_key_value_heads=1, head_dim=16, sliding_window=7, layer_types=[FULL, SLIDE], rope_parameters=LLAMA3),
            [50, 30], []),
    "helium": (tiny(HeliumConfig, num_key_value_heads=1, head_dim=8, num_hidden_layers=1, attention_bias=True, mlp_bias=True), [50, 30], []),
    "glm": (tiny(GlmConfig, num_key_value_heads=1, head_dim=16, num_hidden_layers=1,
                 rope_parameters=dict(DEFAULT_ROPE, partial_rotary_factor=0.5)), [50, 30], []),
    "gemma": (tiny(GemmaConfig, dim=24, num_key_value_heads=1, head_dim=16, num_hidden_layers=1, hidden_act="gelu"), [50, 30], []),
    "vaultgemma": (tiny(VaultGemmaConfig, dim=24, num_key_value_heads=1, head_dim=16, query_pre_attn_scalar=24, sliding_window=7,
                        layer_types=[SLIDE, FULL], attn_logit_softcapping=2.0, final_logit_softcapping=3.0), [50, 1, 30], []),
    "exaone4": (tiny(Exaone4Config, num_key_value_heads=1, head_dim=16, sliding_window=7, layer_types=[SLIDE, FULL]), [50, 1, 30], []),
    "hunyuan": (tiny(HunYuanDenseV1Config, num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_hidden_layers=1,
                     rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, alpha=50.0, factor=1.0)), [50, 30], []),
    "nemotron": (tiny(NemotronConfig, num_key_value_heads=1, head_dim=16, num_hidden_layers=1,
                      rope_parameters=dict(DEFAULT_ROPE, partial_rotary_factor=0.5)), [50, 30], []),
    "gemma4": (gemma4(), [50, 1, 30], []),
    "gemma4-wrapped": (gemma4_wrapped(), [50, 30], []),
    "olmo": (tiny(OlmoConfig, num_key_value_heads=1, num_hidden_layers=1), [50, 30], []),
    "qwen3-layers": (small(Qwen3Config, heads=4, kv_heads=2, head_dim=16, layers=4, use_sliding_window=True, sliding_window=11,
                           layer_types=[FULL, SLIDE, SLIDE, FULL]), [50, 1, 30], []),
    "stablelm": (tiny(StableLmConfig, num_key_value_heads=1, num_hidden_layers=1, use_qkv_bias=True,
                      rope_parameters=dict(DEFAULT_ROPE, partial_rotary_factor=0.25)), [50, 30], []),
    "stablelm-parallel": (tiny(StableLmConfig, num_key_value_heads=2, num_hidden_layers=1, use_parallel_residual=True, tie_word_embeddings=True,
                               rope_parameters=dict(DEFAULT_ROPE, partial_rotary_factor=0.5)), [50, 1, 30], []),
    # one KV head and one norm; KV heads whose queries, key and value lie together, and two norms; one block after the other
    "falcon": (falcon(), [50, 30], []),
    "falcon-groups": (falcon(hidden_size=32, num_attention_heads=4, num_kv_heads=2, new_decoder_architecture=True), [50, 1, 30], []),
    "falcon-sequential": (falcon(multi_query=False, parallel_attn=False, bias=True, tie_word_embeddings=False), [50, 30], []),
    "gpt-bigcode": (gpt_bigcode(), [50, 30], []),
    "gpt-bigcode-heads": (gpt_bigcode(multi_query=False), [50, 30], []),
    "gpt-neo": (GPTNeoConfig(vocab_size=64, max_position_embeddings=96, hidden_size=16, num_layers=2, num_heads=2, intermediate_size=16,
                             attention_types=[[["global", "local"], 1]], window_size=7, bos_token_id=None, eos_token_id=None), [50, 1, 30], []),
    "jais2": (tiny(Jais2Config, num_key_value_heads=1, num_hidden_layers=1), [50, 30], []),
    "hyperclovax": (tiny(HyperCLOVAXConfig, num_key_value_heads=1, head_dim=16, num_hidden_layers=1, embedding_multiplier=6.0, residual_multiplier=0.3,
                         attention_multiplier=0.1, logits_scaling=0.5), [50, 30], []),
    # the base of layers that slide, that of the others, and one without positions
    "granite-swa": (tiny(GraniteSWAConfig, num_key_value_heads=1, intermediate_size=16, num_hidden_layers=3, layer_types=[FULL, SLIDE, FULL],
                         sliding_window=7, layer_rope_theta=[500000.0, 10000.0, 0], embedding_multiplier=6.0, residual_multiplier=0.3,
                         attention_multiplier=0.1, logits_scaling=4.0), [50, 1, 30], []),
    # biases of the head, tied or not
    "phi": (tiny(PhiConfig, num_hidden_layers=1, rope_parameters=dict(DEFAULT_ROPE, partial_rotary_factor=0.5)), [50, 1, 30], []),
    "gptj": (gptj(GPTJConfig), [50, 30], []),
    "codegen": (gptj(CodeGenConfig, tie_word_embeddings=True), [50, 1, 30], []),
    "opt": (OPTConfig(vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, ffn_dim=32, max_position_embeddings=128, dropout=0.0,
                      pad_token_id=None, bos_token_id=None, eos_token_id=None), [50, 1, 30], []),
}


def make_batch(lengths, seed, window, vocab):
    """Packed documents. A document's last target is not counted, as is one masked token in the middle of the first document."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, vocab, sum(lengths))
    targets = np.full(len(tokens), -1)
    positions, lo = np.zeros_like(tokens), np.zeros_like(tokens)
    begin = 0
    for n in lengths:
        targets[begin:begin + n - 1] = tokens[begin + 1:begin + n]
        positions[begin:begin + n] = np.arange(n)
        lo[begin:begin + n] = np.maximum(begin, np.arange(begin, begin + n) - window + 1)
        begin += n
    targets[lengths[0] // 2] = -1
    return tokens, targets, positions, lo


ONE_MORE = ("Gemma", "VaultGemma", "Qwen3_5", "Qwen3Next", "Nemotron")  # whose norms multiply by 1 + w


def randomize(model, seed):
    """Larger than the usual initial values, so that every part of the gradient counts; norms and biases are not trivial either."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=g, dtype=torch.float32)
            if p.ndim >= 2:
                p.copy_(0.08 * noise)
            elif name.endswith("sinks"):
                p.copy_(noise)
            elif name.endswith("bias"):
                p.copy_(0.05 * noise)
            else:
                p.copy_((not adds_one(model)) + 0.1 * noise)
            if type(model).__name__.startswith("Gemma4") and name.endswith(("q_norm.weight", "k_norm.weight")):
                p.mul_(0.5)  # they alone scale scores
        for name, x in model.named_buffers():
            if name.endswith("layer_scalar"):
                x.copy_(0.8 + 0.1 * torch.randn(x.shape, generator=g, dtype=torch.float32))


def adds_one(module):
    """Tells whether a module's norms multiply by 1 + w."""
    return type(module).__name__.startswith(ONE_MORE) and not type(module).__name__.startswith(("Gemma4", "NemotronH"))


def mixes_windows(config):
    return len(set(getattr(config, "layer_types", None) or [])) > 1


def attention_of(config):
    return "eager" if getattr(config, "attn_logit_softcapping", None) or config.model_type in ("gpt_neo", "granite_swa") else "sdpa"


def mask_of(model, seen):
    """Returns the mask as attention takes it: eager adds it to scores."""
    if model.config._attn_implementation != "eager":
        return seen[None, None]
    return torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, -1e30)[None, None]


def forward(model, batch):
    tokens, targets, positions, lo = (torch.from_numpy(a) for a in batch)
    i = torch.arange(len(tokens))
    seen = (i[None, :] <= i[:, None]) & (i[None, :] >= lo[:, None])
    mask = mask_of(model, seen)
    if mixes_windows(model.config):
        near = seen & (i[None, :] > i[:, None] - model.config.sliding_window)
        mask = {FULL: mask, SLIDE: mask_of(model, near)}
    elif model.config.model_type == "qwen3_5_text":
        mask = {FULL: mask}
    logits = model(input_ids=tokens[None], attention_mask=mask, position_ids=positions[None], use_cache=False).logits[0]
    assert logits.dtype == torch.float64
    return torch.nn.functional.cross_entropy(logits, targets, ignore_index=-1), logits


def check_documents(model, batch, lengths, loss):
    """The mask really separates documents and is the model's own window: one by one, without any mask, they give the same loss."""
    total, count, begin = 0.0, 0, 0
    for n in lengths:
        tokens, targets = (torch.from_numpy(a[begin:begin + n]) for a in batch[:2])
        logits = model(input_ids=tokens[None], use_cache=False).logits[0]
        total += torch.nn.functional.cross_entropy(logits, targets, ignore_index=-1, reduction="sum").item()
        count += int((targets >= 0).sum())
        begin += n
    assert abs(total / count - loss) < 1e-12, (total / count, loss)


NEIGHBOURS = ("Cohere", "Ernie4_5")  # families whose rotation is computed in fp32


def to_fp64(model):
    """model.double() and more: transformers' RMSNorm and rotary tables go through fp32 whatever the model's type (as eager attention's
    softmax does, hence sdpa)."""
    model = model.double().train()
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            one, eps = adds_one(module), module.eps if hasattr(module, "eps") else module.variance_epsilon
            module.forward = lambda x, m=module, one=one, eps=eps: (one + getattr(m, "weight", 1.0)) * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        if type(module).__name__.startswith("Cohere") and type(module).__name__.endswith("LayerNorm"):
            module.forward = lambda x, m=module: m.weight * torch.nn.functional.layer_norm(x, x.shape[-1:], None, None, m.variance_epsilon)
        if type(module).__name__.startswith(NEIGHBOURS) and type(module).__name__.endswith("Attention"):
            sys.modules[type(module).__module__].apply_rotary_pos_emb = rotate_neighbours
        if type(module).__name__ == "OlmoLayerNorm":
            module.forward = lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:], None, None, 1e-5)
        if type(module).__name__ in ("GPTJRotaryEmbedding", "CodeGenRotaryEmbedding"):
            module.forward = lambda x, position_ids, m=module: sines(m.pos_embd_dim, position_ids)
        elif type(module).__name__.endswith("RotaryEmbedding"):
            config = module.config if model.config.model_type in ("granite_swa", "granitemoe_swa") else model.config  # which has one for each base
            module.forward = lambda x, position_ids, layer_type=None, m=module, c=config: tables(c, m, position_ids, layer_type)
        if type(module).__name__ == "GPTNeoSelfAttention":
            module._attn = functools.partial(neo_attention, module)
        if type(module).__name__ in ("GraniteSWAAttention", "GraniteMoeSWAAttention"):
            sys.modules[type(module).__module__].eager_attention_forward = sink_attention
        if type(module).__name__ == "Ministral3Attention":
            sys.modules[type(module).__module__].get_llama_4_attn_scale = scale_of_queries
        if type(module).__name__.endswith("TextScaledWordEmbedding"):
            module.embed_scale.fill_(module.scalar_embed_scale)
    return model


def neo_attention(module, q, k, v, attention_mask=None):
    """GPT-Neo's, which goes through fp32."""
    scores = (q @ k.transpose(-1, -2)).masked_fill(~module.bias[:, :, :q.shape[-2], :k.shape[-2]], -1e30)
    weights = torch.nn.functional.softmax(scores if attention_mask is None else scores + attention_mask, dim=-1)
    return weights @ v, weights


def sink_attention(module, q, k, v, attention_mask, scaling, **_):
    """Granite SWA's, likewise."""
    k, v = (x.repeat_interleave(module.num_key_value_groups, dim=1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * scaling + (0.0 if attention_mask is None else attention_mask)
    weights = torch.nn.functional.softmax(scores, dim=-1) * (torch.logsumexp(scores, dim=-1) - module.sinks[:, None]).sigmoid()[..., None]
    return (weights @ v).transpose(1, 2).contiguous(), weights


def sines(rotated, position_ids):
    """GPT-J's and CodeGen's."""
    angle = position_ids[..., None].double() * 10000.0 ** -(torch.arange(0, rotated, 2, dtype=torch.float64) / rotated)
    return angle.sin(), angle.cos()


def tables(config, module, position_ids, layer_type):
    """Cosines and sines; where frequencies depend on the sequence's length, that of the batch."""
    tokens = int(position_ids.max()) + 1
    inv_freq, scaling = exact_inv_freq(config, layer_type, tokens)
    rope = rope_of(config, layer_type)
    grows = rope["rope_type"] == "dynamic" and not rope.get("alpha")
    if not (rope["rope_type"] == "longrope" and tokens > rope["original_max_position_embeddings"]) and not grows:
        fp32 = getattr(module, f"{layer_type}_inv_freq" if layer_type else "inv_freq")
        assert torch.allclose(inv_freq.float(), fp32.float(), rtol=1e-6, atol=0), (inv_freq, fp32)
        assert abs(scaling - getattr(module, f"{layer_type}_attention_scaling" if layer_type else "attention_scaling")) < 1e-9
    elif tokens > 1:
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
        fp32, factor = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, seq_len=tokens)
        assert torch.allclose(inv_freq.float(), fp32.float(), rtol=2e-6, atol=0), (inv_freq, fp32)
        assert abs(scaling - factor) < 1e-9
    if position_ids.ndim > 2:  # of images; a text's are the same in time, height and width
        position_ids = position_ids[0]
    angle = position_ids[..., None].double() * inv_freq
    if config.model_type.startswith(tuple(x.lower() for x in NEIGHBOURS)):
        angle = angle.repeat_interleave(2, dim=-1)
    elif config.model_type != "gpt_oss":  # which has half as many
        angle = torch.cat((angle, angle), dim=-1)
    return angle.cos() * scaling, angle.sin() * scaling


def rotate_neighbours(q, k, cos, sin):
    """Cohere's and ERNIE's, which go through fp32."""
    turned = lambda x: torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
    return tuple(x * cos[:, None] + turned(x) * sin[:, None] for x in (q, k))


def scale_of_queries(positions, beta, original):
    return (1 + beta * torch.log(1 + torch.floor(positions.double() / original)))[:, None, :, None]


def rope_of(config, layer_type):
    return config.rope_parameters[layer_type] if layer_type else config.rope_parameters


def exact_inv_freq(config, layer_type, tokens):
    """The same formulas as transformers' in fp64, and the factor of cosines and sines."""
    r = rope_of(config, layer_type)
    of_layer = config.per_layer_config[layer_type] if config.is_heterogeneous else config
    head_dim, share = getattr(of_layer, "head_dim", None) or config.hidden_size // config.num_attention_heads, r.get("partial_rotary_factor", 1.0)
    d = head_dim if r["rope_type"] == "proportional" else int(head_dim * share)
    i = torch.arange(0, d, 2, dtype=torch.float64)
    theta, kind, scaling = float(r["rope_theta"]), r["rope_type"], 1.0
    if kind == "dynamic" and r.get("alpha"):
        theta *= r["alpha"] ** (d / (d - 2))
    elif kind == "dynamic" and tokens > config.max_position_embeddings:
        theta *= (r["factor"] * tokens / config.max_position_embeddings - (r["factor"] - 1)) ** (d / (d - 2))
    freq = theta ** -(i / d)
    if kind == "proportional":
        freq = freq * (i < 2 * (int(share * head_dim) // 2))
    if kind == "linear":
        freq = freq / r["factor"]
    if kind == "llama3":
        wavelength = 2 * torch.pi / freq
        low, high = r["low_freq_factor"], r["high_freq_factor"]
        smooth = ((r["original_max_position_embeddings"] / wavelength - low) / (high - low)).clamp(0, 1)
        freq = smooth * freq + (1 - smooth) * freq / r["factor"]
    if kind == "yarn":
        turns = lambda n: d * math.log(r["original_max_position_embeddings"] / (n * 2 * math.pi)) / (2 * math.log(theta))
        low, high = turns(r.get("beta_fast") or 32), turns(r.get("beta_slow") or 1)
        if r.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, d - 1)
        ramp = ((torch.arange(d // 2, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
        freq = freq / r["factor"] * ramp + freq * (1 - ramp)
        plain = lambda m: 0.1 * m * math.log(r["factor"]) + 1
        scaling = r.get("attention_factor") or plain(r.get("mscale") or 1) / (plain(r["mscale_all_dim"]) if r.get("mscale_all_dim") else 1)
    if kind == "longrope":
        original = r["original_max_position_embeddings"]
        freq = freq / torch.tensor(r["long_factor" if tokens > original else "short_factor"], dtype=torch.float64)
        scaling = math.sqrt(1 + math.log(config.max_position_embeddings / original) / math.log(original))
    return freq, scaling


def check_gradient(model, batch, trained):
    """Central differences along one direction agree to 1e-7: nothing on the way was rounded to fp32. Moves the parameters."""
    g = torch.Generator().manual_seed(1)
    direction = {k: torch.randn(p.shape, generator=g, dtype=torch.float64) for k, p in trained.items()}
    slope = sum((p.grad * direction[k]).sum().item() for k, p in trained.items())
    ends = []
    with torch.no_grad():
        for move in (2e-7, -4e-7):
            for k, p in trained.items():
                p.add_(move * direction[k])
            ends.append(forward(model, batch)[0].item())
    difference = (ends[0] - ends[1]) / 4e-7
    assert abs(difference - slope) <= 1e-7 * max(1, abs(slope)), (difference, slope)


def name_in_files(name, config):
    return name.replace("lm_head", "embed_out") if config.model_type == "gpt_neox" else name


def decays(name, p):
    return p.ndim >= 2 and "norm" not in name and "bias" not in name


def make_case(name, config, lengths, frozen, seed):
    torch.manual_seed(seed)
    config._attn_implementation = attention_of(config)
    wrapped = hasattr(config, "text_config")
    if config.model_type == "gpt_oss":
        model = dense_gpt_oss(config)
    elif name == "qwen3-layers":
        model = qwen3_layers(config)
    else:
        model = (AutoModelForImageTextToText if wrapped else AutoModelForCausalLM).from_config(config)
    randomize(model, seed)
    folder = os.path.join(HERE, name)
    model.save_pretrained(folder)
    if name == "qwen3-layers":
        save_own(folder)
    if wrapped:
        config = config.text_config
        config._attn_implementation = "sdpa"
        text = AutoModelForCausalLM.from_config(config)
        text.model.load_state_dict(model.model.language_model.state_dict())
        model = text
    leftover = os.path.join(folder, "generation_config.json")
    if os.path.exists(leftover):
        os.remove(leftover)
    model = to_fp64(model)
    params = {name_in_files(k, config): p for k, p in model.named_parameters()}  # a tied head appears once, as the embedding
    for pattern in frozen:
        hits = fnmatch.filter(params, pattern)
        assert hits, pattern
        for hit in hits:
            params[hit].requires_grad_(False)
    trained = {k: p for k, p in params.items() if p.requires_grad}
    window = None if mixes_windows(config) else getattr(config, "sliding_window", None)
    batch = make_batch(lengths, seed, window or sum(lengths), config.vocab_size)
    measure(name, model, trained, batch, lengths, frozen)


def measure(name, model, trained, batch, lengths, frozen=()):
    """Writes the case's golden.safetensors and golden.json. trained: parameters by their names in files; moves them."""
    out = {k: a.astype(np.float32) for k, a in zip(("tokens", "targets", "positions", "lo"), batch)}
    optimizer = torch.optim.AdamW(
        [dict(params=[p for k, p in trained.items() if decays(k, p)], weight_decay=ADAMW["weight_decay"]),
         dict(params=[p for k, p in trained.items() if not decays(k, p)], weight_decay=0.0)],
        lr=ADAMW["lr"], betas=(ADAMW["beta1"], ADAMW["beta2"]), eps=ADAMW["eps"])
    losses, norms = [], []
    for step in range(ADAMW["steps"]):
        optimizer.zero_grad()
        loss, logits = forward(model, batch)
        loss.backward()
        if step == 0:
            check_documents(model, batch, lengths, loss.item())
            initial = {k: p.detach().clone() for k, p in trained.items()}
            check_gradient(model, batch, trained)
            with torch.no_grad():  # the walk may not return to the very bits
                for k, p in trained.items():
                    p.copy_(initial[k])
            out["loss"] = np.array([loss.item()], np.float32)
            out["logits"] = logits[-LOGIT_ROWS:].detach().float().numpy()
            for k, p in trained.items():
                out["grad." + k] = p.grad.float().numpy().copy()
        norms.append(torch.nn.utils.clip_grad_norm_(trained.values(), ADAMW["clip"]).item())
        losses.append(loss.item())
        optimizer.step()
    out["loss5"], out["gnorm5"] = np.array(losses, np.float32), np.array(norms, np.float32)
    for k, p in trained.items():
        out["step5." + k] = p.detach().float().numpy().copy()
    folder = os.path.join(HERE, name)
    save_file({k: np.ascontiguousarray(v) for k, v in out.items()}, os.path.join(folder, "golden.safetensors"))
    info = dict(case=name, seq_len=len(batch[0]), documents=lengths, targets=int((batch[1] >= 0).sum()), freeze=list(frozen),
                first_logit_row=len(batch[0]) - LOGIT_ROWS, trained=sorted(trained), adamw=ADAMW, loss=losses[0], loss5=losses, gnorm5=norms,
                torch=torch.__version__)
    with open(os.path.join(folder, "golden.json"), "w") as f:
        json.dump(info, f, indent=1)
        f.write("\n")
    print(f"{name}: {sum(os.path.getsize(os.path.join(folder, x)) for x in os.listdir(folder)) / 1e6:.2f} MB, "
          f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, gnorm {norms[0]:.3f}")


def use_exact():
    """Makes torch compute the same numbers everywhere, and softmax in the type of what it is given: eager attention's goes through fp32."""
    softmax = torch.nn.functional.softmax
    torch.nn.functional.softmax = lambda x, dim=None, dtype=None: softmax(x, dim=dim)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)


if __name__ == "__main__":
    use_exact()
    for number, case in enumerate(CASES):
        if len(sys.argv) == 1 or case in sys.argv[1:]:
            make_case(case, *CASES[case], seed=number + 1)
