/* Which nvme paths a rank uses: drives are shared by the ranks of a host. */
#ifndef LTRAIN_OFFLOAD_DRIVES_H
#define LTRAIN_OFFLOAD_DRIVES_H

#include "base/status.h"

#include <stdint.h>

/* Whether each path is a directory that this process may write to, or will be one: `run`, which a run makes, or one above it; and
 * no two are the same. ERR_INVALID names the first that will not do. */
enum status drives_check(const char *const *path, int n_paths, const char *run);

/* The map: with at least as many paths as ranks on the host, path i belongs to the rank with local number i mod ranks, so that
 * every drive serves one rank; with fewer, every rank stripes over all of them. Writes the indices of this rank's paths,
 * ascending, to index[n_paths] and returns how many there are. */
int drives_of_rank(int n_paths, int local_rank, int local_size, int *index);

/* Bytes that one rank of a host may store on its paths (without paths: in `run`), whose files are of one size: what is free, and
 * what files of dead runs take, is shared by all files that the host's ranks have on one file system, be it one path or several.
 * *reserved: bytes that the run itself writes to `run` are left out; set to 0
 * if no path is on its file system. *tightest: the path that decides, -1: `run`. INT64_MAX: no path says what it has. */
int64_t drives_room(const char *const *path, int n_paths, int local_size, const char *run, int64_t *reserved, int *tightest);

/* The first of the paths (without paths: `run`) that lies in the machine's memory (tmpfs), or NULL. */
const char *drives_in_memory(const char *const *path, int n_paths, const char *run);

/* The map as one line for people, "" if there is nothing to share: one rank, or no path given. */
const char *drives_describe(int n_paths, int local_size, char *text, int bytes);

#endif
