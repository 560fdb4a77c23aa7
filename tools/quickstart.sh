#!/bin/sh
# Takes a bare Debian machine to a trained model in minutes: installs packages, builds, and trains on the King James Bible (public domain)
# with sequences of 16k tokens and everything offloaded to disk, on a device too small to train without offloading. No GPU needed.
# LTRAIN_QUICKSTART_DIR names the folder for text and run (default ./quickstart), LTRAIN_BUILD the build directory (default build-release).
set -eu
dir=${LTRAIN_QUICKSTART_DIR:-quickstart}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
[ -e "$dir/.gitignore" ] || echo '*' >"$dir/.gitignore"
cd "$(dirname "$0")/.."
build=${LTRAIN_BUILD:-build-release}

tools/setup.sh text

echo "quickstart: building $build"
if [ ! -f "$build/build.ninja" ]; then
    meson setup -Dbuildtype=release -Dtests=disabled "$build" >"$dir/build.log" 2>&1 || { cat "$dir/build.log"; exit 1; }
fi
ninja -C "$build" src/cli/ltrain >"$dir/build.log" 2>&1 || { tail -n 40 "$dir/build.log"; exit 1; }
ltrain=$build/src/cli/ltrain

# Prints one verse per line; -f turns off the pretty-printing.
bible -f 'gen1:1-rev22:21' </dev/null >"$dir/kjv.txt"
[ "$(wc -c <"$dir/kjv.txt")" -gt 4000000 ] || { echo "quickstart: bible printed no more than $(wc -c <"$dir/kjv.txt") bytes" >&2; exit 1; }

# Prints a command as it could be typed, and runs it.
run() {
    printf '\n$ %s\n' "$*"
    "$@"
}

rm -rf "$dir/run" # removes the previous quickstart's run, since ltrain overwrites no run

# A learning rate that falls to zero lets a short run settle.
set -- --model tiny --data "$dir/kjv.txt" --seq-len 16k --device cpu:discrete --device-mem 40M \
    --steps 40 --lr 5e-3 --warmup 4 --schedule linear --out "$dir/run"

# With everything on the device, 40 MiB are too little: ltrain exits with 3 and says what would suffice.
status=0
run "$ltrain" "$@" --zero 3 --offload none 2>&1 || status=$?
if [ "$status" != 3 ]; then
    echo "quickstart: --offload none should have been refused with exit status 3, not $status" >&2
    exit 1
fi

# Trains the same model with everything on disk.
{ status=0; run "$ltrain" "$@" --zero 3 --offload nvme 2>&1 || status=$?; echo "$status" >"$dir/status"; } | tee "$dir/train.log"
read -r status <"$dir/status"
rm "$dir/status"
[ "$status" = 0 ] || { echo "quickstart: training ended with exit status $status" >&2; exit 1; }

entropy=$(sed -n 's/.*unigram entropy \([0-9.]*\) nats\/token.*/\1/p' "$dir/train.log" | head -n 1)
loss=$(tail -n 1 "$dir/run/metrics.jsonl" | sed -n 's/.*"loss": *\([-+0-9.eE]*\)[,}].*/\1/p')
echo
awk -v loss="$loss" -v entropy="$entropy" 'BEGIN {
    if (loss !~ /^[0-9]/ || entropy !~ /^[0-9]/) {
        print "quickstart: no loss (\"" loss "\") or no entropy (\"" entropy "\") found"
        exit 1
    }
    below = loss + 0 < entropy + 0
    printf "final loss %.4f %s unigram entropy %.4f\n", loss, below ? "<" : "is not <", entropy
    exit !below
}'
