#!/usr/bin/env python3
"""Plans the longest sequences over GPU memory: `lengths.py LTRAIN >docs/pictures/lengths.json` (some 40 plans, minutes); `draw.py lengths` draws them.

Whole models trained in bf16 on one card with the rates of an H200 and less memory: with the card's memory alone, with 512 GB of host memory, and with
drives of 4 TB beside it."""
import json
import subprocess
import sys

MODELS = ("1b", "8b")
MEMORY = (16, 24, 40, 80, 128)  # GiB
PLACES = {  # options of each way to run
    "the card alone": "--offload none --host-mem 4G --nvme-max 0",
    "with 512 GB of host memory": "--host-mem 512G --nvme-max 0",
    "and drives of 4 TB": "--host-mem 512G --nvme-max 4T",
}


def longest(ltrain, model, memory, options):
    """Returns the tokens of the longest sequence that fits; None: none does."""
    words = f"plan --model {model} --max-seq --dtype bf16 --machine h200 --device-mem {memory}G --effort quick --json".split()
    done = subprocess.run([ltrain, *words, *options.split()], capture_output=True, text=True)
    if done.returncode == 3:
        return None
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    return plan["seq_len"] if plan["fits"] else None


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    table = {model: {place: {str(m): longest(sys.argv[1], model, m, options) for m in MEMORY} for place, options in PLACES.items()} for model in MODELS}
    print(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
