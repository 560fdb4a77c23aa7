/* The nvme paths of a rank: the ranks of a host share its drives. */
#ifndef LTRAIN_OFFLOAD_DRIVES_H
#define LTRAIN_OFFLOAD_DRIVES_H

#include "base/status.h"

#include <stdint.h>

/* Checks that each path is a directory that this process may write to, or will be one: `run`, which a run makes, or one above it.
 * No two may be the same. ERR_INVALID names the first bad path. */
enum status drives_check(const char *const *path, int n_paths, const char *run);

/* Writes the indices of this rank's paths, ascending, to index[n_paths], and returns their number. If the host has at least as
 * many paths as ranks, path i belongs to the rank with local number i mod ranks. So every drive serves one rank. With fewer
 * paths, every rank stripes over all. */
int drives_of_rank(int n_paths, int local_rank, int local_size, int *index);

/* Returns the bytes that one rank of a host may store on its paths (without paths: in `run`); its files have one size. All files
 * of the host's ranks on one file system share its free space and that of dead runs' files, be it one path or several. INT64_MAX:
 * no path tells its room.
 *
 * *reserved: bytes that the run itself writes to `run`, left out; set to 0 if no path is on its file system. *tightest: the path
 * that decides; -1: `run`. */
int64_t drives_room(const char *const *path, int n_paths, int local_size, const char *run, int64_t *reserved, int *tightest);

/* Returns the first of the paths (without paths: `run`) that lies in memory (tmpfs), or NULL. */
const char *drives_in_memory(const char *const *path, int n_paths, const char *run);

/* Describes the sharing of drives in one line, "" if there is none: one rank, or no path given. */
const char *drives_describe(int n_paths, int local_size, char *text, int bytes);

#endif
