#!/bin/sh
# Ranks that end while a run begins: `test_begin.sh LTRAIN`. A rank that is told to end ends like the one that is ended first, without a word on
# that one's death; a death that no signal explains is reported.
set -eu
. "$(dirname "$0")/../mpi.sh"
ltrain=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
home=$(mktemp -d "${TMPDIR:-/tmp}/begin-XXXXXX")
trap 'rm -rf "$home"' EXIT
cd "$home"
yes 'It was a dark and stormy night; the rain fell in torrents, except at occasional intervals.' | head -c 20000 >corpus.txt
cat >rank <<'END'
#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" = 1 ] || { echo $$ >pid && export LTRAIN_FAULT=rename:1:HANG; }
exec "$@"
END
chmod +x rank
printf '\017\0\0\0' >told # 15, SIGTERM, as cli/ranks.c tells it
printf '\0\0\0\0' >untold
failures=0

# Ends rank 0, which hangs once the run's directory is there, and makes sure that this is all that is said. Rank 1, which waits for rank 0,
# gets no signal: --enable-recovery keeps mpiexec from sending one after a death.
ends() { # WHAT FILE SIGNAL PATTERN
    # shellcheck disable=SC2086 # a list of words
    LTRAIN_PASSED_ON=$home/$2 timeout -k 5 120 $mpi --enable-recovery -n 2 ./rank "$ltrain" --model tiny --data corpus.txt --seq-len 256 --steps 2 \
        --threads 1 --effort quick --tiles rows=64,loss=64,group=4096 --out run >out 2>err &
    while [ ! -e run ] && kill -0 $! 2>/dev/null; do sleep 0.05; done
    kill -"$3" "$(cat pid)"
    wait $! || : # without --enable-recovery, the signal
    if [ "$(grep -c '^ltrain: ' err)" != 1 ] || ! grep -Eq "$4" err; then
        echo "not ok: $1:"
        cat err
        failures=$((failures + 1))
    fi
    rm -rf run
}

ends "told" told USR1 '^ltrain: SIGTERM before the first step: there is nothing to save yet$'
ends "killed" untold KILL '^ltrain: rank 1: rank 0 on .* has died'
[ "$failures" = 0 ]
