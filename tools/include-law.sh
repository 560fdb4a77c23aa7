#!/bin/sh
# Checks the include law (docs/architecture.md): a module includes only modules on lower floors, and a header whose first comment says
# "Private to" is included only within its folder of src. A module is a folder of src, or a subfolder that has its own floor below.
# `tools/include-law.sh [TREE]` prints offenders as FILE:LINE and exits 1.
set -eu
cd "${1:-$(dirname "$0")/..}"

# from the lowest floor up; modules on one line share a floor
floors='
base
program
chat/jinja
chat sample seqpar settings verify
machine model text
device parquet
ops
attention recurrence offload comm data tasks
plan/lower
plan/schedule
plan/search
plan
plan/report
engine
checkpoint profile
train
api check doctor eval export replay report
cli
'

sources=$(find src -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.inc' -o -name '*.S' \) | LC_ALL=C sort)
[ -n "$sources" ] || { echo "include-law: no sources under $PWD/src" >&2; exit 1; }
# shellcheck disable=SC2086 # paths have no spaces
private=$(for header in $(echo "$sources" | grep -E '\.(h|cuh|inc)$'); do
    head -n 5 "$header" | grep -qi 'private to' && echo "$header"; done) || true

# shellcheck disable=SC2086
awk -v floors="$floors" -v private="$private" '
BEGIN {
    n = split(floors, line, "\n")
    for (i = 1; i <= n; i++) {
        m = split(line[i], word, " ")
        for (j = 1; j <= m; j++)
            floor[word[j]] = i
    }
    n = split(private, line, "\n")
    for (i = 1; i <= n; i++)
        is_private[line[i]] = 1
}
# Returns the module of a path below src: the deepest of its folders that has a floor, else its first folder.
function module(path,    at) {
    at = path
    while (sub(/\/[^\/]*$/, "", at))
        if (at in floor)
            return at
    sub(/\/.*$/, "", path)
    return path
}
function top(name) {
    sub(/\/.*$/, "", name)
    return name
}
function offend(why) {
    print FILENAME ":" FNR ": " why
    offenders++
}
FNR == 1 {
    here = FILENAME
    sub(/^src\//, "", here)
    here = module(here)
    if (FILENAME ~ /^src\/[^\/]*$/)
        offend("belongs to no module")
    else if (!(here in floor))
        offend(here " has no floor: add it to tools/include-law.sh")
}
here in floor && /^[ \t]*#[ \t]*include[ \t]*["<]/ {
    path = $0
    quoted = path ~ /^[^"<]*"/
    sub(/^[^"<]*["<]/, "", path)
    sub(/[">].*$/, "", path)
    there = path
    if (path ~ /(^|\/)\.\.?\//) {
        if (quoted)
            offend("\"" path "\": paths start at src, without dots")
        next
    }
    if (there !~ /\//)
        next
    there = module(there)
    if (!(there in floor))
        next # a file of the same folder, a generated file, or a header of another project
    if (there != here && floor[there] > floor[here])
        offend(here " must not include " path ": " there " is above it")
    else if (there != here && floor[there] == floor[here])
        offend(here " must not include " path ": both are on one floor")
    else if (top(there) != top(here) && ("src/" path) in is_private)
        offend(here " must not include " path ": private to " there)
}
END { exit offenders > 0 }
' $sources
