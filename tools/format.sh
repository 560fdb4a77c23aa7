#!/bin/sh
# Formats all C and CUDA sources as .clang-format says: `tools/format.sh [--check]`. --check lists files that are not formatted instead, and
# exits with 1 if there are any. Exit status 77: there is no clang-format 14 (other versions format differently).
# Tables laid out by hand stand between clang-format off and on; generated tables are .inc files, which are not formatted.
set -eu
cd "$(dirname "$0")/.."
format=$(command -v clang-format-14 || command -v clang-format || true)
case $([ -z "$format" ] || "$format" --version) in
*' version 14.'*) ;;
*) echo "format: needs clang-format 14"; exit 77 ;;
esac
sources=$(git ls-files 'src/*.[ch]' 'src/*.cu' 'src/*.cuh' 'tests/*.[ch]' 'tests/*.cu' 'tests/*.cuh' 'bench/*.[ch]' 'bench/*.cu' 'bench/*.cuh')
# shellcheck disable=SC2086 # paths have no spaces
case ${1:-} in
--check)
    wrong=$("$format" --dry-run $sources 2>&1 | sed -n 's/: warning: .*/: not as tools\/format.sh writes it/p')
    [ -z "$wrong" ] || { echo "$wrong"; exit 1; } ;;
'') "$format" -i $sources && "$format" -i $sources ;; # the second run moves a few lines that the first one produced
*) sed -n '2,4s/^# //p' tools/format.sh >&2; exit 2 ;;
esac
