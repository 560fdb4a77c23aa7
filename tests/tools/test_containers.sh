#!/bin/bash
# tools/containers, tools/spack: what they name is there. With LTRAIN_LONG, as root with debootstrap, both files' steps are run in directories.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "not ok: $*"; exit 1; }
for file in Dockerfile ltrain.def; do
    grep -o 'tools/[a-z/-]*\.sh' "tools/containers/$file" | sort -u >"$folder/named"
    [ "$(wc -l <"$folder/named")" -ge 3 ] || fail "$file names few scripts"
    while read -r script; do [ -x "$script" ] || fail "$file: there is no $script"; done <"$folder/named"
    grep -o 'nvidia/cuda:[0-9]*' "tools/containers/$file" | sort -u | grep -qx 'nvidia/cuda:13' || fail "$file: another CUDA than docs/gpu.md"
done
sed -n 's/^RUN //p' tools/containers/Dockerfile | while read -r line; do sh -n -c "$line" || fail "$line"; done
# The recipe has a dependency for each library that meson.build asks for, and a variant for each option that it sets.
python3 - <<'END' || fail "tools/spack"
import ast, re
recipe = open("tools/spack/packages/ltrain/package.py").read()
ast.parse(recipe)
spack = {"yaml-0.1": "libyaml", "libxxhash": "xxhash", "libpcre2-8": "pcre2", "libutf8proc": "utf8proc", "zlib": "zlib-api", "libzstd": "zstd", "ompi-c": "mpi", "mpich": "mpi", "cmocka": None, "threads": None, "openmp": None, "dl": None}
asked = set(re.findall(r"dependency\('([^']+)'", open("meson.build").read()))
assert len(asked) > 8, asked
for name in asked:
    want = spack.get(name, name)
    assert want is None or 'depends_on("%s"' % want in recipe, name
options = set(re.findall(r"option\('(\w+)'", open("meson_options.txt").read()))
assert set(re.search(r'for name in \((.*?)\)\]', recipe).group(1).replace('"', "").split(", ")) <= options
END
if [ -n "${LTRAIN_LONG:-}" ] && [ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null; then
    for file in Dockerfile ltrain.def; do tools/containers/in-chroot.sh "$file" "$folder/$file" || fail "$file"; done
fi
echo ok
