#!/bin/bash
# Runs the steps of a container's file in directories, without Docker or Apptainer: `tools/containers/in-chroot.sh Dockerfile|ltrain.def DIRECTORY`.
# As root on Debian with debootstrap and unshare, some ten minutes. Base images are Debian 12 by debootstrap. The result is DIRECTORY/image, in
# which a model then trains two steps; DIRECTORY/debian is used again by a second call. Of a Dockerfile it knows ARG, FROM, COPY, WORKDIR and RUN,
# one line each.
set -euo pipefail
cd "$(dirname "$0")/../.."
fail() { echo "in-chroot: $*" >&2; exit 1; }
[ $# = 2 ] || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
file=tools/containers/$1 into=$2
[ -f "$file" ] || fail "there is no $file"
[ ! -e "$into/image" ] || fail "$into/image is there already"
command -v debootstrap >/dev/null || fail "debootstrap is not installed"
mkdir -p "$into"
into=$(realpath "$into")

# Makes a directory of a new, minimal Debian, each a copy of the first one.
base() { # DIRECTORY
    [ -d "$into/debian" ] || debootstrap --variant=minbase bookworm "$into/debian" >"$into/debootstrap.log" 2>&1 || fail "debootstrap: $(tail -n 3 "$into/debootstrap.log")"
    cp -a "$into/debian" "$1"
}
# Runs a shell's line in a directory, with the host's network.
in_root() { # DIRECTORY WORKING-DIRECTORY LINE
    cp -L /etc/resolv.conf "$1/etc/resolv.conf"
    mkdir -p "$1/$2"
    # shellcheck disable=SC2016
    unshare -m sh -c 'for d in proc dev sys; do mount --rbind /$d "$1/$d"; done; exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive \
        chroot "$1" sh -ec "cd $2; $3"' sh "$1" "$2" "$3"
}
# Copies the tree, without what .dockerignore leaves out.
copy_tree() { # DIRECTORY
    mkdir -p "$1"
    sed 's|^|./|' .dockerignore | tar c --anchored --exclude-from=- --exclude="./${into#"$PWD"/}" . | tar x -C "$1"
}

run_dockerfile() {
    local root='' work=/ word rest stage
    declare -A stages
    while read -r word rest; do
        case $word in
        '' | '#'* | ARG | ENTRYPOINT | CMD) ;;
        FROM)
            stage=${rest##* AS }
            root=$into/image work=/
            [ "$stage" = "$rest" ] || root=$into/stage-$stage
            stages[$stage]=$root
            base "$root"
            ;;
        COPY)
            # shellcheck disable=SC2086
            set -- $rest
            # shellcheck disable=SC2086
            case $1 in
            --from=*) cp "${stages[${1#--from=}]}"$2 "$root$3" ;;
            .) copy_tree "$root$2" ;;
            *) fail "unknown: COPY $rest" ;;
            esac
            ;;
        WORKDIR) work=$rest ;;
        RUN) in_root "$root" "$work" "$rest" || fail "this step fails: $rest" ;;
        *) fail "unknown: $word $rest" ;;
        esac
    done <"$file"
}

run_definition() {
    base "$into/image"
    copy_tree "$into/image/src"
    in_root "$into/image" / "$(sed -n '/^%post/,/^%runscript/{/^%/d;p}' "$file")" || fail "%post fails"
    in_root "$into/image" / "$(sed -n '/^%test/,${/^%/d;p}' "$file")" || fail "%test fails"
}

case $1 in
Dockerfile) run_dockerfile ;;
*.def) run_definition ;;
*) fail "$1 is neither a Dockerfile nor a definition" ;;
esac
fold -s -w 70 README.md >"$into/image/tmp/text.txt"
in_root "$into/image" /tmp "ltrain --model tiny --data text.txt --seq-len 256 --steps 2 --out run --offload nvme --device cpu:discrete" || fail "the image does not train"
[ -s "$into/image/tmp/run/hf/model.safetensors" ] || fail "the image has left no model"
echo ok
