#!/bin/bash
# The table of docs/reliability.md is the one that tools/reliability.sh makes, and a test that does not exist is refused.
set -eu
cd "$(dirname "$0")/../.."
tools/reliability.sh --check
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir "$copy/docs" "$copy/tools"
cp -r tests "$copy/tests"
cp docs/reliability.md "$copy/docs/"
cp tools/reliability.sh "$copy/tools/"
echo 'a fault | what happens | e2e/test_calls.c:a_test_that_is_not_there' >> "$copy/tests/promises.txt"
if "$copy/tools/reliability.sh" --check > "$copy/out" 2>&1; then
    echo "a test that is not there was accepted"; exit 1
fi
grep -q 'has no test a_test_that_is_not_there' "$copy/out"
