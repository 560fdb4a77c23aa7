#!/bin/sh
# A failure of ranks whose messages NCCL carries ends each of them with one sentence, and soon: `test_cuda_failures.sh PROGRAM calls|faults|sweep|mutants`.
# calls: every function of NCCL, and of CUDA beside it, fails once, early and late; faults: ranks that die or stop, messages that never come, and the choices.
set -eu
. "$(dirname "$0")/../mpi.sh"
program=$1
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
n=0 onhost=
mkfifo "$results/turns"
exec 3<>"$results/turns"
for turn in 1 2 3 4 5 6; do echo "$turn" >&3; done

# Runs 2 ranks in the background, six such runs at a time, since they mostly wait. A hang is a failure.
start() { # WHAT CARRIER SECONDS RANK WORDS EVENT
    n=$((n + 1))
    read -r turn <&3
    printf '%s\n' "$1" >"$results/$n.what"
    shift
    # shellcheck disable=SC2086 # lists of words
    { status=0; timeout -k 5 "${LTRAIN_TEST_SECONDS:-120}" $mpi -n 2 $onhost "$program" "$@" >"$results/$n.out" 2>&1 3>&- || status=$?; echo "$status" >"$results/$n.status"; echo "$turn" >&3; } &
}

fails() { # RANKS PATTERN WHAT...: each of the ranks says so in one sentence
    ranks=$1 pattern=$2
    shift 2
    start "$@"
    printf '%s\n' "$ranks" >"$results/$n.ranks"
    printf '%s\n' "$pattern" >"$results/$n.pattern"
}

passes() { # PATTERN WHAT...
    fails "0 1" "$@"
    touch "$results/$n.passes"
}

ends() { # WHAT...: well or badly, with one sentence on each of the ranks
    fails "0 1" "." "$@"
    touch "$results/$n.any"
}

judge() {
    wait
    bad=0
    for k in $(seq "$n"); do
        status=$(cat "$results/$k.status") out="$results/$k.out" why=
        if [ -e "$results/$k.passes" ]; then
            [ "$status" = 0 ] || why="exit status $status"
        elif [ -e "$results/$k.any" ]; then
            [ "$status" -lt 124 ] || why="exit status $status"
        else
            [ "$status" != 0 ] && [ "$status" -lt 124 ] || [ "$status" = 137 ] || why="exit status $status"
        fi
        for r in $(cat "$results/$k.ranks"); do
            said="^(rank $r: -?[0-9]+|ltrain: rank $r): .*" # of the rank itself, or of its thread that looks after the others where that comes first
            grep -Eq "$said($(cat "$results/$k.pattern"))" "$out" || why="$why; rank $r says nothing like '$(cat "$results/$k.pattern")'"
            [ "$(grep -Ec "$said" "$out")" = 1 ] || why="$why; rank $r does not say one sentence"
        done
        [ -z "$why" ] || { echo "not ok: $(cat "$results/$k.what"): $why"; head -n 8 "$out"; bad=$((bad + 1)); }
    done
    echo "$n runs, $bad not ok"
    [ "$bad" = 0 ]
}

call() { # FUNCTION NUMBER RANK
    fails "0 1" "NCCL: $1: unhandled system error: as the test wants it" "call $2 of $1" auto 20 "$3" "nccl=$1:$2:2" none
}

case $2 in
calls)
    call ncclGetUniqueId 1 0
    call ncclCommInitRankConfig 1 1
    call ncclCommGetAsyncError 1 0
    call ncclCommGetAsyncError 4 1
    for f in ncclGroupStart ncclSend ncclRecv ncclGroupEnd ncclAllGather; do
        call $f 1 0
        call $f 7 1
    done
    passes "messages are staged through host memory: rank 1 on .*NCCL: ncclGetVersion: unhandled" "call 1 of ncclGetVersion" auto 20 1 nccl=ncclGetVersion:1:2 none
    for f in ncclCommFinalize ncclCommDestroy; do passes "carried by NCCL" "call 1 of $f" auto 20 1 nccl=$f:1:2 none; done
    for f in cudaMalloc cudaFree cudaMemcpyAsync cudaMemsetAsync; do # of the greeting, of the own part, of a share's rest
        fails "0 1" "$f: as the test wants it" "call 1 of $f" auto 20 1 in=$f,fail=1:2 none
    done
    fails "0 1" "cudaMemcpyAsync: as the test wants it" "call 30 of cudaMemcpyAsync" auto 20 0 in=cudaMemcpyAsync,fail=30:1 none
    fails "0 1" "rank [01] (has waited|on [^ ]+ has not answered rank [01] for) 2 s" "call 1 of ncclCommAbort" auto 2 1 nccl-hangs=20,nccl=ncclCommAbort:1:2 none
    fails "0 1" "rank [01] (has waited|on [^ ]+ has not answered rank [01] for) 2 s" "call 1 of cudaGetDevice, for the abort" auto 2 1 nccl-hangs=20,in=cudaGetDevice,fail=1:1 none
    ;;
