/* Directories of a file system. */
#ifndef LTRAIN_BASE_DIRECTORY_H
#define LTRAIN_BASE_DIRECTORY_H

#include "base/status.h"

/* Makes a directory and its missing parents, whose names survive a power cut; existing ones are fine. ERR_IO names the directory
 * that cannot be made or synced. */
enum status directory_make(const char *path);
/* Makes the names in a directory survive a power cut. File systems without such a call pass. */
enum status directory_sync(const char *path);
/* Makes a new file's or directory's own name survive a power cut; parents that may not be read pass. */
enum status directory_keep(const char *path);
/* Refuses a path that is a symbolic link of another user, who could point it elsewhere; links of the superuser are accepted.
 * ERR_INVALID names the link and its owner. */
enum status directory_check_link(const char *path);

#endif
