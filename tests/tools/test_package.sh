#!/bin/bash
# tools/package.sh: the tar runs for an ordinary user on a system of glibc alone, the wheel after pip install, the Debian package's files
# find all libraries. Man pages and completions know every option. LTRAIN_BUILD names the build (build-release or build).
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
build=''
for b in ${LTRAIN_BUILD:-} build-release build; do
    [ -n "$build" ] || [ ! -x "$b/src/cli/ltrain" ] || build=$b
done
[ -n "$build" ] || { echo "skipped: no build"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "not ok: $*"; exit 1; }
pack() { tools/package.sh "$1" --build "$build" "$folder" 2>"$folder/said" || fail "$1: $(cat "$folder/said")"; }
if tools/package.sh zip 2>/dev/null; then fail "an unknown kind is packed"; fi
fold -s -w 70 README.md >"$folder/text.txt"
options="--model tiny --data text.txt --seq-len 256 --tiles rows=64,loss=64,group=4096 --threads 1 --effort quick --steps 2 --offload nvme --device cpu:discrete"

# The tar, moved to another place.
tar=$(pack tar)
mkdir -p "$folder/machine"/{lib64,tmp,proc,dev,home}
tar xzf "$tar" -C "$folder/machine/home"
home=$(echo "$folder"/machine/home/ltrain-*)
foreign=$(ldd "$home/bin/ltrain" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | grep -vE "^$home/bin/../lib/|/(libc|libm|libdl|librt|libpthread)\.so" || true)
[ -z "$foreign" ] || fail "the tar takes $foreign from elsewhere"
[ -f "$home/include/ltrain.h" ] || fail "the tar has no header"
python3 -c 'import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).ltrain_api() < 1)' "$home/lib/libltrain.so" || fail "the tar's library does not load"
foreign=$(ldd "$home/lib/libltrain.so" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | grep -vE "^$home/|/(libc|libm|libdl|librt|libpthread)\.so" || true)
[ -z "$foreign" ] || fail "the tar's library takes $foreign from elsewhere"
if [ "$(id -u)" = 0 ] && unshare -m true 2>/dev/null; then
    libc=$(ldd "$home/bin/ltrain" | sed -n 's/.*=> \([^ ]*libc\.so[^ ]*\) .*/\1/p')
    mkdir -p "$folder/machine$(dirname "$libc")"
    for name in libc libm libdl librt libpthread; do cp -L "$(dirname "$libc")/$name".so.* "$folder/machine$(dirname "$libc")/"; done
    cp -L /lib64/ld-linux-x86-64.so.2 "$folder/machine/lib64/"
    cp "$folder/text.txt" "$folder/machine/tmp/"
    chmod -R a+rX "$folder" && chmod 1777 "$folder/machine/tmp"
    # shellcheck disable=SC2016,SC2086
    unshare -m sh -c 'm=$1 program=$2; shift 2; for d in proc dev; do mount --rbind /$d "$m/$d"; done; HOME=/tmp exec chroot --userspec=65534:65534 "$m" "$program" "$@"' sh \
        "$folder/machine" "${home#"$folder/machine"}/bin/ltrain" ${options/text.txt//tmp/text.txt} --out /tmp/run --nvme-path /tmp >"$folder/said" 2>&1 || fail "the tar does not run: $(tail -n 3 "$folder/said")"
    [ -s "$folder/machine/tmp/run/hf/model.safetensors" ] || fail "the tar's run has left no model"
fi

# Every option of every command is in its man page, and the completion offers it.
share=$home/share
# shellcheck disable=SC1091
. "$share/bash-completion/completions/ltrain"
complete_word() { # WORDS ...: what is offered for the last one
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _ltrain ltrain "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    [ ${#COMPREPLY[@]} = 0 ] || printf '%s\n' "${COMPREPLY[@]}"
}
compopt() { :; } # outside of a completion it fails
"$home/bin/ltrain" --help | sed -n 's/^ *ltrain \([a-z]*\) *\.\.\..*/\1/p' >"$folder/commands"
[ "$(wc -l <"$folder/commands")" -ge 9 ] || fail "the help lists few commands"
complete_word ltrain '' | sort >"$folder/offered"
sort "$folder/commands" | cmp -s - "$folder/offered" || fail "the completion offers other commands: $(cat "$folder/offered")"
for command in '' $(cat "$folder/commands"); do
    page=$share/man/man1/ltrain${command:+-$command}.1
    [ -f "$page" ] || fail "$page is not there"
    # shellcheck disable=SC2086
    complete_word ltrain $command -- | sort -u >"$folder/offered"
    # shellcheck disable=SC2086
    "$home/bin/ltrain" $command --help | sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p' | sort -u >"$folder/options"
    sed -n 's/^\\fB\(.*\)\\fR.*/\1/p' "$page" | sed 's/\\fR.*//; s/\\-/-/g' | grep '^--' | sort -u >"$folder/paged"
    cmp -s "$folder/options" "$folder/paged" || fail "$page and the help differ: $(diff "$folder/options" "$folder/paged")"
    cmp -s "$folder/options" "$folder/offered" || fail "the completion of '$command' and the help differ: $(diff "$folder/options" "$folder/offered")"
done
[ "$(complete_word ltrain --schedule li)" = linear ] || fail "the completion does not know schedules"
for page in ltrain ltrain-report; do
    page=$share/man/man1/$page.1
    ! command -v groff >/dev/null || [ -z "$(groff -man -ww -Tutf8 "$page" 2>&1 >/dev/null)" ] || fail "$page is no clean roff"
done
[ -s "$share/zsh/site-functions/_ltrain" ] && [ -s "$share/doc/ltrain/examples/book.yaml" ] || fail "the tar lacks the completion of zsh, or examples"

# The Debian package.
if command -v dpkg-shlibdeps >/dev/null; then
    deb=$(pack deb)
    mkdir "$folder/deb"
    dpkg-deb -x "$deb" "$folder/deb"
    dpkg-deb -f "$deb" Depends | grep -q 'libc6 (>= 2\.[0-9]*).*libjansson4' || fail "the package depends on $(dpkg-deb -f "$deb" Depends)"
    (cd "$folder" && "$folder/deb/usr/bin/ltrain" $options --out deb-run >said 2>&1) || fail "the package's program: $(tail -n 3 "$folder/said")"
fi

# The wheel.
if python3 -m pip --version >/dev/null 2>&1; then
    wheel=$(pack wheel)
    python3 -m pip install -q --no-index --no-deps --no-warn-script-location --root-user-action ignore --target "$folder/site" "$wheel" >"$folder/said" 2>&1 || fail "pip: $(cat "$folder/said")"
    (cd "$folder" && PYTHONPATH="$folder/site" "$folder/site/bin/ltrain" $options --out wheel-run >said 2>&1) || fail "the wheel's program: $(tail -n 3 "$folder/said")"
    cmp -s "$folder/deb-run/hf/model.safetensors" "$folder/wheel-run/hf/model.safetensors" || [ ! -d "$folder/deb-run" ] || fail "the two packages train different models"
fi
echo ok
