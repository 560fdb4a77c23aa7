#!/bin/bash
# Starts every script of bench and tools with --help and stand-ins for packages: none ends with a traceback, each prints its usage, and none
# hides a module of Python's standard library from its own imports.
set -u
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
bad() { echo "not ok: $*"; failures=$((failures + 1)); }

start() { # SCRIPT INTERPRETER...
    local script=$1 status=0
    shift
    (cd "$work" && PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$OLDPWD/tests/tools/standins" timeout 60 "$@" "$OLDPWD/$script" --help) >"$work/out" 2>&1 </dev/null ||
        status=$?
    grep -q Traceback "$work/out" && bad "$script --help: $(tail -n 1 "$work/out")"
    case $status in 0 | 2) ;; *) bad "$script --help: exit status $status: $(tail -n 1 "$work/out")" ;; esac
    [ -s "$work/out" ] || ! grep -qE '^#!|__main__' "$script" || bad "$script --help: says nothing"
}

# Lists scripts; a recipe of Spack is none.
scripts() { find bench tools -name __pycache__ -prune -o -path tools/spack -prune -o -name "$1" -print | sort; }

for script in $(scripts '*.py'); do
    start "$script" python3
done
# shellcheck disable=SC2046
hiding=$(python3 -c 'import os, sys; print(*[f for f in sys.argv[1:] if os.path.basename(f)[:-3] in sys.stdlib_module_names])' $(scripts '*.py'))
[ -z "$hiding" ] || bad "of the same name as modules of Python itself: $hiding"
for script in $(scripts '*.sh'); do
    case $script in
    tools/setup.sh | tools/quickstart.sh | tools/jobs/*) continue ;; # take no --help; test_setup.sh, test_jobs.sh and CI start them
    esac
    start "$script" "$(sed -n '1s/^#!\(.*\)/\1/p' "$script")"
done
[ -z "$(ls "$work" | grep -vx out)" ] || bad "left behind: $(ls "$work")"

# The stand-ins notice the faults that they are there for.
mkdir "$work/hides"
echo 'x = 1' >"$work/hides/tokenize.py"
echo 'import torch' >"$work/hides/script.py"
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests/tools/standins python3 "$work/hides/script.py" 2>/dev/null && bad "a hidden module was not noticed"

[ "$failures" = 0 ]
