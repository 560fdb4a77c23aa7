#!/bin/sh
# tools/structure.sh finds each fault: they are planted one by one in a small tree without faults.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
for program in nm cc git; do
    command -v $program >/dev/null || { echo "no $program"; exit 77; }
done
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
git init -q "$tree" # tools/format.sh formats what git knows
cp "$root/.clang-format" "$tree"
failures=0

fresh() {
    rm -rf "$tree/src" "$tree/build" "$tree/tools"
    mkdir -p "$tree/tools" "$tree/src/base" "$tree/build/src/liblt_base.a.p"
    sed "s,^spoken=.*,spoken='src/a'," "$root/tools/structure.sh" >"$tree/tools/structure.sh"
    chmod +x "$tree/tools/structure.sh"
    cp "$root/tools/speech.awk" "$root/tools/format.sh" "$tree/tools/"
    echo "high: it is the top of the planted tree" >"$tree/tools/for-tests.txt"
    printf 'int low(void)\n{\n    return 1;\n}\n' >"$tree/src/base/low.c"
    printf 'int low(void);\nint high(void)\n{\n    return low();\n}\n' >"$tree/src/base/high.c"
    for folder in a b c d e f g h; do # eight of equal size: 12.4% each
        mkdir -p "$tree/src/$folder"
        yes '/* a line */' | head -n 100 >"$tree/src/$folder/lines.h"
    done
}
compiled() {
    for file in "$tree"/src/base/*.c; do
        cc -c -o "$tree/build/src/liblt_base.a.p/base_$(basename "$file").o" "$file" || exit 1
    done
}
check() { # WHAT STATUS PATTERN
    compiled
    git -C "$tree" add -A src
    status=0
    said=$("$tree/tools/structure.sh" build) || status=$?
    if [ "$status" != "$2" ] || ! echo "$said" | grep -q "$3"; then
        echo "not ok: $1: exit status $status, printed '$said'"
        failures=$((failures + 1))
    fi
}

fresh
check "in order" 0 '^$'
fresh
echo 'int high(void); int low(void); int low(void) { return high(); }' >"$tree/src/base/low.c"
check "a circle" 1 'circle: base_high.c calls base_low.c'
fresh
yes '/* a line */' | head -n 200 >"$tree/src/a/lines.h"
check "a folder that is too large" 1 'src/a: '
fresh
{ echo 'int long_one(void)'; echo '{'; yes '    ;' | head -n 79; echo '}'; } >"$tree/src/b/long.inc"
check "a function of 81 lines" 1 'long.inc:2: a function of 81 lines'
fresh
echo '/* Tries so many times. */' >"$tree/src/b/many.h"
check "so many" 1 'many.h:1: '
for comment in 'Whether it is so.' 'Of a row.' 'what it is'; do
    fresh
    printf '/* A file. */\nint x; /* %s */\n' "$comment" >"$tree/src/a/said.h"
    check "a headless comment: $comment" 1 'said.h:2: headless: '
done
fresh
printf '/* A file. */\n/* The next row,\n * of two. */\nint next(void);\n/* Returns 1. */\nstatic inline int one(void)\n{\n}\n' >"$tree/src/a/said.h"
check "a function's comment without a verb" 1 '^src/a/said.h:2: no verb: The$'
fresh
echo 'int wait(void); int wait(void) { return pthread_cond_timedwait(a, b, c); }' >"$tree/src/b/wait.h"
check "a wait by the wall clock" 1 'wait.h:1: '
fresh
{
    echo '/* clang-format off */'
    echo '/* Calls stat (it), open(it) */'
    echo 'static int there(const char *p) { struct stat s; return sys_stat(p, &s) == 0 && x->open(x) && x.close(x); } /* not stat(p) */'
    echo 'static const char *text = "by \"open(2)\"";'
} >"$tree/src/b/calls.h"
check "calls through the table" 0 '^$'
for call in 'stat(p, &s)' 'opendir(p)' 'return rename(a, b)' '!glob(p, 0, 0, &g)' 'fts_read(t)' 'flock (fd, 1)' '(void)ftruncate(fd, 0)'; do
    fresh
    echo "static int bare(void) { $call; }" >"$tree/src/b/calls.h"
    check "a bare $call" 1 'calls.h:1: calls the system'
done
fresh
echo 'int stat_it(void); int stat_it(void) { return stat(p, &s); }' >"$tree/src/a/sys.h"
check "a file of the name of sys.h" 1 'src/a/sys.h:1: calls'
fresh
echo 'int top(void) { return 1; }' >"$tree/src/base/top.c"
check "a name that nothing uses" 1 '^top: nothing of src uses it'
fresh
echo 'low: it is used' >>"$tree/tools/for-tests.txt"
check "a reason for a name that is used" 1 '^tools/for-tests.txt: low is used in src, or gone$'
fresh
rm "$tree/tools/for-tests.txt"
check "no list of reasons" 2 '' 2>/dev/null
fresh
echo 'exit 3' >"$tree/tools/format.sh"
check "a check of the format that fails" 1 '^tools/format.sh: exit status 3$'
fresh
echo 'int  wide;' >"$tree/src/a/wide.h"
status=0
"$tree/tools/format.sh" --check >/dev/null || status=$?
[ "$status" = 77 ] || check "a file that is not formatted" 1 '^src/a/wide.h:.*: not as tools/format.sh writes it$'
[ "$failures" = 0 ]
