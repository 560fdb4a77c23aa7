#!/bin/sh
# transformers 4.57.1 and 5.24.0: the step limit of Mamba-2 models, (0, infinity), has two spellings in config.json. The older release writes a bare Infinity,
# which is no JSON; the newer one writes the object {"__float__": "Infinity"}. The newer release reads both. The older one takes the newer spelling for a
# dictionary and says nothing, so a model that was saved anew fails there only once it runs. What is seen: both spellings, and what each release reads of each.
# Fails where that changes. What follows for ltrain: both spellings are read, and an export keeps the one that it has read.
set -eu
w=$(mktemp -d)
trap 'rm -rf "$w"' EXIT
cd "$w"
for version in 4.57.1 5.24.0; do
    python3 -m venv "$version"
    "$version/bin/pip" install --quiet "transformers==$version"
    TRANSFORMERS_VERBOSITY=error "$version/bin/python" -W ignore -c "
from transformers import Mamba2Config
Mamba2Config().save_pretrained('of-$version')"
    printf '%s writes: %s\n' "$version" "$(sed -n '/"time_step_limit"/,/\]/p' "of-$version/config.json" | tr -d ' \n')"
done
reads() { # VERSION OF
    TRANSFORMERS_VERBOSITY=error "$1/bin/python" -W ignore -c "
from transformers import Mamba2Config
print(Mamba2Config.from_pretrained('of-$2').time_step_limit)"
}
grep -q '^ *Infinity$' of-4.57.1/config.json
grep -q '"__float__": "Infinity"' of-5.24.0/config.json
for version in 4.57.1 5.24.0; do
    for of in 4.57.1 5.24.0; do echo "$version reads $of: $(reads "$version" "$of" | tee "read-$version-$of")"; done
done
grep -q 'inf[])]' read-5.24.0-4.57.1
grep -q __float__ read-4.57.1-5.24.0
