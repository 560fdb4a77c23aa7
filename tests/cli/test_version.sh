#!/bin/sh
# `--version` prints the release and its build options: `test_version.sh LTRAIN VERSION`.
set -eu
for asked in --version -V version "plan --version" "--model nope --version"; do
    # shellcheck disable=SC2086
    said=$("$1" $asked) || { echo "not ok: ltrain $asked exits with $?"; exit 1; }
    [ "$(echo "$said" | sed -n 1p)" = "ltrain $2" ] || { echo "not ok: ltrain $asked says $said"; exit 1; }
    for part in zlib libzstd "CUDA kernels"; do
        echo "$said" | sed -n 2p | grep -q "^built with.*$part" || { echo "not ok: nothing about $part in $said"; exit 1; }
    done
done
"$1" --help | grep -q -e "--version" || { echo "not ok: --help does not know --version"; exit 1; }
