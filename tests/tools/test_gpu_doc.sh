#!/bin/sh
# docs/gpu.md quotes ltrain's messages: each of the ten quotations in the first column of its table of troubles is in the sources. So are
# the parts between names, numbers and punctuation of its table of example lines.
set -eu
cd "$(dirname "$0")/../.."
said=$(mktemp)
trap 'rm -f "$said" "$said.q" "$said.p" "$said.l"' EXIT
# messages as they are compiled: adjacent literals are joined
find src -name '*.[ch]' -exec cat {} + | tr '\n' ' ' | sed 's/"  *"//g' >"$said"
sed -n '/^## Troubles/,/^## Testing/p' docs/gpu.md | grep '^| `' | sed 's/^| \(.*\) | [^|]*|$/\1/' |
    sed -n 's/^`\([^`]*\)`.*/\1/p' >"$said.q"
filled='s/(^| )(NAME|[A-D]|[^ ]*[0-9][^ ]*)( |$)/\n/g' # twice, as neighbours share a space
sed -n '/^## What the lines say/,/^## Troubles/p' docs/gpu.md | grep '^| `' | sed 's/^| \(.*\) | [^|]*|$/\1/' | grep -o '`[^`]*`' | tr -d '`' |
    sed 's/\.\.\./\n/g; s/[:;,()%]/\n/g' | sed -E "$filled" | sed -E "$filled" | sed 's/^ *//; s/ *$//' | grep '[a-z].*[a-z].*[a-z]' >"$said.l"
failures=0
sed 's/ *\.\.\. */\n/g' "$said.q" | grep . >"$said.p" # three dots stand for filled-in parts
while read -r quoted; do
    grep -qF -- "$quoted" "$said" || { echo "not ok: nothing in src says \"$quoted\""; failures=$((failures + 1)); }
done <"$said.p"
while read -r quoted; do
    grep -qF -- "$quoted" "$said" || { echo "not ok: nothing in src says \"$quoted\", of a line"; failures=$((failures + 1)); }
done <"$said.l"
[ "$(wc -l <"$said.l")" -ge 20 ] || { echo "not ok: of lines only $(wc -l <"$said.l") pieces are quoted"; failures=1; }
n=$(wc -l <"$said.q")
[ "$n" -ge 10 ] || { echo "not ok: $n troubles are quoted, not ten"; failures=1; }
echo "$n quotations, $failures not found"
[ "$failures" = 0 ]
