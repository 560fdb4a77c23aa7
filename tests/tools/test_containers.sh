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
grep -qx '  namespace: ltrain' tools/spack/spack_repo/ltrain/repo.yaml && grep -qx '  api: v2.0' tools/spack/spack_repo/ltrain/repo.yaml || fail "tools/spack: repo.yaml"
python3 - <<'END' || fail "tools/spack"
import re, sys, types
path = "tools/spack/spack_repo/ltrain/packages/ltrain/package.py"
recipe = open(path).read()

# Stand-ins for what Spack 1.0 documents of its modules; each directive takes its documented words and no other.
def module(name, **members):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(members)
given = []
def depends_on(spec, when=None, type=None): given.append(spec)
def variant(name, default=None, description="", values=None, multi=None, when=None): assert description; given.append("+" + name)
def version(name, sha256=None, branch=None, preferred=None): given.append("@" + name)
class MesonPackage: pass
class CudaPackage: pass
for name in ("spack", "spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"): module(name)
module("spack_repo.builtin.build_systems.cuda", CudaPackage=CudaPackage)
module("spack_repo.builtin.build_systems.meson", MesonPackage=MesonPackage)
module("spack.package", depends_on=depends_on, variant=variant, version=version)
scope = {}
exec(compile(recipe, path, "exec"), scope)
assert {"@main", "+mpi", "+uring", "+hwloc", "jansson", "cuda@13:"} <= set(given), given
class Spec:
    def satisfies(self, text): return text in ("+mpi", "+cuda")
package = scope["Ltrain"]()
package.spec = Spec()
assert package.meson_args() == ["-Dmpi=auto", "-During=disabled", "-Dhwloc=disabled", "-Dcuda=auto", "-Dtests=disabled"], package.meson_args()
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
