#!/bin/sh
# tools/setup.sh: silent if everything is installed; tells an ordinary user in one sentence what to ask for; installs as root, and updates
# the lists and tries once more if that fails. Stand-ins play the machine's programs.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
failures=0

program() { # NAME BODY
    printf '#!/bin/sh\n%s\n' "$2" >"$bin/$1"
    chmod +x "$bin/$1"
}
setup() { status=0; out=$(PATH="$bin" "$bin/sh" "$root/tools/setup.sh" "$@" 2>&1) || status=$?; }
expect() { # WHAT STATUS PATTERN
    if [ "$status" != "$2" ] || ! printf '%s\n' "$out" | grep -Eq "$3" || [ "$(printf '%s\n' "$out" | wc -l)" -gt 1 ]; then
        echo "not ok: $1: exit status $status, printed '$out'"
        failures=$((failures + 1))
    fi
}

for name in sh id cat mktemp rm tail sleep touch; do ln -s "$(command -v $name)" "$bin/$name"; done
for name in gcc meson ninja bible pkg-config mpiexec; do program "$name" 'exit 0'; done
rm "$bin/id"
program id 'echo 1000'
program apt-get 'exit 99' # not an ordinary user's

setup text
expect "all there" 0 '^$'
rm "$bin/bible"
setup
expect "the corpus is not the build's need" 0 '^$'
setup text
expect "the corpus is the quickstart's need" 1 'apt-get install.*: bible-kjv bible-kjv-text$'
program pkg-config '[ "$2" != liburing ]'
setup
expect "one that can be missed" 0 'going without liburing-dev '
rm "$bin/meson"
program pkg-config '[ "$2" != jansson ]'
setup
expect "an ordinary user" 1 'apt-get install.*: meson libjansson-dev$'

program id 'echo 0'
program apt-get 'case " $* " in *" update "*) >"'"$bin"'/updated"; exit 0 ;; esac
[ -e "'"$bin"'/updated" ] || exit 100
printf "#!/bin/sh\n" >"'"$bin"'/meson"; printf "#!/bin/sh\n" >"'"$bin"'/pkg-config"
'"$(command -v chmod)"' +x "'"$bin"'/meson" "'"$bin"'/pkg-config"'
setup
expect "root, without package lists" 0 'installing meson libjansson-dev$'
setup
expect "root, a second time" 0 '^$'

[ "$failures" = 0 ]
