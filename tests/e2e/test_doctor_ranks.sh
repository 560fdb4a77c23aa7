#!/bin/sh
# Tests `ltrain doctor` on several ranks: `test_doctor_ranks.sh LTRAIN CLOCK`. Each check is made to fail on one of two simulated hosts;
# CLOCK is a library that sets the clock of a process ahead.
set -eu
. "$(dirname "$0")/../mpi.sh"
unshare --uts --mount true 2>/dev/null || { echo "no UTS and mount namespaces here"; exit 77; }
onhost=$(cd "$(dirname "$0")/.." && pwd)/onhost.sh
ltrain=$(cd "$(dirname "$1")" && pwd)/$(basename "$1") clock=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
home=$(mktemp -d "${TMPDIR:-/tmp}/doctor-XXXXXX")
trap 'rm -rf "$home"' EXIT
cd "$home"
failures=0

# Prints the findings, a line each, of doctors on hosts; the last rank runs the shell command LAST in place of "$@", which are ltrain and
# its arguments.
doctors() { # "HOST..." LAST ARGUMENT...
    HOSTS=$1 LAST=$2
    export HOSTS LAST
    shift 2
    ranks=$(echo "$HOSTS" | wc -w) status=0
    # shellcheck disable=SC2016,SC2086 # for the inner shell; a list of words
    timeout -k 5 120 $mpi -n "$ranks" "$onhost" sh -c \
        'if [ "$OMPI_COMM_WORLD_RANK" = $((OMPI_COMM_WORLD_SIZE - 1)) ]; then eval "$LAST"; else exec "$@"; fi' sh "$ltrain" doctor "$@" \
        >out 2>err || status=$?
    tr '\n' ' ' <out | tr -s ' ' | sed -E 's/ (ok|warning|failure|unmeasured) ([a-z_]+ )/\n\1 \2/g; s/ doctor: /\ndoctor: /' >lines
}
bad() {
    echo "not ok: $*"
    cat out err
    failures=$((failures + 1))
}
finds() { # STATUS LINE...
    wanted=$1
    shift
    [ "$status" = "$wanted" ] || bad "exit status $status in place of $wanted"
    for line; do
        grep -Eq "^$line" lines || bad "no '$line'"
    done
}

here='exec "$@"' # as the other ranks
doctors "a a b b" "$here"
finds 0 'ok ranks 4 ranks on 2 hosts, 2 on each: a, b$' 'ok versions all ranks run the same program$' 'ok clocks at most 0.01 s apart$' \
    'ok shared all ranks see what rank 0 writes in \.$' \
    '(ok|warning) messages every rank sends .* at least [0-9.]+ GB/s within a host, [0-9.]+ GB/s between hosts'
[ "$(grep -c '^doctor: ' lines)" = 1 ] || bad "not one report"
[ ! -s err ] || bad "something on stderr"
[ -z "$(find . -name '.ltrain*')" ] || bad "the shared file is left"
doctors "a a b" "$here"
finds 0 'warning ranks 3 ranks on 2 hosts, 1 to 2 on each: a, b: give every host as many'
doctors "a b" "LD_PRELOAD=$clock $here"
finds 0 'warning clocks the clock of b is [234][.0-9]* s ahead of that of a: logs are hard to compare'
doctors "a b" "ulimit -n 100; $here"
finds 1 'ok files open files: ' 'failure files on b: open files: 100: '

# Another program, by one byte.
mkdir other
cp "$(dirname "$ltrain")"/libltrain-mpi-*.so "$ltrain" other
echo >>other/ltrain
doctors "a b" "shift; exec '$home/other/ltrain' \"\$@\""
finds 1 'failure versions rank 1 on b: this rank runs ltrain .* and rank 0 runs ltrain '

# Without the module that speaks MPI rank 0 looks alone, and says what is missing; if only another rank lacks it, that one does.
rm other/libltrain-mpi-*.so
doctors "a b" "shift; exec '$home/other/ltrain' \"\$@\""
[ "$status" = 1 ] || bad "status $status where a rank cannot join"
grep -Eq '^ltrain: rank 1: .* there is no MPI to speak with the other ranks' err || bad "the rank that cannot join does not say so"
whole=$ltrain ltrain=$home/other/ltrain
doctors "a b" "$here"
finds 1 'failure ranks .* there is no MPI to speak with the other ranks .*: .*' 'ok files ' 'doctor: .* 1 failure'
ltrain=$whole

# A directory of host b's own: a warning, and a failure for a run that saves there.
own="exec unshare --mount sh -c 'mount -t tmpfs none $home && exec \"\$0\" \"\$@\"' \"\$@\""
doctors "a b" "$own"
finds 0 'warning shared 1 rank does not see what rank 0 writes in \., on: b: name a directory of a shared file system by --out'
doctors "a b" "$own" --model tiny --seq-len 256 --out run --tiles rows=64,loss=64
finds 1 'failure shared 1 rank does not see what rank 0 writes in run, on: b: ' 'ok plan tiny, 256 tokens: fits'

# The bundle has no host's name.
doctors "anna b.example" "$here" --bundle b.tar
finds 0
[ "$(tar -xOf b.tar ltrain-doctor/doctor.txt | grep -Ec 'on each: HOST, HOST$')" = 1 ] || bad "names of hosts in the bundle"
doctors "a b" "$here" --frob
[ "$status" = 2 ] || bad "status $status of an unknown option"
[ "$(grep -c "'--frob' is not known" err)" = 1 ] || bad "an unknown option is not told once"
[ "$failures" = 0 ]
