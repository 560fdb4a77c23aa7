#!/bin/sh
# Runs one rank of a run on several simulated hosts: `HOSTS="a b a b" mpiexec -n 4 onhost.sh PROGRAM ARGUMENT...` gives each rank the hostname
# in its place of HOSTS (needs `unshare --uts`). BOOTS gives each rank a boot id in the same way, so that hosts of one name differ (needs
# `unshare --mount`).
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
name=$(echo "$HOSTS" | cut -d ' ' -f $((rank + 1)))
if [ "${BOOTS:-}" ]; then
    boot=$(mktemp)
    echo "$BOOTS" | cut -d ' ' -f $((rank + 1)) >"$boot"
    # shellcheck disable=SC2016 # for the inner shell
    exec unshare --uts --mount sh -c 'hostname "$0" && mount --bind "$1" /proc/sys/kernel/random/boot_id && rm -f "$1" && shift && exec "$@"' "$name" "$boot" "$@"
fi
# shellcheck disable=SC2016 # for the inner shell
exec unshare --uts sh -c 'hostname "$0" && exec "$@"' "$name" "$@"
