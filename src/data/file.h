/* Whole transfers on regular files, through the system call table. Private to this folder. */
#ifndef LTRAIN_DATA_FILE_H
#define LTRAIN_DATA_FILE_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Opens a regular file for reading. ERR_INVALID: it is not there, not readable or not a regular file. */
enum status file_open(const char *path, int *fd, int64_t *bytes);
/* Reads or writes exactly n bytes. ERR_CORRUPT: the file ends before them. */
enum status file_read(int fd, const char *path, void *buf, size_t n, int64_t at);
enum status file_write(int fd, const char *path, const void *buf, size_t n, int64_t at);

#endif
