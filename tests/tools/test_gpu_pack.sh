#!/bin/bash
# tools/gpu-pack.sh: its package runs on a system of glibc, sh and dirname only (as root, in a folder of its own as /), on the processor, on
# the fake GPU and with two ranks; it is below 25 MB. LTRAIN_BUILD names the build (build-release or build).
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
build=''
for b in ${LTRAIN_BUILD:-} build-release build; do
    [ -n "$build" ] || [ ! -f "$b/tests/cudasim/fake/libltrain-cuda-twin.so" ] || build=$b
done
[ -n "$build" ] || { echo "skipped: no build with the fake GPU"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "not ok: $*"; exit 1; }

tools/gpu-pack.sh --build "$build" --plugin "$build/tests/cudasim/fake/libltrain-cuda-twin.so" "$folder/pack.tar.gz" >"$folder/said" 2>&1 ||
    fail "$(cat "$folder/said")"
[ "$(wc -c <"$folder/pack.tar.gz")" -lt 25000000 ] || fail "the archive has $(wc -c <"$folder/pack.tar.gz") bytes"
if tools/gpu-pack.sh --build "$build" "$folder/pack.tar.gz" 2>/dev/null; then fail "an archive that was there is overwritten"; fi
mkdir "$folder/empty"
tar xzf "$folder/pack.tar.gz" -C "$folder/empty"
pack=$folder/empty/pack
for file in bin/ltrain bin/libltrain-cuda.so books.txt env; do
    [ -e "$pack/$file" ] || fail "$file is not in it"
done
# All libraries are in the package or glibc's.
LD_LIBRARY_PATH=$pack/lib ldd "$pack/bin/ltrain" | sed -n 's/.*=> \([^ ]*\) .*/\1/p' |
    grep -vE "^$pack/lib/|/(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+)\.so" >"$folder/foreign" && fail "taken from elsewhere: $(cat "$folder/foreign")"

# The bare machine: its / is a folder with glibc, sh and dirname.
[ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null || { echo "packed; the rest is skipped: only root can make a / of its own"; exit 0; }
machine=$folder/machine
mkdir -p "$machine"/{lib64,bin,proc,dev,sys,tmp,etc}
cp -L /lib64/ld-linux-x86-64.so.2 "$machine/lib64/"
libraries() { ldd "$@" 2>/dev/null | sed -n 's/.*=> \([^ ]*\) .*/\1/p' | sort -u; }
for program in sh dirname; do
    cp -L "$(command -v $program)" "$machine/bin/"
done
libc=$(libraries "$build/src/cli/ltrain" | grep '/libc\.so')
directory=$(dirname "$libc")
mkdir -p "$machine$directory"
for name in libc libm libdl librt libpthread libresolv libutil libnss_files libgcc_s; do
    for file in "$directory/$name".so.*; do [ ! -e "$file" ] || cp -L "$file" "$machine$directory/"; done
done
libraries "$machine/bin/dirname" "$machine/bin/sh" | while read -r file; do
    mkdir -p "$machine$(dirname "$file")"
    cp -nL "$file" "$machine$file"
done
echo "root:x:0:0:root:/tmp:/bin/sh" >"$machine/etc/passwd"
echo "127.0.0.1 localhost" >"$machine/etc/hosts"
mv "$pack" "$machine/pack"
cat >"$machine/run.sh" <<'EOF'
cd /tmp
export PATH=/bin HOME=/tmp LTRAIN_FAKE_CUDA=seed=2
options="--model tiny --data /pack/books.txt --seq-len 256 --steps 1 --save-every 0 --threads 1"
/pack/ltrain --version
/pack/ltrain $options --device cpu --offload nvme --out cpu && echo "processor: done"
export LTRAIN_CUDA_PLUGIN=/pack/bin/libltrain-cuda.so
/pack/ltrain $options --device cuda --offload nvme --out gpu && echo "GPU: done"
/pack/ltrain $options --device cuda --ranks 2 --out ranks && echo "ranks: done"
EOF
unshare -m sh -c "for d in proc dev sys; do mount --rbind /\$d '$machine'/\$d || exit 1; done; exec timeout 300 chroot '$machine' /bin/sh /run.sh" >"$folder/said" 2>&1 ||
    { tail -n 20 "$folder/said"; fail "it does not run"; }
grep -q '^ltrain [0-9]' "$folder/said" && grep -q '^processor: done' "$folder/said" && grep -q '^device: GPU 0, twin' "$folder/said" &&
    grep -q '^GPU: done' "$folder/said" || { tail -n 20 "$folder/said"; fail "something is missing in what it said"; }
if [ ! -f "$build/src/cli/libltrain-mpi-openmpi.so" ]; then
    echo "ok, without ranks"
else
    grep -q '^ranks: done' "$folder/said" || { tail -n 20 "$folder/said"; fail "two ranks do not run"; }
    echo "ok"
fi
