#!/bin/sh
# A report in headless Chromium: it is drawn, without an error on the console. Skipped where there is no Chromium.
set -eu
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || { echo "no Chromium here"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
fold -w 60 "$LTRAIN_SOURCE_ROOT/README.md" >text.txt
"$LTRAIN" --model tiny --data text.txt --seq-len 256 --tiles rows=64,loss=64,group=4096 --threads 1 --effort quick --offload nvme \
    --device cpu:discrete --steps 6 --eval-fraction 0.2 --eval-every 2 --trace 3 --save-every 3 --out run >log 2>&1 || { cat log; exit 1; }
echo '{"model": "m", "results": [{"task": "needle", "length": 512, "depth": 25, "score": 0.5, "answers": [{}]}]}' >scores.json

# Prints the page as it is after its script has run, with the number of tables that are cut off and of figures on two lines; what goes wrong there is on the console.
page() { # FILE
    echo '<script>document.body.append([...document.querySelectorAll(".card, td.number")].filter((c) => c.scrollWidth > c.clientWidth || (c.matches("td") && c.clientHeight > 35)).length + " misfits")</script>' |
        cat "$1" - >drawn.html
    "$browser" --headless --no-sandbox --disable-gpu --window-size=1100,900 --user-data-dir="$dir/profile" --enable-logging=stderr --dump-dom "file://$dir/drawn.html" 2>console
}
failures=0
for runs in "run" "run run scores.json"; do
    # shellcheck disable=SC2086
    "$LTRAIN" report $runs --to page.html >/dev/null
    page page.html >dom
    drawn=$(grep -o '<svg' dom | wc -l)
    [ "$drawn" -ge 10 ] || { echo "not ok: $runs: only $drawn pictures"; failures=$((failures + 1)); }
    for part in Training 'Loss by position' Memory 'What compute waited for' 'Traced steps' 'What happened' Settings; do
        grep -q "<h2>$part</h2>" dom || { echo "not ok: $runs: no section $part"; failures=$((failures + 1)); }
    done
    if grep -E 'CONSOLE|Uncaught' console; then failures=$((failures + 1)); fi
    grep -q '[^0-9]0 misfits' dom || { echo "not ok: $runs: $(grep -o '[0-9]\{1,\} misfits' dom)"; failures=$((failures + 1)); }
    if grep -q 'NaN' dom; then echo "not ok: $runs: NaN on the page"; failures=$((failures + 1)); fi
done
[ "$failures" = 0 ]
