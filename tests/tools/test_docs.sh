#!/bin/sh
# The targets of README and user documents exist: links between documents, with their headings, and files that they name.
# bench/results/README.md names every result, and no other. The picture of the rooms shows those of the include law. Lines outside tables have at most 120 characters.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
links=$(mktemp)
trap 'rm -f "$links"' EXIT
failures=0
bad() {
    echo "not ok: $*"
    failures=$((failures + 1))
}

# Prints the headings' anchors, as links name them.
anchors() { # FILE
    sed -n 's/^#\{1,6\} //p' "$1" | tr 'A-Z ' 'a-z-' | tr -cd 'a-z0-9_\n-'
}

# Lists paths in backticks that stand for files of the repository; `OUT`, `NAME` and the like stand for others.
paths() { # FILE
    grep -o '`[^` ]*`' "$1" | tr -d '`' | grep -E '^(bench|docs|tests|tools|src)/' | grep -v '[A-Z*{<$]' || true
}

for doc in README.md docs/*.md docs/planner/*.md bench/README.md bench/results/README.md; do
    grep -o '](.[^)]*)' "$doc" | sed 's/^](//; s/)$//' | sort -u >"$links"
    while read -r link; do
        case $link in *://*) continue ;; esac
        file=${link%%#*}
        target=$(dirname "$doc")/$file
        [ -n "$file" ] || target=$doc
        [ -e "$target" ] || { bad "$doc: $link is not there"; continue; }
        case $link in
        *#*) anchors "$target" | grep -qx "${link#*#}" || bad "$doc: $target has no heading for #${link#*#}" ;;
        esac
    done <"$links"
done

for doc in README.md docs/*.md docs/planner/*.md bench/README.md bench/results/README.md; do
    for path in $(paths "$doc"); do
        [ -e "$path" ] || bad "$doc: $path is not there"
    done
    long=$(awk 'length > 120 && !/^\|/ { print FNR; exit }' "$doc")
    [ -z "$long" ] || bad "$doc:$long: more than 120 characters"
done

for path in bench/results/*; do
    file=$(basename "$path")
    [ "$file" = README.md ] || grep -qF "\`$file\`" bench/results/README.md || bad "bench/results/README.md does not name $file"
done
for file in $(grep -o '`[^` ]*`' bench/results/README.md | tr -d '`' | grep -E '^[a-z0-9].*\.(txt|json|log|md)$' | sort -u); do
    [ -e "bench/results/$file" ] || bad "bench/results/README.md names $file, which is not there"
done

for room in $(sed -n "/^floors='/,/^'/p" tools/include-law.sh | grep -v "'"); do
    grep -q ">$room</text>" docs/pictures/rooms.svg || bad "docs/pictures/rooms.svg lacks $room: docs/pictures/draw.py rooms >docs/pictures/rooms.svg"
done

[ "$failures" = 0 ]
