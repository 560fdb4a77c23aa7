#!/bin/sh
# Makes sure that the packages for building ltrain are installed: `tools/setup.sh [text]`; `text` adds the quickstart's corpus.
# As root on Debian it installs missing packages without questions; otherwise it prints what to install. Silent if nothing is missing.
set -eu

# Debian package; what shows that it is installed (cmd: a program, pc: a pkg-config module, hdr: a header); whether the build needs it
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

# Prints the missing packages of `needs`, of one kind (needed, optional) or of both.
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
    # A fresh machine has no package lists, so they are updated if the installation fails; a failed update is tried once more.
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
