#!/bin/bash
# Trains with everything on overlayfs, on FUSE (bindfs), and on a drive with sectors of 4 KiB: test_filesystems.sh LTRAIN. Each run stops
# after two steps and is resumed; its state has the bits of a run in an ordinary directory. A kind of file system that cannot be mounted
# here is left out; where none can, the test is skipped.
set -u
ltrain=$(realpath "$1")
[ "${2:-}" = inside ] || exec unshare -m --propagation private "$0" "$1" inside 2>/dev/null || exit 77
home=$(mktemp -d "${TMPDIR:-/tmp}/ltrain-filesystems-XXXXXX") || exit 77
loop=
leave() {
    for place in "$home"/*/mounted; do
        umount "$place" 2>/dev/null
    done
    [ -z "$loop" ] || losetup -d "$loop"
    rm -rf "$home"
}
trap leave EXIT
cd "$home" || exit 1
for i in $(seq 400); do
    echo "In the year $i there were $((i * i % 17)) kings and $((i % 5)) wars."
done >corpus.txt
options="--model tiny --data $home/corpus.txt --seq-len 64 --tiles rows=64,loss=64,group=65536 --threads 1 --effort quick --device cpu:discrete --offload nvme"

mount_overlay() {
    mkdir overlay/lower overlay/upper overlay/work && mount -t overlay none -o lowerdir=overlay/lower,upperdir=overlay/upper,workdir=overlay/work overlay/mounted
}
mount_fuse() {
    mkdir fuse/below && bindfs --no-allow-other fuse/below fuse/mounted
}
mount_sectors() {
    truncate -s 64M sectors/image && loop=$(losetup -b 4096 -f --show sectors/image) && mkfs.ext4 -q "$loop" && mount "$loop" sectors/mounted
}

# Trains two steps in a directory, then two more.
train() {
    # shellcheck disable=SC2086 # a list of words
    "$ltrain" $options --steps 4 --save-every 2 --out "$1" >"$1.out" 2>&1 && rm -rf "$1/checkpoints/step-000004" "$1/hf" &&
        "$ltrain" --resume "$1" >"$1.out" 2>&1
}

train plain || { cat plain.out; exit 1; }
tried=0 failures=0
for kind in overlay fuse sectors; do
    mkdir -p "$kind/mounted"
    if ! "mount_$kind" >/dev/null 2>&1; then
        echo "$kind: cannot be mounted here"
        continue
    fi
    tried=$((tried + 1))
    if ! train "$kind/mounted/run" || ! cmp plain/checkpoints/step-000004/digests.txt "$kind/mounted/run/checkpoints/step-000004/digests.txt"; then
        echo "not ok: $kind:"
        cat "$kind/mounted/run.out"
        failures=$((failures + 1))
    fi
done
[ $tried -gt 0 ] || exit 77
[ $failures = 0 ]