faults)
    # The longest runs begin first.
    fails "0" "rank 1 on [^ ]+ has not answered rank 0 for 15 s .--comm-timeout. in [a-z_]+ of [0-9]+ bytes" "a GPU that is far behind" auto 15 1 lag=200000 none
    fails "0 1" "rank [01] (has waited|on [^ ]+ has not answered rank [01] for) 8 s .--comm-timeout. in the start of NCCL" "a rank that never joins" auto 8 1 nccl=alone none
    fails "0 1" "rank [01] .* 8 s .--comm-timeout. in the start of NCCL" "a connection that is never made" auto 8 1 nccl-stalls=3 none
    passes "carried by NCCL" "nothing" nccl 20 0 "" none
    if unshare --uts true 2>/dev/null; then
        export HOSTS="a b" onhost="$(dirname "$0")/../onhost.sh"
        passes "carried by NCCL, which finds the network's interfaces itself .NCCL_SOCKET_IFNAME" "a GPU on each of two hosts" nccl 20 2 devices=1 none
        if unshare --mount true 2>/dev/null; then
            export HOSTS="a a" BOOTS="1 2"
            passes "carried by NCCL, which finds the network's interfaces itself .NCCL_SOCKET_IFNAME" "a GPU on each of two hosts of one name" nccl 20 2 devices=1 none
        fi
        onhost=
        unset BOOTS
    fi
    passes "staged through host memory .--comm staged" "staged" staged 20 0 "" none
    passes "staged through host memory: rank 1 on .* there is no libnccl.so.2" "no library" auto 20 1 nccl=none none
    passes "staged through host memory: rank 1 on .*: NCCL 2.18.6 is too old: 2.19 or later is wanted" "an old library" auto 20 1 nccl-version=21806 none
    passes "staged through host memory: rank 1 on .* has NCCL 2.27.3, rank 0 has NCCL 2.28.9" "another library" auto 20 1 nccl-version=22703 none
    fails "0 1" "--comm nccl: rank 1 on .* there is no libnccl.so.2.*leave out --comm" "no library, and it is wanted" nccl 20 1 nccl=none none
    fails "0 1" "--comm nccl: ranks 0 and 1 share GPU 0" "one GPU" nccl 20 2 devices=1 none
    passes "staged through host memory: ranks 0 and 1 share GPU 1" "one GPU under two numbers" auto 20 1 bus=0 none
    fails "0" "rank 1 on .* has died .process [0-9]+.; rank 0 was in" "killed" auto 20 1 "" kill
    fails "0" "rank 1 on .* is stopped" "stopped for too long" auto 5 1 "" stop
    fails "0 1" "rank [01] (has waited|on [^ ]+ has not answered rank [01] for) 2 s .--comm-timeout. in [a-z_]+ of [0-9]+ bytes on the [a-z]+ lane" "messages that never come" auto 2 1 nccl-hangs=20 none
    fails "0 1" "rank [01] (has waited|on [^ ]+ has not answered rank [01] for) 2 s" "messages that never come, and aborts that never return" auto 2 2 nccl-hangs=20,nccl=sticks none
    fails "0" "rank 1 on [^ ]+ has not answered rank 0 for 8 s .--comm-timeout. in" "a rank that sleeps" auto 8 1 "" sleep
    fails "0 1" "rank [01] .* 2 s .--comm-timeout." "a call that never gets to its stream" auto 2 1 nccl-stalls=20 none
    fails "0 1" "NCCL: (an operation that was under way|nccl[A-Za-z]+): remote process exited" "a network that breaks" auto 20 1 nccl-breaks=20:6 none
    fails "0 1" "cudaErrorLaunchFailure" "a GPU that fails" auto 20 1 dies=400:719 none
    fails "0 1" "cudaErrorIllegalAddress" "a call that fails" auto 20 1 fail=4000:700 none
    ;;
sweep) # calls of CUDA's runtime and of NCCL by their number, on either rank
    [ "${LTRAIN_LONG:-}" ] || exit 77
    for k in $(seq 40); do
        ends "call $((k * 131))" auto 20 $((k % 2)) "fail=$((k * 131)):$([ $((k % 3)) = 0 ] && echo 700 || echo 2)" none
        ends "thing $((k * 31))" auto 20 $((k % 2)) "dies=$((k * 31)):719" none
    done
    ;;
mutants) # what a planted bug must not get through
    passes "carried by NCCL" "nothing" nccl 20 0 "" none
    fails "0 1" "rank [01] (has waited|on [^ ]+ has not answered rank [01] for) 2 s" "messages that never come" auto 2 1 nccl-hangs=20 none
    fails "0 1" "NCCL: (an operation that was under way|nccl[A-Za-z]+): remote" "a network that breaks" auto 20 1 nccl-breaks=20:6 none
    fails "0 1" "NCCL: ncclGroupEnd: unhandled system error" "a call that fails" auto 20 1 nccl=ncclGroupEnd:9:2 none
    fails "0 1" "NCCL: ncclAllGather: unhandled system error" "a gather that fails" auto 20 1 nccl=ncclAllGather:7:2 none
    ;;
esac
judge
