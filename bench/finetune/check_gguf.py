#!/usr/bin/env python3
"""Whether llama.cpp's converters read what ltrain has written: every matrix of their files, in fp32, beside ltrain's.

    convert_hf_to_gguf.py --outtype f32 --outfile mine.gguf MERGED
    convert_lora_to_gguf.py --base BASE --outtype f32 --outfile mine-lora.gguf RUN/hf
    check_gguf.py MERGED mine.gguf RUN/hf mine-lora.gguf

MERGED is what `ltrain export --model RUN --to MERGED` made. Of models of the Llama family, whose q and k have rotary pairs in another order in
GGUF. Needs numpy, safetensors and gguf.
"""
import json
import os
import sys

import numpy as np
from gguf import GGUFReader
from safetensors import safe_open

if "--help" in sys.argv:
    print(__doc__)
    sys.exit()

NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm"}
ENDS = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}


def name_of(name):
    if name in ENDS:
        return ENDS[name]
    _, _, layer, rest = name.split(".", 3)
    for ours, theirs in NAMES.items():
        if rest.startswith(ours + "."):
            return f"blk.{layer}.{theirs}.{rest[len(ours) + 1:]}"
    raise SystemExit(f"no name for {name}")


def paired(w, heads):
    """Rows of each head: i and i + half stand side by side."""
    return w.reshape(heads, 2, -1, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def read(folder, file):
    with safe_open(os.path.join(folder, file), "np") as f:
        return {name: f.get_tensor(name).astype(np.float32) for name in f.keys()}


def compare(what, ours, reader, config, translate):
    theirs = {t.name: np.asarray(t.data).reshape(t.shape[::-1]) for t in reader.tensors}
    for name, w in ours.items():
        heads = config["num_attention_heads"] if ".q_proj." in name else config["num_key_value_heads"] if ".k_proj." in name else 0
        if heads and not name.endswith("lora_A.weight"): # its rows are not the map's
            w = paired(w, heads)
        if not np.array_equal(theirs.pop(translate(name)), w):
            raise SystemExit(f"{what}: {name} differs")
    rest = [x for x in theirs if not x.startswith("rope_freqs")]
    if rest:
        raise SystemExit(f"{what}: {rest} are none of ltrain's")
    print(f"{what}: all {len(ours)} tensors are equal, bit for bit")


def main():
    merged, whole, adapter, lora = sys.argv[1:]
    with open(os.path.join(merged, "config.json")) as f:
        config = json.load(f)
    compare(whole, read(merged, "model.safetensors"), GGUFReader(whole), config, name_of)
    reader = GGUFReader(lora)
    compare(lora, read(adapter, "adapter_model.safetensors"), reader, config,
            lambda n: name_of(n.removeprefix("base_model.model.").replace(".lora_", ".weight.lora_").removesuffix(".weight")).replace(".lora_A", ".lora_a").replace(".lora_B", ".lora_b"))
    alpha = reader.fields["adapter.lora.alpha"].parts[-1][0]
    with open(os.path.join(adapter, "adapter_config.json")) as f:
        assert alpha == json.load(f)["lora_alpha"]
    print(f"{lora}: alpha {alpha:g}, as adapter_config.json has it")


if __name__ == "__main__":
    main()
