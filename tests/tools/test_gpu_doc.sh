#!/bin/sh
# docs/gpu.md quotes what ltrain says: each quotation in the first column of its table of troubles is in the sources, and there are ten.
set -eu
cd "$(dirname "$0")/../.."
said=$(mktemp)
trap 'rm -f "$said" "$said.q" "$said.p"' EXIT
# Sentences as they are compiled: adjacent literals are one.
find src -name '*.[ch]' -exec cat {} + | tr '\n' ' ' | sed 's/"  *"//g' >"$said"
sed -n '/^## Troubles/,/^## Testing/p' docs/gpu.md | grep '^| `' | sed 's/^| \(.*\) | [^|]*|$/\1/' |
    sed -n 's/^`\([^`]*\)`.*/\1/p' >"$said.q"
failures=0
sed 's/ *\.\.\. */\n/g' "$said.q" | grep . >"$said.p" # three dots stand for what is filled in
while read -r quoted; do
    grep -qF -- "$quoted" "$said" || { echo "not ok: nothing in src says \"$quoted\""; failures=$((failures + 1)); }
done <"$said.p"
n=$(wc -l <"$said.q")
[ "$n" -ge 10 ] || { echo "not ok: $n troubles are quoted, not ten"; failures=1; }
echo "$n quotations, $failures not found"
[ "$failures" = 0 ]
