/* What checkpoints need of a file system, through the system call table. Private to this folder. */
#ifndef LTRAIN_ENGINE_CHECKPOINT_FILES_H
#define LTRAIN_ENGINE_CHECKPOINT_FILES_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { CKPT_PATH = 4096 };

/* DIR/NAME followed by suffix ("" for none). ERR_INVALID: too long. */
enum status ckpt_path(char path[CKPT_PATH], const char *dir, const char *name, const char *suffix);
/* One level; fine if it is there already. */
enum status ckpt_make_dir(const char *path);
/* Makes the entries of a directory durable. */
enum status ckpt_sync_dir(const char *path);
enum status ckpt_rename(const char *from, const char *to);
/* Removes a directory and the plain files in it, as far as possible. */
void ckpt_remove_dir(const char *path);

/* Replaces the file's content and syncs it. */
enum status ckpt_write_text(const char *path, const char *text);
/* *text: NUL-terminated, to be freed. ERR_CORRUPT: missing, or larger than 1 MiB. */
enum status ckpt_read_text(const char *path, char **text);
enum status ckpt_size(const char *path, int64_t *bytes); /* ERR_CORRUPT: missing */
/* Streams the file. ERR_CORRUPT: missing. */
enum status ckpt_hash(const char *path, uint64_t *xxh3);

#endif
