/* Directories of a file system. */
#ifndef LTRAIN_BASE_DIRECTORY_H
#define LTRAIN_BASE_DIRECTORY_H

#include "base/status.h"

/* Makes it and what is missing of its parents; one that is there is fine. ERR_IO names the one that cannot be made. */
enum status directory_make(const char *path);
/* Refuses a path that is a link of another user, who could lead it elsewhere; the superuser's links are taken. ERR_INVALID names
 * the link and its owner. */
enum status directory_check_link(const char *path);

#endif
