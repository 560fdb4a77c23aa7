#!/bin/sh
# Ranks on several "hosts" of any sizes and in any order: `test_hosts.sh LTRAIN`. Groups of heads stay inside hosts, and a rank's host
# changes no bit.
set -eu
. "$(dirname "$0")/../mpi.sh"
unshare --uts true 2>/dev/null || { echo "no UTS namespaces here"; exit 77; }
onhost=$(cd "$(dirname "$0")/.." && pwd)/onhost.sh
ltrain=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
home=$(mktemp -d "${TMPDIR:-/tmp}/hosts-XXXXXX")
trap 'rm -rf "$home"' EXIT
cd "$home"
yes 'It was a dark and stormy night; the rain fell in torrents, except at occasional intervals.' | head -c 20000 >corpus.txt
failures=0
bad() {
    echo "not ok: $*"
    failures=$((failures + 1))
}
run() { # "HOST..." ARGUMENT...
    HOSTS=$1
    export HOSTS
    shift
    # shellcheck disable=SC2086 # a list of words
    timeout -k 5 500 $mpi -n 4 "$onhost" "$ltrain" "$@" >out 2>&1 || { bad "hosts $HOSTS: $*: exit status $?"; cat out; }
}
# Moments in bf16 are rounded by the number of their element in the model, which follows from the rank's place.
tiny="--model tiny --data corpus.txt --seq-len 256 --steps 4 --save-every 2 --keep 9 --threads 1 --optim-dtype bf16 --tiles rows=64,loss=64,group=4096 --effort quick"
losses() { grep -o '"loss":[^,]*,"grad_norm":[^,]*' "$1/metrics.jsonl"; }

# shellcheck disable=SC2086 # lists of words
{
# Ranks placed host by host or in turn have equal groups and bits, and no all-to-all between hosts.
for hosts in "a a b b" "a b a b" "a b b a"; do
    name=$(echo "$hosts" | tr -d ' ')
    run "$hosts" $tiny --mesh ulysses=2,ring=2 --out "$name"
    grep -q '^mesh: 4 ranks .* on 2 hosts: dp 1, ring 2, ulysses 2' out || bad "$hosts: $(grep '^mesh' out)"
    grep -q '^remark' out && bad "$hosts: $(grep '^remark' out)"
    grep -q 'ulysses [^ ]* [KM]iB inside hosts, 0 B to others' out || bad "$hosts: $(grep '^sent' out)"
    losses aabb >wanted
    losses "$name" | cmp -s wanted - || bad "$hosts: another curve than that of a a b b"
    cmp -s aabb/hf/model.safetensors "$name/hf/model.safetensors" || bad "$hosts: another model than that of a a b b"
done
# Hosts of different sizes take a degree that divides them all; a given degree stays, and its cost is reported.
run "a a b c" $tiny --sp auto --out uneven
grep -q '^mesh: 4 ranks .* on 3 hosts: dp 1, ring 4, ulysses 1' out || bad "uneven: $(grep '^mesh' out)"
run "a a b c" $tiny --mesh ulysses=2,ring=2 --out given
grep -q '^remark: the ulysses group of rank 2 on b has rank 3 on c' out || bad "given: $(grep -E '^(mesh|remark)' out)"
# A run is resumed from its checkpoint with the ranks on other hosts.
rm -r aabb/checkpoints/step-000004 aabb/hf
echo step-000002 >aabb/checkpoints/latest
run "b a b a" --resume aabb
losses aabb | cmp -s wanted - || bad "resumed: another curve"
cmp -s aabb/hf/model.safetensors abab/hf/model.safetensors || bad "resumed: another model"
}
[ "$failures" = 0 ]
