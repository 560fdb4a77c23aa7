#!/bin/sh
# Updates docs/planning.md: `tools/planning.sh LTRAIN` runs the command of each line "    $ ltrain ..." and replaces the indented lines below
# it with the command's output.
set -eu
[ -x "${1:-}" ] && [ ! -d "$1" ] || { sed -n '2,3s/^# //p' "$0"; [ "${1:-}" = --help ]; exit; }
ltrain=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
cd "$(dirname "$0")/.."
awk -v ltrain="$ltrain" '
    /^    \$ ltrain / {
        print
        command = "LTRAIN_PROGRESS_AFTER=1000000 " ltrain substr($0, 13) " 2>&1"
        while ((command | getline line) > 0)
            print line == "" ? "" : "    " line
        close(command)
        answered = 1
        next
    }
    answered && (/^    / || /^$/) { next }
    answered { print ""; answered = 0 }
    { print }
' docs/planning.md >docs/planning.md.new
mv docs/planning.md.new docs/planning.md
