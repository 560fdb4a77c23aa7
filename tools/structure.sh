#!/bin/sh
# Checks the structure of src: `tools/structure.sh [BUILD]` prints offenders and exits 1 if there are any.
#   folders    none has more than 13% of the lines of src
#   circles    no source files call each other in a circle (from the objects in BUILD, build-release by default)
#   unused     no public name is used by tests alone (from the objects and the text), except those in tools/for-tests.txt
#   functions  none is longer than 80 lines
#   comments   none contains "so many": a comment names the constant
#   speech     comments of the rooms named below are written as docs/conventions.md says (tools/speech.awk); `--speech` counts all rooms
#   calls      system calls that may wait for a drive go through src/base/sys.h, so that tests can make them fail and --drive-timeout covers them
#   format     all of src, tests and bench is formatted as tools/format.sh does it (checked only where clang-format 14 is installed)
#   clocks     no wait uses the wall clock: timed waits are those of src/base/clock.h
set -eu
cd "$(dirname "$0")/.."
if [ "${1:-}" = --speech ]; then # room, headless comments, functions' comments without a verb
    find src tests bench tools -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' -o -name '*.py' -o -name '*.sh' -o -name '*.awk' \) -exec \
        awk -f tools/speech.awk {} + | awk -F'[/: ]' '{ room = $1 "/" $2; rooms[room]; kind = $0 ~ /: headless: / ? 1 : 2; n[room, kind]++; all[kind]++ }
        END { for (room in rooms) printf "%-20s %5d %5d\n", room, n[room, 1], n[room, 2]; printf "%-20s %5d %5d\n", "~ all", all[1], all[2] }' | LC_ALL=C sort
    exit
