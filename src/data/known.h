/* A text in which a run keeps facts about its data for the next start, with a checksum. Private to this folder. */
#ifndef LTRAIN_DATA_KNOWN_H
#define LTRAIN_DATA_KNOWN_H

#include "base/status.h"

#include <stddef.h>

/* Returns the text without its checksum; the caller frees it. NULL: there is no such file, or it is unreadable or damaged. */
char *known_read(const char *path);
/* Replaces the file. ERR_IO. */
enum status known_write(const char *path, const char *text, size_t bytes);

#endif
