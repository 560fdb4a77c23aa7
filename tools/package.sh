#!/bin/bash
# Packs an installed ltrain: `tools/package.sh tar|deb|wheel [--build DIR] [DIRECTORY]` prints the file that it makes in DIRECTORY (default: .).
#   tar    ltrain-VERSION-x86_64.tar.gz: a directory that runs from anywhere, with its libraries, without root
#   deb    ltrain_VERSION_amd64.deb: for the Debian or Ubuntu that it is made on
#   wheel  ltrain-VERSION-py3-none-manylinux_2_N_x86_64.whl: `pip install` gives the command; no Python is used while it runs
# Each has the program, libltrain with its header, the modules for Open MPI and MPICH, the CUDA plugin if the build has it, man pages,
# completions and examples. None
# has an MPI, CUDA's libraries or glibc: tar and wheel need the glibc that they were made on or a newer one; N says which is enough.
# --build: a release build (default: build-package, made if absent).
set -eu
cd "$(dirname "$0")/.."
fail() { echo "package: $*" >&2; exit 1; }
usage() { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }

kind=${1:-} build=''
case $kind in tar | deb | wheel) shift ;; *) usage ;; esac
if [ "${1:-}" = --build ]; then
    [ $# -ge 2 ] || usage
    build=$2
    shift 2
fi
[ $# -le 1 ] || usage
into=$(realpath "${1:-.}")
[ -d "$into" ] || fail "$into is no directory"

if [ -z "$build" ]; then
    build="build-package"
    [ -f "$build/build.ninja" ] || meson setup -Dbuildtype=release -Dtests=disabled --prefix /usr "$build" >"$build.log" || fail "$build cannot be set up: $(grep -m 1 ERROR "$build.log")"
    ninja -C "$build" >/dev/null || fail "$build cannot be built"
fi
[ -x "$build/src/cli/ltrain" ] || fail "$build has no ltrain: build it first"
version=$("$build/src/cli/ltrain" --version | sed -n '1s/^ltrain \([0-9.]*\).*/\1/p')
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
DESTDIR=$stage/installed meson install -C "$build" --no-rebuild --quiet >/dev/null || fail "$build cannot be installed"
prefix=$(find "$stage/installed" -path '*/bin/ltrain' -print -quit)
prefix=${prefix%/bin/ltrain}

# Lays out one directory: bin, lib with libraries, share.
tree=$stage/tree
mkdir -p "$tree/lib"
cp -r "$prefix/bin" "$tree/bin"
cp -r "$prefix/share" "$tree/share"
cp -r "$prefix/include" "$tree/include"
find "$prefix/lib" \( -name 'libltrain-*.so' -o -name 'libltrain.so.[0-9]' \) -exec cp -L {} "$tree/lib/" \;
strip "$tree/bin/ltrain" "$tree"/lib/*.so*
for library in "$tree"/lib/libltrain.so.[0-9]; do ln -s "${library##*/}" "$tree/lib/libltrain.so"; done
install -m 644 LICENSE README.md "$tree/share/doc/ltrain/" 2>/dev/null || install -m 644 README.md "$tree/share/doc/ltrain/"

# Copies the libraries that the program needs, except glibc's.
bundle() {
    ldd "$tree/bin/ltrain" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | grep -vE '/(ld-linux[^/]*|libc|libm|libdl|librt|libpthread)\.so' |
        while read -r library; do cp -L "$library" "$tree/lib/"; done
    chmod 644 "$tree"/lib/*
}
# Prints the newest symbol version of glibc that the files need, as 2.N.
glibc() {
    objdump -T "$tree/bin/ltrain" "$tree"/lib/*.so* 2>/dev/null | sed -n 's/.*GLIBC_\(2\.[0-9]*\).*/\1/p' | sort -V | tail -n 1
}

case $kind in
tar)
    bundle
    out=$into/ltrain-$version-x86_64.tar.gz
    mv "$tree" "$stage/ltrain-$version"
    tar --owner=0 --group=0 --sort=name -czf "$out" -C "$stage" "ltrain-$version" ;;
deb)
    root=$stage/deb
    mkdir -p "$root/DEBIAN" "$root/usr/lib/x86_64-linux-gnu" "$stage/debian"
    cp -r "$tree/bin" "$tree/share" "$tree/include" "$root/usr/"
    cp -P "$tree"/lib/*.so* "$root/usr/lib/x86_64-linux-gnu/"
    chmod 644 "$root"/usr/lib/x86_64-linux-gnu/*
    find "$root" -name '*.1' -exec gzip -9n {} +
    printf 'Source: ltrain\n\nPackage: ltrain\nArchitecture: amd64\n' >"$stage/debian/control"
    depends=$(cd "$stage" && dpkg-shlibdeps -O --ignore-missing-info "$root/usr/bin/ltrain" 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
    [ -n "$depends" ] || fail "dpkg-shlibdeps (Debian package dpkg-dev) finds no dependencies"
    cat >"$root/DEBIAN/control" <<EOF
Package: ltrain
Version: $version
Architecture: amd64
Maintainer: ltrain <ltrain@localhost>
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Depends: $depends
Recommends: openmpi-bin | mpich
Section: science
Priority: optional
Description: trains language models on very long sequences
 Full fine-tuning and adapters with exact attention over hundreds of thousands
 of tokens, on a few GPUs or on CPUs; optimizer state, gradients, parameters and
 activations live in host memory and on NVMe, and are moved just in time.
EOF
    out=$into/ltrain_${version}_amd64.deb
    dpkg-deb --root-owner-group --build "$root" "$out" >/dev/null ;;
wheel)
    bundle
    glibc=$(glibc)
    tag=py3-none-manylinux_${glibc%.*}_${glibc#*.}_x86_64
    package=$stage/wheel/ltrain info=$stage/wheel/ltrain-$version.dist-info
    mkdir -p "$package" "$info"
    rm "$tree/lib/libltrain.so" # wheels have no links
    cp -r "$tree"/bin "$tree"/lib "$tree"/share "$tree"/include "$package/"
    cat >"$package/__init__.py" <<'EOF'
"""The program ltrain, started in place of this process."""
import os
import sys

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "ltrain")


def main():
    os.execv(PROGRAM, ["ltrain", *sys.argv[1:]])
EOF
    printf 'from ltrain import main\n\nmain()\n' >"$package/__main__.py"
    printf 'Metadata-Version: 2.1\nName: ltrain\nVersion: %s\nSummary: trains language models on very long sequences\nLicense: Apache-2.0\nRequires-Python: >=3.8\n' "$version" >"$info/METADATA"
    printf 'Wheel-Version: 1.0\nGenerator: ltrain\nRoot-Is-Purelib: false\nTag: %s\n' "$tag" >"$info/WHEEL"
    printf '[console_scripts]\nltrain = ltrain:main\n' >"$info/entry_points.txt"
    out=$into/ltrain-$version-$tag.whl
    python3 - "$stage/wheel" "$out" "ltrain-$version.dist-info/RECORD" <<'EOF'
import base64, hashlib, os, sys, zipfile

root, out, record = sys.argv[1:]
names = sorted(os.path.relpath(os.path.join(d, f), root) for d, _, files in os.walk(root) for f in files)
rows = []
with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
    for name in names:
        data = open(os.path.join(root, name), "rb").read()
        entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (0o100755 if name == "ltrain/bin/ltrain" else 0o100644) << 16
        z.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append("%s,sha256=%s,%d\n" % (name, digest, len(data)))
    z.writestr(record, "".join(rows) + record + ",,\n")
EOF
    ;;
esac
echo "$out"
