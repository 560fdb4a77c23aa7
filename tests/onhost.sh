#!/bin/sh
# One rank of a run on several "hosts", which are hostnames on this machine: `HOSTS="a b a b" mpiexec -n 4 onhost.sh PROGRAM ARGUMENT...`. Needs
# `unshare --uts`. BOOTS, too, has a word for each rank: hosts of one name are those of different boots (needs `unshare --mount`).
name=$(echo "$HOSTS" | cut -d ' ' -f $((OMPI_COMM_WORLD_RANK + 1)))
if [ "${BOOTS:-}" ]; then
    boot=$(mktemp)
    echo "$BOOTS" | cut -d ' ' -f $((OMPI_COMM_WORLD_RANK + 1)) >"$boot"
    # shellcheck disable=SC2016 # for the inner shell
    exec unshare --uts --mount sh -c 'hostname "$0" && mount --bind "$1" /proc/sys/kernel/random/boot_id && rm -f "$1" && shift && exec "$@"' "$name" "$boot" "$@"
fi
# shellcheck disable=SC2016 # for the inner shell
exec unshare --uts sh -c 'hostname "$0" && exec "$@"' "$name" "$@"
