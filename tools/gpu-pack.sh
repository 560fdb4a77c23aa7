#!/bin/bash
# Collects what a GPU machine without Debian's packages needs to run ltrain: `tools/gpu-pack.sh [--build DIR] [--plugin FILE] OUT`, run on a
# machine that has the packages. OUT becomes a folder of 60 MB (OUT.tar.gz: a file of 18 MB), for x86-64 machines with this glibc or a newer one:
#   ltrain             sets environment variables and starts bin/ltrain; `env PROGRAM` does so for any program
#   bin/               ltrain, the CUDA plugin beside it, the programs of tools/gpu-check.sh
#   lib/ openmpi/      their libraries except glibc and NVIDIA's; Open MPI with its components (OPAL_PREFIX)
#   books.txt          real text; golden data are in the source tree
# --build: a release build (default: build-pack, made if absent, with the CUDA plugin); --plugin: replaces the build's plugin (for tests).
set -eu
cd "$(dirname "$0")/.."
fail() { echo "gpu-pack: $*" >&2; exit 1; }
usage() { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }

build='' plugin=''
while [ $# -gt 1 ]; do
    case $1 in
    --build) build=$2 ;;
    --plugin) plugin=$2 ;;
    *) usage ;;
    esac
    shift 2
done
[ $# = 1 ] || usage
case $1 in -*) usage ;; esac
out=$1 folder=${1%.tar.gz}
[ ! -e "$out" ] && [ ! -e "$folder" ] || fail "$out is there already"

programs='engine_golden_gpu engine_limits_gpu engine_products_gpu'
if [ -z "$build" ]; then
    build="build-pack"
    [ -f "$build/build.ninja" ] || meson setup -Dbuildtype=release -Dcuda=enabled -Dtests=enabled "$build" >/dev/null || fail "$build cannot be set up"
    ninja -C "$build" src/cli/ltrain src/device/cuda/libltrain-cuda.so tests/engine/engine_golden_gpu tests/engine/engine_limits_gpu tests/engine/engine_products_gpu >/dev/null || fail "$build cannot be built"
fi
ltrain=$build/src/cli/ltrain
[ -x "$ltrain" ] || fail "$ltrain is not there: build it first"
[ -n "$plugin" ] || plugin=$(find "$build" -name libltrain-cuda.so -print -quit)
[ -f "$plugin" ] || fail "there is no libltrain-cuda.so in $build: nvcc is needed to build it"

mkdir -p "$folder/bin" "$folder/lib"
cp "$ltrain" "$folder/bin/"
cp "$plugin" "$folder/bin/libltrain-cuda.so"
for program in $programs; do
    cp "$build/tests/engine/$program" "$folder/bin/" || fail "$program is not built"
