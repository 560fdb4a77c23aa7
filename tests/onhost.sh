#!/bin/sh
# One rank of a run on several "hosts", which are hostnames on this machine: `HOSTS="a b a b" mpiexec -n 4 onhost.sh PROGRAM ARGUMENT...`. Needs
# `unshare --uts`.
name=$(echo "$HOSTS" | cut -d ' ' -f $((OMPI_COMM_WORLD_RANK + 1)))
# shellcheck disable=SC2016 # for the inner shell
exec unshare --uts sh -c 'hostname "$0" && exec "$@"' "$name" "$@"
