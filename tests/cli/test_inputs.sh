#!/bin/sh
# Ranks that read different files, or are different programs: `test_inputs.sh LTRAIN PLUGIN` (a fake GPU's plugin). Two working directories
# stand for two hosts.
set -eu
. "$(dirname "$0")/../mpi.sh"
ltrain=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
plugin=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
failures=0
mkdir A B
yes 'It was a dark and stormy night.' | head -c 3000 >A/t.txt
yes 'It was a dark and stormy light.' | head -c 3000 >B/t.txt
cp A/t.txt A/same.txt
cp A/t.txt B/same.txt
common="--model tiny --seq-len 64 --steps 1 --device cpu --offload none --threads 1 --effort quick"
args=$common

expect() { # WHAT STATUS PATTERN PROGRAM-OF-B ARGUMENTS: rank 0 in A, rank 1 in B
    what=$1 wanted=$2 pattern=$3 other=$4 status=0
    shift 4
    rm -rf run
    # shellcheck disable=SC2086 # lists of words
    timeout -k 5 1000 $mpi -wdir "$home/A" -n 1 "$ltrain" $args "$@" --out "$home/run" : -wdir "$home/B" -n 1 "$other" $args "$@" \
        --out "$home/run" >out 2>err || status=$?
    if [ "$status" != "$wanted" ] || ! grep -Eq -e "$pattern" out err || { [ "$status" != 0 ] && [ -e run ]; }; then
        echo "not ok: $what: exit status $status, wanted $wanted and '$pattern' on stderr:"
        cat err
        failures=$((failures + 1))
    fi
}

mkdir A/d B/d
cp A/t.txt A/d/1
cp A/t.txt A/d/2
cp A/t.txt B/d/1
expect "other data" 2 "^ltrain: rank 1: --data: $home/B/t.txt differs from what rank 0 has" "$ltrain" --data t.txt --mesh ring=2
expect "more data" 2 "^ltrain: rank 1: --data: 1 files are found here and 2 on rank 0, $home/A/d/2 only there" "$ltrain" --data d
expect "other evaluation data" 2 "^ltrain: rank 1: --eval-data: $home/B/t.txt differs" "$ltrain" --data same.txt --eval-data t.txt
cp "$ltrain" other && cp "$(dirname "$ltrain")"/libltrain-mpi-*.so .
expect "copies of data and program" 0 "^model: " "$home/other" --data same.txt
echo . >>other
expect "another build" 2 "^ltrain: rank 1: this rank runs ltrain .* all hosts need the same program" "$home/other" --data same.txt

# a directory of the run that only rank 0 sees: nothing is trained, as it could not be saved
status=0
# shellcheck disable=SC2086 # lists of words
timeout -k 5 1000 $mpi -wdir "$home/A" -n 1 "$ltrain" $common --data same.txt --out own : -wdir "$home/B" -n 1 "$ltrain" $common \
    --data same.txt --out own >out 2>err || status=$?
if [ $status != 2 ] || grep -q '^step ' out || ! grep -q '^ltrain: rank 1: own as rank 0 has made it cannot be seen from here' err; then
    echo "not ok: a directory that one rank does not see: exit status $status"
    cat out err
    failures=$((failures + 1))
fi

# the GPUs' kernels are in a file of their own
cp "$plugin" plugin.so
echo . >>plugin.so
status=0
# shellcheck disable=SC2086 # lists of words
timeout -k 5 1000 $mpi -n 1 -x LTRAIN_CUDA_PLUGIN="$plugin" "$ltrain" $common --data A/t.txt --device cuda --dtype bf16 --out gpu : \
    -n 1 -x LTRAIN_CUDA_PLUGIN="$home/plugin.so" "$ltrain" $common --data A/t.txt --device cuda --dtype bf16 --out gpu >out 2>err || status=$?
if [ $status != 2 ] || ! grep -q "^ltrain: rank 1: --device cuda: $home/plugin.so .* is another build" err; then
    echo "not ok: another build of the plugin: exit status $status"
    cat err
    failures=$((failures + 1))
fi

# programs are for one kind of GPU
status=0
# shellcheck disable=SC2086 # lists of words
timeout -k 5 1000 $mpi -n 1 -x LTRAIN_CUDA_PLUGIN="$plugin" -x LTRAIN_FAKE_CUDA=devices=2 "$ltrain" $common --data A/t.txt --device cuda --out kinds : \
    -n 1 -x LTRAIN_CUDA_PLUGIN="$plugin" -x LTRAIN_FAKE_CUDA=devices=2,name=other,processors=3 "$ltrain" $common --data A/t.txt --device cuda --out kinds >out 2>err || status=$?
if [ $status != 2 ] || ! grep -q "^ltrain: rank 1: --device cuda: the GPU here is other (compute capability 0.0, 3 multiprocessors), rank 0 has twin (0.0, 1): all" err; then
    echo "not ok: GPUs of two kinds: exit status $status"
    cat err
    failures=$((failures + 1))
fi

# data that change under both ranks: reported once, and the state is saved
cp A/t.txt changing.txt
# shellcheck disable=SC2086 # lists of words
timeout -k 5 1000 $mpi -n 2 "$ltrain" $common --steps 1000000 --data changing.txt --mesh ring=2 --grad-accum 2 --out changing >out 2>err &
until grep -q '^step 2/' out 2>/dev/null || ! kill -0 $! 2>/dev/null; do sleep 0.05; done
echo more >>changing.txt
status=0
wait $! || status=$?
if [ $status != 1 ] || [ "$(wc -l <err)" != 1 ] || ! grep -q "^ltrain: .*changing.txt has changed since .* continue with --resume changing" err ||
    [ ! -e changing/checkpoints/latest ]; then
    echo "not ok: data change under two ranks: exit status $status"
    cat err
    failures=$((failures + 1))
fi

# weights that a run leaves, and a change of one byte, or of the configuration
# shellcheck disable=SC2086
"$ltrain" $common --data A/same.txt --out first >/dev/null
cp -r first/hf A/m
cp -r first/hf B/m
args="--seq-len 64 --steps 1 --device cpu --offload none --threads 1 --effort quick --model m --data same.txt"
expect "copies of weights" 0 "^model: " "$ltrain"
printf X | dd of=B/m/model.safetensors bs=1 seek=5000 conv=notrunc status=none
expect "other weights" 2 "^ltrain: rank 1: --model: .*m/model.safetensors differs" "$ltrain"
cp A/m/model.safetensors B/m/
sed 's/"rope_theta": *[0-9.]*/"rope_theta": 5000.0/' A/m/config.json >B/m/config.json
expect "another configuration" 2 "^ltrain: rank 1: --model: config.json is another one on rank 0: " "$ltrain"

[ "$failures" = 0 ]
