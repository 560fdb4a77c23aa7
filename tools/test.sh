#!/bin/sh
# Sets up, builds and runs every test: `tools/test.sh [--asan | --tsan] [--long]`. The last line is `N passed, N failed, N skipped`.
#   --asan   address and undefined-behaviour sanitizers, in build-asan
#   --tsan   thread sanitizer, in build-tsan: the suites with lanes (offload, device, comm, engine, checkpoint, train), on several ranks too; OpenMP and BLAS with one thread
#   --long   long versions of the tests that have one (LTRAIN_LONG=1); the release build has the CUDA plugin if nvcc is installed, which takes minutes
# LTRAIN_BUILD names another build directory.
set -eu
cd "$(dirname "$0")/.."

kind=release
for option; do
    case $option in
    --asan) kind=asan ;;
    --tsan) kind=tsan ;;
    --long) export LTRAIN_LONG=1 ;;
    *) sed -n '2,6s/^# //p' tools/test.sh >&2; exit 2 ;;
    esac
done

passed=0 failed=0 skipped=0 checker=''
log=$(mktemp) checked=$(mktemp)
# Prints the last line whatever happens before: a build that breaks counts as a failure, too.
finish() {
    status=$?
    trap - EXIT
    [ -z "$checker" ] || kill "$checker" 2>/dev/null || true
    rm -f "$log" "$checked"
    [ "$status" = 0 ] || [ "$failed" != 0 ] || failed=1
    [ "$((passed + failed))" != 0 ] || { echo "test: nothing ran"; failed=1; }
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" = 0 ] || exit 1
    exit 0
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

tools/setup.sh

suites='' within='' slower=1
case $kind in
release)
    options='-Dbuildtype=release -Dwerror=true -Db_sanitize=none -Dcuda=disabled'
    [ -z "${LTRAIN_LONG:-}" ] || options="$options -Dcuda=auto" ;;
asan)
    options='-Dbuildtype=debugoptimized -Doptimization=1 -Db_sanitize=address,undefined -Dcuda=disabled' slower=4
    suites='--no-suite slow'
    export LTRAIN_TEST_ALL_CORES=1 # lanes in parallel, too, where the release build has them on one core
    export ASAN_OPTIONS="${ASAN_OPTIONS:-strict_string_checks=1:detect_stack_use_after_return=1}"
    export UBSAN_OPTIONS="${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}" ;;
tsan)
    options='-Dbuildtype=debugoptimized -Doptimization=1 -Db_sanitize=thread -Dcuda=disabled' slower=8
    suites='--suite offload --suite device --suite comm --suite engine --suite checkpoint --suite profile --suite train'
    export TSAN_OPTIONS="${TSAN_OPTIONS:-halt_on_error=1:suppressions=$PWD/tests/comm/tsan.supp}"
    export LTRAIN_TEST_ALL_CORES=1
    export OMP_NUM_THREADS=1 OMP_THREAD_LIMIT=1 # the sanitizer does not know OpenMP's locks; the limit covers calls that ask for a number of threads
    if setarch "$(uname -m)" -R true 2>/dev/null; then # gcc 12's thread sanitizer fails under strong address randomisation
        within="setarch $(uname -m) -R"
    fi ;;
esac
[ -z "${LTRAIN_LONG:-}" ] || slower=$((slower * 20))
build=${LTRAIN_BUILD:-build-$kind}

# Builds ---------------------------------------------------------------------------------------------------------------------------
# A build that is set up here links by gold, which takes a third of the time for some 200 programs.
! command -v ld.gold >/dev/null 2>&1 || export CC_LD=gold CXX_LD=gold
configure() { # shellcheck disable=SC2086
    if [ -f "$build/build.ninja" ]; then meson configure $options -Dtests=enabled "$build"; else meson setup $options -Dtests=enabled "$build"; fi
}
echo "test: building $build"
configure >"$log" 2>&1 || { cat "$log"; exit 1; }
ninja -C "$build" >"$log" 2>&1 || { sed -n '/^FAILED/,$p' "$log" | grep . || cat "$log"; exit 1; }

# The include law, the structure and the tests of scripts, which depend on no compiler option: beside the programs, as most have one process ---------
checks() {
    for check in tools/include-law.sh "tools/structure.sh $build" tests/tools/test_*.sh; do
        status=0
        $check >"$log" 2>&1 </dev/null || status=$? # unquoted, since it may have an argument
        case $status in
        0) echo passed ;;
        77) echo skipped; echo "skipped: $check: $(tail -n 1 "$log")" >&2 ;;
        *) echo failed; { cat "$log"; echo "FAILED: $check"; } >&2 ;;
        esac
    done >"$checked"
}
if [ "$kind" = release ]; then
    checks &
    checker=$!
fi

# Every program --------------------------------------------------------------------------------------------------------------------
rm -f "$build/meson-logs/testlog.txt" # an old log must not be counted
status=0
# Two tests more at a time than there are cores, since tests of the program wait for the disk half of their time, and some for ranks to be
# found dead.
# shellcheck disable=SC2086
$within meson test -C "$build" --no-rebuild --print-errorlogs --num-processes "$(($(nproc) + 2))" -t "$slower" $suites </dev/null || status=$?
[ -z "$checker" ] || { wait "$checker" || status=1; checker=''; }
passed=$((passed + $(grep -c '^passed' "$checked" || true)))
failed=$((failed + $(grep -c '^failed' "$checked" || true)))
skipped=$((skipped + $(grep -c '^skipped' "$checked" || true)))
if [ -f "$build/meson-logs/testlog.txt" ]; then
    counts=$(awk -f tools/count.awk "$build/meson-logs/testlog.txt")
    # shellcheck disable=SC2086
    set -- $counts
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
    [ "$(($1 + $2))" != 0 ] || { echo "test: no test program ran"; status=1; }
    sed -n 's/^\[  SKIPPED \] \([^0-9]\)/skipped: \1/p' "$build/meson-logs/testlog.txt" | sort -u
fi
exit "$status"
