/* A text that a run keeps of its data, with a checksum of its own. Private to this folder. */
#ifndef LTRAIN_DATA_KNOWN_H
#define LTRAIN_DATA_KNOWN_H

#include "base/status.h"

#include <stddef.h>

/* Without its checksum; to be freed. NULL: there is none, it cannot be read, or it is damaged. */
char *known_read(const char *path);
/* Replaces the file. ERR_IO. */
enum status known_write(const char *path, const char *text, size_t bytes);

#endif
