#!/bin/sh
# Two "nodes": network namespaces with hostnames of their own, joined by one cable: `test_two_nodes.sh LTRAIN`. Four ranks, two on each
# node, train as four on one node do. The cable carries as much as the program reports to have sent to other hosts. Needs root and ip netns,
# else it is skipped.
set -eu
command -v mpirun >/dev/null 2>&1 && command -v ip >/dev/null 2>&1 && [ "$(id -u)" = 0 ] || { echo "needs root, ip and mpirun"; exit 77; }
ltrain=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
a=ltrain-a-$$ b=ltrain-b-$$
home=$(mktemp -d "${TMPDIR:-/tmp}/nodes-XXXXXX")

cleanup() {
    trap '' EXIT INT TERM
    for ns in $a $b; do
        pids=$(ip netns pids $ns 2>/dev/null) || continue
        # shellcheck disable=SC2086 # a list
        [ -z "$pids" ] || kill -KILL $pids 2>/dev/null || :
        ip netns del $ns 2>/dev/null || :
    done
    rm -rf "$home"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

cable() {
    ip netns add $a && ip netns add $b && ip -n $a link add eth0 type veth peer name eth0 netns $b &&
        ip -n $a addr add 10.77.0.1/24 dev eth0 && ip -n $b addr add 10.77.0.2/24 dev eth0 &&
        for ns in $a $b; do ip -n $ns link set lo up && ip -n $ns link set eth0 up || return 1; done
}
cable 2>"$home/err" || { echo "no network namespaces here: $(head -n 1 "$home/err")"; exit 77; }
unshare --uts true 2>/dev/null || { echo "no UTS namespaces here"; exit 77; }

cd "$home"
# Starts a process on node b, as ssh would: AGENT HOST COMMAND...
printf '#!/bin/sh\nshift\nexec ip netns exec %s unshare --uts sh -c "hostname node-b; $*"\n' $b >agent
chmod +x agent
yes 'It was a dark and stormy night; the rain fell in torrents, except at occasional intervals.' | head -c 100000 >corpus.txt
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0" # tests/mpi.sh says why
mpi="mpirun --quiet --oversubscribe --bind-to none --mca orte_tmpdir_base $home --mca mpi_yield_when_idle 1 --mca pml ob1 -n 4"
settings="--model tiny --data corpus.txt --seq-len 4096 --mesh ulysses=2,ring=2 --zero 3 --threads 1 --tiles rows=512,loss=512 --effort quick"

failures=0
bad() {
    echo "not ok: $*"
    failures=$((failures + 1))
}

run() { # NAME STEPS COMMAND...: runs COMMAND, which is $mpi or wraps it, with the settings of a run of STEPS steps
    name=$1 steps=$2
    shift 2
    timeout -k 5 500 "$@" "$ltrain $settings --steps $steps --out $name" >"$name.out" 2>&1 || { bad "$name: exit status $?"; cat "$name.out"; exit 1; }
}
one_node() { run "$1" "$2" sh -c "$mpi --mca btl vader,self \$0"; }
across="hostname node-a; exec $mpi --mca plm_rsh_agent $home/agent --mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0 --mca btl tcp,vader,self \
    -H 10.77.0.1:2,10.77.0.2:2"
two_nodes() { run "$1" "$2" ip netns exec $a unshare --uts sh -c "$across \$0"; }
carried() { # bytes that both ends have sent so far
    for ns in $a $b; do ip netns exec $ns cat /proc/net/dev; done | sed -n 's/^ *eth0: *//p' | awk '{ sum += $9 } END { printf "%d\n", sum }'
}
losses() { grep -o '"loss":[^,]*,"grad_norm":[^,]*' "$1/metrics.jsonl"; }
told() { grep -o '"sent_to_other_hosts_bytes":[0-9]*' "$1/metrics.jsonl" | awk -F: '{ sum += $2 } END { printf "%d\n", sum }'; }

# Two runs on two nodes that differ only in their number of steps: start, handshakes, export and end cancel out.
few=2 many=6
one_node alone $many
start=$(carried)
two_nodes short $few
middle=$(carried)
two_nodes long $many
end=$(carried)

grep -q '^mesh: 4 ranks .* on 2 hosts: dp 1, ring 2, ulysses 2' long.out || bad "not two hosts: $(grep '^mesh' long.out)"
grep -q '^remark' long.out && bad "an all-to-all group spans both: $(grep '^remark' long.out)"
[ "$(losses alone | wc -l)" = $many ] || bad "the run on one node has $(losses alone | wc -l) steps"
losses alone >a.curve && losses long >b.curve && cmp -s a.curve b.curve || { bad "the curves differ"; paste a.curve b.curve; }
[ "$(told alone)" = 0 ] || bad "one node sends $(told alone) bytes to other hosts"
grep -Eq '^sent a step by all ranks:  world .* ulysses .* inside hosts, 0 B to others  ring 0 B inside hosts, [0-9]' long.out ||
    bad "the report: $(grep '^sent' long.out)"

# Bytes on the cable beside the payload: at most 6% for headers (66 bytes of Ethernet, IP and TCP a packet of 1,500, and 32 to 64 bytes of
# Open MPI a message) and acknowledgements, and 64 KiB a step for the ranks' own messages between programs.
payload=$(($(told long) - $(told short))) link=$((end - middle - (middle - start)))
allowed=$((payload + payload * 6 / 100 + (many - few) * 65536))
echo "in $((many - few)) steps the program sends $payload bytes to other hosts, the cable carries $link ($allowed allowed); a whole run of $many steps: $((end - middle))"
[ "$payload" -gt 10000000 ] || bad "too little payload to tell"
[ "$link" -ge "$payload" ] || bad "the cable carries less than the program says"
[ "$link" -le "$allowed" ] || bad "the cable carries more than the program says"

# A rank of node b is killed: the ranks of node a name it, too.
ip netns exec $a unshare --uts timeout -k 5 500 sh -c "$across $ltrain $settings --steps 100000 --save-every 1 --out killed" >killed.out 2>&1 &
mpirun=$!
for i in $(seq 100); do
    [ ! -e killed/checkpoints/latest ] || break
    sleep 1
done
victim=
for pid in $(ip netns pids $b); do
    tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -q '^OMPI_COMM_WORLD_RANK=3$' && victim=$pid
done
kill -KILL "$victim"
wait $mpirun && bad "a run whose rank 3 was killed succeeds"
for r in 0 1 2; do
    grep -q "^ltrain: rank $r: rank 3 on node-b has died .*; the last good checkpoint is killed/checkpoints/step-" killed.out || bad "rank $r does not say who died"
done
[ "$failures" = 0 ] || { grep '^ltrain' killed.out; exit 1; }
