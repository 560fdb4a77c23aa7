#!/bin/sh
# Searches readers of files for inputs that crash them, by clang's libFuzzer: `tools/fuzz.sh [--build DIR] TARGET|all [SECONDS]`.
# Targets are those of tests/fuzz/targets.c. New inputs that reach new code stay in BUILD/fuzz/TARGET; an input that crashes, leaks or
# takes longer than 10 s is left beside them as crash-*, leak-* or timeout-*, and the status is 1. SECONDS of each target: 15.
set -eu
[ "${1:---help}" != --help ] || { sed -n '2,4s/^# //p' "$0"; exit; }
cd "$(dirname "$0")/.."
build=build-fuzz
[ "$1" != --build ] || { build=$2; shift 2; }
seconds=${2:-15}
command -v clang >/dev/null || { echo "tools/fuzz.sh: clang is not installed: apt-get install clang" >&2; exit 2; }

[ -f "$build/build.ninja" ] || CC=clang meson setup -Dbuildtype=debugoptimized -Doptimization=1 -Db_sanitize=address,undefined \
    -Db_lundef=false -Dcuda=disabled -Dtests=enabled -Dc_args=-fsanitize=fuzzer-no-link "$build" >/dev/null
ninja -C "$build" tests/fuzz/libfuzzer
[ "$1" = all ] && targets=$(sed -n 's/^    {"\([a-z_]*\)", .*, read_.*/\1/p' tests/fuzz/targets.c) || targets=$1

status=0
for target in $targets; do
    mkdir -p "$build/fuzz/$target"
    echo "fuzz: $target, $seconds s"
    LTRAIN_FUZZ=$target "$build/tests/fuzz/libfuzzer" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -max_len=65536 \
        -artifact_prefix="$build/fuzz/$target/" "$build/fuzz/$target" "tests/fuzz/corpus/$target" >"$build/fuzz/$target.log" 2>&1 || {
        status=1
        grep -E 'ERROR|SUMMARY|Test unit written' "$build/fuzz/$target.log"
    }
    grep '^Done' "$build/fuzz/$target.log" || :
done
exit $status