done
module=$(dirname "$ltrain")/libltrain-mpi-openmpi.so
[ ! -f "$module" ] || cp "$module" "$folder/bin/"
strip "$folder"/bin/* 2>/dev/null || true

# Prints the libraries that the files need, except those of glibc, the driver and CUDA.
needed() { # FILE ...
    LD_LIBRARY_PATH=$folder/lib ldd "$@" 2>/dev/null | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | sort -u |
        grep -vE '/(ld-linux[^/]*|libc|libm|libdl|librt|libpthread|libresolv|libutil|libnsl|libanl|libmvec|libcuda|libcublas[^/]*|libnccl|libcudart)\.so' || true
}
take() { # FILE ...
    needed "$@" | while read -r file; do
        [ -f "$folder/lib/$(basename "$file")" ] || cp -L "$file" "$folder/lib/"
    done
}
take "$folder"/bin/*

# Open MPI finds its components and texts below OPAL_PREFIX. Components for fabrics are left out, since they need libraries of the machine.
if [ -f "$module" ]; then
    mpiexec=$(command -v mpiexec.openmpi || command -v mpiexec) || fail "ltrain is built with Open MPI, and mpiexec is not here"
    library=$(gcc -print-file-name=libmpi.so.40) # the module opens it by name
    [ -f "$library" ] || fail "libmpi.so.40 is not here"
    cp -L "$library" "$folder/lib/libmpi.so.40"
    take "$folder/lib/libmpi.so.40"
    mpi=$(dirname "$(readlink -f "$library")")
    components=$(find "$mpi" /usr/lib/*/openmpi/lib "$mpi/openmpi" -maxdepth 2 -name 'mca_btl_self.so' -print -quit 2>/dev/null)
    [ -n "$components" ] || fail "Open MPI's components are not beside $mpi"
    components=$(dirname "$components")
    mkdir -p "$folder/openmpi/bin" "$folder/openmpi/lib/openmpi" "$folder/openmpi/share/openmpi"
    cp -L "$mpiexec" "$folder/openmpi/bin/mpiexec"
    for program in orterun orted prterun prted; do
        [ ! -x "$(command -v $program)" ] || cp -L "$(command -v $program)" "$folder/openmpi/bin/"
    done
    for file in "$components"/mca_*.so; do
        case $(basename "$file") in
        *ofi* | *ucx* | *psm* | *openib* | *portals* | *usnic* | *memheap* | *spml* | *scoll* | *sshmem* | *atomic* | *monitoring*) continue ;;
        esac
        cp "$file" "$folder/openmpi/lib/openmpi/"
    done
    texts=$(find /usr/share/openmpi "$mpi/../share/openmpi" -maxdepth 0 -type d 2>/dev/null | head -n 1)
    [ -z "$texts" ] || cp "$texts"/*.txt "$texts"/*.ini "$folder/openmpi/share/openmpi/" 2>/dev/null || true
    take "$folder"/openmpi/bin/* "$folder"/openmpi/lib/openmpi/*
    for i in "$components"/../*.so.*; do # libraries that components load by name
        case $(basename "$i") in libmca_common_sm* | libmca_common_dstore*) cp -L "$i" "$folder/lib/" ;; esac
    done
    pmix=$(find /usr/lib/*/pmix2/lib /usr/lib/*/pmix/lib -maxdepth 1 -name 'pmix' -type d -print -quit 2>/dev/null || true)
    if [ -n "$pmix" ] && [ -n "$(find "$components" -name "mca_pmix_ext*" -print -quit)" ]; then
        mkdir -p "$folder/pmix/lib"
        cp -r "$pmix" "$folder/pmix/lib/"
        take "$folder"/pmix/lib/pmix/*.so
        cp -r "$(dirname "$pmix")"/../share "$folder/pmix/" 2>/dev/null || true
    fi
fi
find src docs -name '*.[ch]' -o -name '*.md' | LC_ALL=C sort | xargs cat >"$folder/books.txt" # real text, the same on every machine

cat >"$folder/env" <<'EOF'
#!/bin/sh
# Runs a program with this folder's libraries: `env PROGRAM [ARGUMENTS]`.
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" PATH="$here/bin:$here/openmpi/bin:$PATH"
export OPAL_PREFIX="$here/openmpi" OMPI_MCA_mca_base_component_path="$here/openmpi/lib/openmpi" OPAL_LIBDIR="$here/openmpi/lib"
[ ! -d "$here/pmix" ] || export PMIX_INSTALL_PREFIX="$here/pmix"
exec "$@"
EOF
cat >"$folder/ltrain" <<'EOF'
#!/bin/sh
# Runs ltrain with this folder's libraries.
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/env" "$here/bin/ltrain" "$@"
EOF
chmod +x "$folder/env" "$folder/ltrain"
if [ "$out" != "$folder" ]; then
    tar -czf "$out" -C "$(dirname "$folder")" "$(basename "$folder")"
    rm -r "$folder"
fi
echo "gpu-pack: $out, $(du -sm "$out" | cut -f1) MB"
