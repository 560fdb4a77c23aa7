#!/bin/sh
# Sees to it that what ltrain is built with is there: `tools/setup.sh [text]`; `text` adds the quickstart's corpus.
# Root on Debian: installs what is missing, without questions. Everybody else: says in one sentence what to ask for. Silent when all is there.
set -eu

# name of the Debian package, how its presence is seen (cmd: a program, pc: a pkg-config module), whether the build can go without it
needs='
gcc           cmd:gcc        needed
libc6-dev     hdr:stdio.h    needed
meson         cmd:meson      needed
ninja-build   cmd:ninja      needed
pkg-config    cmd:pkg-config needed
libjansson-dev pc:jansson    needed
libyaml-dev   pc:yaml-0.1    needed
libxxhash-dev pc:libxxhash   needed
libpcre2-dev  pc:libpcre2-8  needed
libutf8proc-dev pc:libutf8proc needed
libcmocka-dev pc:cmocka      needed
liburing-dev  pc:liburing    optional
libhwloc-dev  pc:hwloc       optional
zlib1g-dev    pc:zlib        optional
libzstd-dev   pc:libzstd     optional
libopenmpi-dev pc:ompi-c     optional
openmpi-bin   cmd:mpiexec    optional
'
text='
bible-kjv      cmd:bible     needed
bible-kjv-text cmd:bible     needed
'
[ "${1:-}" = text ] && needs="$needs$text"

there() { # PROBE
    case $1 in
    cmd:*) command -v "${1#cmd:}" >/dev/null 2>&1 ;;
    pc:*) pkg-config --exists "${1#pc:}" 2>/dev/null ;;
    hdr:*) echo "#include <${1#hdr:}>" | gcc -E - >/dev/null 2>&1 ;;
    esac
}

# Prints the packages of `needs` that are not there, of one kind (needed, optional) or of both.
missing() { # [KIND]
    echo "$needs" | while read -r package probe kind; do
        [ -n "$package" ] || continue
        [ "${1:-$kind}" = "$kind" ] || continue
        there "$probe" || printf ' %s' "$package"
    done
}

lacking=$(missing)
[ -n "$lacking" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "setup: installing$lacking"
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    export DEBIAN_FRONTEND=noninteractive
    update() { apt-get -qq -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 update; }
    # shellcheck disable=SC2086 # a list of words
    install() { apt-get -qq -y -o DPkg::Lock::Timeout=120 -o Acquire::Retries=3 --no-install-recommends install $lacking; }
    # A fresh machine has no package lists: update, and once more if that failed.
    if ! { install || { { update || { sleep 5 && update; }; } && install; }; } </dev/null >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        echo "setup: apt-get could not install$lacking; its last words are above." >&2
        exit 1
    fi
    lacking=$(missing needed)
    [ -z "$lacking" ] || { echo "setup: installed, yet not found:$lacking" >&2; exit 1; }
    exit 0
fi

lacking=$(missing needed)
if [ -n "$lacking" ]; then
    echo "setup: please have these packages installed (Debian names, as root: apt-get install ...):$lacking" >&2
    exit 1
fi
echo "setup: going without$(missing optional) (Debian names): without the Open MPI ones ltrain is one process alone, without zlib's and libzstd's .gz and .zst are not read, the others cost speed, not function."
