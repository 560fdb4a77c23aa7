#!/bin/sh
# Times stages with slices beside a ring over a slow link: `slow_link.sh LTRAIN [RATE [STEPS [OPTIONS...]]]`. Two network namespaces on
# this machine are two nodes with a rank each; tbf limits their cable to RATE (50mbyte: 50 MB/s). OPTIONS replace the model and length
# (25m at 16k). Prints the seconds of each step but the first. Needs root, ip, tc and mpirun.
set -eu
[ "${1:---help}" != --help ] || { sed -n '2,4s/^# //p' "$0"; exit; }
ltrain=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
rate=${2:-50mbyte} steps=${3:-3}
[ $# -lt 3 ] && shift $# || shift 3
options=${*:---model 25m --seq-len 16k}
a=slow-a-$$ b=slow-b-$$
home=$(mktemp -d "${TMPDIR:-/tmp}/slow-link-XXXXXX")

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

ip netns add $a && ip netns add $b && ip -n $a link add eth0 type veth peer name eth0 netns $b
ip -n $a addr add 10.78.0.1/24 dev eth0 && ip -n $b addr add 10.78.0.2/24 dev eth0
for ns in $a $b; do
    ip -n $ns link set lo up && ip -n $ns link set eth0 up
    ip netns exec $ns tc qdisc add dev eth0 root tbf rate "${rate%byte}bps" burst 256kb latency 200ms
done

cd "$home"
printf '#!/bin/sh\nshift\nexec ip netns exec %s unshare --uts sh -c "hostname node-b; $*"\n' $b >agent
chmod +x agent
yes 'It was a dark and stormy night; the rain fell in torrents, except at occasional intervals.' | head -c 1000000 >corpus.txt
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_WAIT_POLICY=passive
across="hostname node-a; exec mpirun --quiet --oversubscribe --bind-to none --mca orte_tmpdir_base $home --mca mpi_yield_when_idle 1 \
    --mca pml ob1 --mca plm_rsh_agent $home/agent --mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0 --mca btl tcp,vader,self \
    -H 10.78.0.1:1,10.78.0.2:1 -n 2"

for mesh in ring=2 pp=2; do
    settings="--data corpus.txt --threads 1 --effort quick --mesh $mesh --steps $steps --out $mesh $options"
    timeout -k 5 3000 ip netns exec $a unshare --uts sh -c "$across $ltrain $settings" >log 2>&1 || { cat log; exit 1; }
    grep '^mesh' log
    echo "$mesh: $(grep -o '"seconds":[^,]*' $mesh/metrics.jsonl | tail -n +2 | cut -d: -f2 | tr '\n' ' ')s a step"
done
