/* A text that a run keeps about its data, with a checksum. Private to this folder. */
#ifndef LTRAIN_DATA_KNOWN_H
#define LTRAIN_DATA_KNOWN_H

#include "base/status.h"

#include <stddef.h>

/* Returns the text without its checksum, to be freed. NULL: there is none, or it cannot be read, or is damaged. */
char *known_read(const char *path);
/* Replaces the file. ERR_IO. */
enum status known_write(const char *path, const char *text, size_t bytes);

#endif
