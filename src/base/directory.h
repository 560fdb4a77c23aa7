/* Directories of a file system. */
#ifndef LTRAIN_BASE_DIRECTORY_H
#define LTRAIN_BASE_DIRECTORY_H

#include "base/status.h"

/* Makes it and what is missing of its parents; one that is there is fine. ERR_IO names the one that cannot be made. */
enum status directory_make(const char *path);

#endif