fi
build=${1:-build-release}
[ -d "$build/src" ] || { echo "structure: no objects in $build: build first" >&2; exit 2; }
sources=$(find src -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' \) | LC_ALL=C sort)
offenders=$(mktemp)
trap 'rm -f "$offenders"' EXIT

# shellcheck disable=SC2086 # paths have no spaces
wc -l $sources | awk '
$2 == "total" { next }
{
    n = split($2, part, "/")
    folder = part[2] == "plan" && n > 3 ? part[2] "/" part[3] : part[2]
    lines[folder] += $1
    all += $1
}
END {
    for (folder in lines)
        if (lines[folder] > 0.13 * all)
            printf "src/%s: %d of %d lines, %.1f%%: more than 13%%\n", folder, lines[folder], all, 100 * lines[folder] / all
}' >>"$offenders"

# Finds circles of calls between source files, from their object files. Files that no remaining file calls, or that call no remaining file, are
# removed until nothing changes; among the rest, a call from a to b belongs to a circle if calls lead from b back to a.
find "$build/src" -name '*.c.o' | LC_ALL=C sort | while read -r object; do
    echo "file $object"
    nm -P "$object"
done | awk '
function leads(from, to,    pair, end, seen, todo, n, at) {
    todo[n = 1] = from
    while (n > 0) {
        at = todo[n--]
        if (at == to)
            return 1
        if (at in seen)
            continue
        seen[at]
        for (pair in calls) {
            split(pair, end, SUBSEP)
            if (end[1] == at)
                todo[++n] = end[2]
        }
    }
    return 0
}
$1 == "file" {
    file = $2
    sub(/.*\/src\//, "", file)
    sub(/^lib[^\/]*\.p\//, "", file)
    sub(/\.o$/, "", file)
    files[file]
    next
}
$2 == "U" { uses[file, ++n_uses[file]] = $1; next }
$2 ~ /^[TDBRV]$/ && !($1 in home) { home[$1] = file }
END {
    for (file in files)
        for (i = 1; i <= n_uses[file]; i++) {
            callee = home[uses[file, i]]
            if (callee != "" && callee != file)
                calls[file, callee]
        }
    do {
        changed = 0
        split("", calling); split("", called)
        for (pair in calls) {
            split(pair, end, SUBSEP)
            calling[end[1]]; called[end[2]]
        }
        for (pair in calls) {
            split(pair, end, SUBSEP)
            if (!(end[2] in calling) || !(end[1] in called)) {
                delete calls[pair]
                changed = 1
            }
        }
    } while (changed)
    for (pair in calls) {
        split(pair, end, SUBSEP)
        if (leads(end[2], end[1]))
            print "circle: " end[1] " calls " end[2]
    }
}' >>"$offenders"

# A public name that no other object needs is unused if the sources of src (also of CUDA) name it only where it is defined. Resolvers of
# functions with several versions are skipped: the compiler makes them.
names=$(mktemp)
trap 'rm -f "$offenders" "$names"' EXIT
find "$build/src" -name '*.c.o' | while read -r object; do nm -P "$object"; done | awk '
$2 == "U" { used[$1]; next }
$2 ~ /^[TDBRVWC]$/ && $1 !~ /\./ && $1 != "main" && $1 !~ /^ltrain_/ { defined[$1] }
END { for (name in defined) if (!(name in used)) print name }' >"$names"
# shellcheck disable=SC2046 # paths have no spaces
awk -v allowed=tools/for-tests.txt -v names="$names" '
FILENAME == allowed { if ($0 !~ /^#/) { sub(/:.*/, ""); reason[$0] } next }
FILENAME == names { wanted[$1]; next }
FNR == 1 { comment = 0 }
{
    gsub(/"([^"\\]|\\.)*"/, "")
    gsub(/\/\*([^*]|\*[^\/])*\*\//, "")
    if (comment && !sub(/^.*\*\//, ""))
        next
    comment = sub(/\/\*.*/, "")
    n = split($0, word, /[^A-Za-z_0-9]+/)
    for (i = 1; i <= n; i++)
        if (word[i] in wanted)
            times[word[i]]++
}
END {
    for (name in wanted)
        if (times[name] == 1 && !(name in reason))
            print name ": nothing of src uses it: remove it, or give a reason in " allowed
    for (name in reason)
        if (times[name] != 1)
            print allowed ": " name " is used in src, or gone"
}' tools/for-tests.txt "$names" $(echo "$sources" | grep -v '\.h$') >>"$offenders"

# shellcheck disable=SC2086
awk '
FNR == 1 { start = 0 }
/^{/ { start = FNR }
/^}/ { if (start && FNR - start + 1 > 80) print FILENAME ":" start ": a function of " FNR - start + 1 " lines"; start = 0 }
/CLOCK_REALTIME|gettimeofday|_timedwait *\(|_timedlock *\(/ && FILENAME != "src/base/clock.c" { print FILENAME ":" FNR ": waits by src/base/clock.h" }
/so many/ { print FILENAME ":" FNR ": \"so many\": name the constant" }
' $sources >>"$offenders"

# Folders whose comments are checked against docs/conventions.md.
spoken='src tests bench tools'
for room in $spoken; do
    find "$room" -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' \) -exec awk -f tools/speech.awk {} +
done >>"$offenders"

# Calls that must go through src/base/sys.h. Exempt are files that read only from the kernel (/proc, /sys, /dev), the watch that sys.c itself
# calls, and the plugin in src/device. `close` is not listed, since pipes are closed, too.
calls='open|openat|pread|pwrite|preadv|pwritev|fsync|fdatasync|rename|renameat|unlink|unlinkat|remove|mkdir|mkdirat|rmdir|link|symlink'
calls="$calls|fallocate|posix_fallocate|truncate|ftruncate|flock|lockf|stat|lstat|fstat|fstatat|access|faccessat|realpath"
calls="$calls|statvfs|fstatvfs|statfs|fstatfs|quotactl|opendir|fdopendir|readdir|scandir|fts_open|fts_read|nftw|glob|fopen|freopen"
for file in $sources; do
    case $file in
    src/base/sys.[ch] | src/base/cgroup.c | src/base/memory.c | src/base/process.c | src/base/watch.c | src/device/*) continue ;;
    esac
    sed -e 's,open("/\(proc\|dev\)/,(",' -e 's/"\([^"\\]\|\\.\)*"/""/g' -e 's,/\*.*,,' -e 's,^ \* .*,,' "$file" |
        grep -nE "(^|[^A-Za-z0-9_.>])($calls) ?\(" | sed "s,^\([0-9]*\):.*,$file:\1: calls the system by src/base/sys.h," || true
done >>"$offenders"

status=0
said=$(tools/format.sh --check) || status=$?
case $status in
0 | 77) ;; # 77: no clang-format 14
1) echo "$said" ;;
*) echo "tools/format.sh: exit status $status" ;;
esac >>"$offenders"

LC_ALL=C sort "$offenders"
[ ! -s "$offenders" ]
