#!/bin/bash
# Makes the table of docs/reliability.md from tests/promises.txt: `tools/reliability.sh [--check]`. Fails if a test that is named there does
# not exist or is not run; --check changes nothing, and fails if the table is another one.
set -euo pipefail
cd "$(dirname "$0")/.."
page=docs/reliability.md
bad=0
while read -r name; do
    file=tests/${name%%:*}
    function=${name#*:}
    if [ ! -f "$file" ]; then
        echo "reliability: there is no $file"; bad=1
    elif ! grep -rqF "$(basename "$file")" tests --include=meson.build; then
        echo "reliability: no meson.build runs $file"; bad=1
    elif [ "$function" != "$name" ] && ! grep -q "^static void $function(void \*\*state)" "$file" && ! grep -q "^static void $function(void)" "$file"; then
        echo "reliability: $file has no test $function"; bad=1
    fi
done < <(grep -v '^#' tests/promises.txt | cut -d'|' -f3 | tr ' ' '\n' | grep . | sort -u)
[ $bad = 0 ]
made=$(mktemp)
trap 'rm -f "$made"' EXIT
awk -F ' *[|] *' '
    /^<!-- made by/ { print; print ""; made = 1; table(); next }
    /^<!-- end -->/ { print ""; made = 0 }
    !made { print }
    function table(    line, field, tests, n, i, text, gaps) {
        print "| fault | what happens | tests |"
        print "|---|---|---|"
        while ((getline line < "tests/promises.txt") > 0) {
            if (line ~ /^#/)
                continue
            split(line, field, / *[|] */)
            n = split(field[3], tests, " ")
            text = ""
            for (i = 1; i <= n; i++)
                text = text (i > 1 ? ", " : "") "`" tests[i] "`"
            print "| " field[1] " | " (n ? field[2] : "**gap**: nothing shows it") " | " text " |"
            gaps += n == 0
        }
        print "reliability: " gaps " gaps" > "/dev/stderr"
    }' "$page" > "$made"
if [ "${1:-}" = --check ]; then
    cmp -s "$made" "$page" || { echo "reliability: tools/reliability.sh makes another table of $page"; exit 1; }
else
    cp "$made" "$page"
fi
