#!/usr/bin/env python3
"""Whether PEFT and transformers read what a run with adapters leaves; by hand, with the environment of make_golden.py and PEFT.

    check_adapter.py RUN MERGED     RUN/hf: the adapter; MERGED: what `ltrain export --model RUN --to MERGED` made

No key may be missing or unexpected; the merged model has the adapted one's logits, and PEFT's own merge has its bytes.
"""
import json
import os
import sys

import torch
from peft import PeftConfig, PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def main(run, merged):
    adapter = os.path.join(run, "hf")
    config = PeftConfig.from_pretrained(adapter)
    base, info = AutoModelForCausalLM.from_pretrained(config.base_model_name_or_path, output_loading_info=True, dtype="auto")
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    model = PeftModel.from_pretrained(base, adapter)
    result = model.load_adapter(adapter, "again")
    assert not [k for k in result.missing_keys if "again" in k] and not result.unexpected_keys, result
    model.delete_adapter("again")
    model.set_adapter("default")
    ours, info = AutoModelForCausalLM.from_pretrained(merged, output_loading_info=True, dtype="auto")
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    tokens = torch.arange(1, 33)[None] % base.config.vocab_size
    with torch.no_grad():
        adapted = model.eval()(input_ids=tokens).logits.double()
        with model.disable_adapter():
            plain = model(input_ids=tokens).logits.double()
        after = ours.eval()(input_ids=tokens).logits.double()
    change = (adapted - plain).norm() / plain.norm()
    differ = (adapted - after).norm() / adapted.norm()
    theirs = {k: v for k, v in model.merge_and_unload().state_dict().items()}
    unequal, largest = 0, 0.0
    for k, v in ours.state_dict().items():
        d = (v.double() - theirs[k].double()).abs().max().item()
        unequal += int((v != theirs[k]).sum())
        largest = max(largest, d)
    with open(os.path.join(adapter, "adapter_config.json")) as f:
        words = json.load(f)
    print(f"{run}: r {words['r']}, {len(load_file(os.path.join(adapter, 'adapter_model.safetensors')))} tensors, base {ours.dtype}; "
          f"adapter changes logits by {change:.2e}, merged differ by {differ:.2e}; elements unequal to merge_and_unload's: {unequal} "
          f"(largest difference {largest:.1e})")
    assert change > 1e-4 and differ < (3e-2 if ours.dtype == torch.bfloat16 else 1e-5)


if __name__ == "__main__":
    main(*sys.argv[1:3])
