#!/bin/sh
# Makes docs/pictures/report.png, a screenshot of a report: docs/pictures/report.sh LTRAIN (the program). Needs chromium, bible-kjv.
set -eu
ltrain=$(realpath "$1")
target=$(realpath "$(dirname "$0")")/report.png
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
bible -f 'gen1:1-rev22:21' </dev/null >kjv.txt
"$ltrain" --model tiny --data kjv.txt --seq-len 2k --device cpu:discrete --device-mem 40M --steps 120 --lr 5e-3 --warmup 8 --schedule linear \
    --offload nvme --eval-fraction 0.02 --eval-every 20 --out kjv >/dev/null
"$ltrain" report kjv
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1200,1180 --screenshot="$target" "file://$dir/kjv/report.html" 2>/dev/null
