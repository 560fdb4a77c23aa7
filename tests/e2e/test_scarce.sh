#!/bin/sh
# A shortage on one host is reported with its rank, name and place: `test_scarce.sh LTRAIN`. Two "hosts" are hostnames on this machine; the
# second has a small drive of its own (a mount), little memory (an acted-out control group), or a failing call. Needs root.
set -eu
. "$(dirname "$0")/../mpi.sh"
unshare --uts --mount true 2>/dev/null || { echo "no namespaces here"; exit 77; }
ltrain=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
home=$(cd "$(mktemp -d "${TMPDIR:-/tmp}/scarce-XXXXXX")" && pwd)
trap 'rm -rf "$home"' EXIT
cd "$home"
yes 'It was a dark and stormy night; the rain fell in torrents, except at occasional intervals.' | head -c 20000 >corpus.txt
mkdir -p scratch/inner tree/proc/self tree/sys/fs/cgroup/job
echo 0::/job >tree/proc/self/cgroup
echo "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw" >tree/proc/self/mountinfo
grep -E 'MemTotal|MemAvailable' /proc/meminfo >tree/proc/meminfo
echo $((90 << 20)) >tree/sys/fs/cgroup/job/memory.max
echo $((30 << 20)) >tree/sys/fs/cgroup/job/memory.current
cat >onhost <<'END'
#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" = 1 ] || exec unshare --uts sh -c 'hostname node-a && exec "$@"' sh "$@"
[ "${FAULT:-}" = "" ] || export LTRAIN_FAULT="$FAULT"
[ "${TREE:-}" = "" ] || export LTRAIN_SYSTEM_ROOT="$TREE"
exec unshare --uts --mount sh -c 'hostname node-b && mount -t tmpfs -o size=$0 tmpfs scratch && exec "$@"' "$ROOM" "$@"
END
chmod +x onhost
failures=0

# Makes sure that PATTERN is in a line of the output, and that no line names the other host.
says() { # STATUS PATTERN ARGUMENT...
    wanted=$1 pattern=$2 status=0
    shift 2
    # shellcheck disable=SC2086 # a list of words
    timeout -k 5 120 $mpi -n 2 ./onhost "$ltrain" --model tiny --data corpus.txt --seq-len 256 --steps 2 --threads 1 --effort quick \
        --tiles rows=64,loss=64,group=4096 --out run "$@" >out 2>err || status=$?
    [ "$status" = "$wanted" ] && grep -Eq "$pattern" out err && ! grep -q 'node-a has the least\|rank 0 on node-a: ' err && rm -rf run && return
    echo "not ok: $*: exit status $status, and no line is like '$pattern'"
    cat err; grep "^budgets" out
    failures=$((failures + 1))
    rm -rf run
}

export ROOM=100k
nvme="--offload nvme --nvme-path scratch"
least="rank 1 on node-b has the least: $home/scratch"
# shellcheck disable=SC2086 # lists of words
{
says 3 "^ltrain: the plan needs .* are free .--nvme-max, 5% left free.*; $least\)" $nvme
says 3 "^ltrain: the plan needs .* are free .--nvme-max gives 1.0 GiB: .*; $least\)" $nvme --nvme-max 1G
says 2 "^ltrain: rank 1 on node-b: nvme path scratch/inner: No such file" --offload nvme --nvme-path scratch/inner
export ROOM=100m
says 0 "^budgets: .*; of nvme $least" $nvme --nvme-max 20G
export FAULT=fallocate:1:ENOSPC
says 3 "^ltrain: rank 1 on node-b: nvme path $home/scratch: .* are needed, and" $nvme --device cpu:discrete
export FAULT=
export TREE="$home/tree"
says 0 "^budgets: .*; of device rank 1 on node-b has the least; memory: .* are left of 90 MiB, memory.max of /sys/fs/cgroup/job" --offload none
says 3 "^ltrain: the plan takes .* and a rank can have .* .rank 1 on node-b has the least: .* memory.max" --offload none --device-mem 1G --host-mem 1G --model 25m
}
[ "$failures" = 0 ]
