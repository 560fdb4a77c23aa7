#!/bin/sh
# The include law's check finds violations: one of each kind is planted in a copy of the tree and must be named as FILE:LINE.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
failures=0

check() { # WHAT WANTED_STATUS [WANTED_LINE]
    status=0
    out=$("$root/tools/include-law.sh" "$copy") || status=$?
    lines=$(printf '%s' "$out" | grep -c '') || true
    wanted_lines=$2
    if [ "$status" != "$2" ] || [ "$lines" != "$wanted_lines" ] || { [ $# -gt 2 ] && ! echo "$out" | grep -q "^$3"; }; then
        echo "not ok: $1: exit status $status, printed '$out'"
        failures=$((failures + 1))
    fi
}

# Writes the lines of stdin to a file of the copy, makes sure that the check names FILE:LINE, and removes the file.
planted() { # WHAT FILE LINE
    mkdir -p "$copy/src/$(dirname "$2")"
    cat >"$copy/src/$2"
    check "$1" 1 "src/$2:$3: "
    rm "$copy/src/$2"
}

mkdir -p "$copy/src"
(cd "$root" && find src -type f -print | tar cf - -T -) | tar xf - -C "$copy"
check "the tree as it is" 0

planted "upward" base/planted.c 2 <<'X'
#include "base/status.h"
#include "engine/executor.h"
X
planted "one floor up, in a .cu file" program/planted.cu 1 <<'X'
#include "device/tickets.h"
X
planted "in a .cuh file, oddly spaced" ops/planted.cuh 3 <<'X'
/* planted */

  #  include "plan/plan.h"
X
planted "siblings: attention, offload" attention/planted.c 1 <<'X'
#include "offload/store.h"
X
planted "siblings: model, machine" model/planted.h 1 <<'X'
#include "machine/cost.h"
X
planted "a folder of a folder" plan/lower/blocks/planted.c 2 <<'X'
#include "plan/lower/strategy.h"
#include "plan/search/search.h"
X
planted "a folder of a folder below it" plan/search/planted.c 1 <<'X'
#include "plan/plan.h"
X
planted "seqpar stands below model" seqpar/planted.c 2 <<'X'
#include "program/op.h"
#include "model/model.h"
X
planted "angle brackets" base/planted.c 1 <<'X'
#include <engine/executor.h>
X
planted "dots" base/planted.c 1 <<'X'
#include "../engine/executor.h"
X
planted "a private header" engine/planted.c 1 <<'X'
#include "data/file.h"
X
planted "a subfolder" device/cpu/planted.c 1 <<'X'
#include "engine/executor.h"
X
planted "a module without a floor" planted/planted.c 1 <<'X'
#include "base/status.h"
X

cat >"$copy/src/cli/planted.c" <<'X'
#include "build_config.h"
#include "cli/ranks.h"
#include "engine/executor.h"
#include "model/model.h"
#include <sys/types.h>
X
check "what is allowed" 0
rm "$copy/src/cli/planted.c"

[ "$failures" = 0 ]
