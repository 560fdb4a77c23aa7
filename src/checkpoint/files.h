/* What checkpoints need of a file system, through the system call table. Private to this folder. */
#ifndef LTRAIN_CHECKPOINT_FILES_H
#define LTRAIN_CHECKPOINT_FILES_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { CKPT_PATH = 4096 };

/* DIR/NAME followed by suffix ("" for none). ERR_INVALID: too long. */
enum status ckpt_path(char path[CKPT_PATH], const char *dir, const char *name, const char *suffix);
/* One level; fine if it is there already. */
enum status ckpt_make_dir(const char *path);
/* Makes the entries of a directory durable; where the file system has no such call, it is left to it. */
enum status ckpt_sync_dir(const char *path);
enum status ckpt_rename(const char *from, const char *to);
/* Removes a directory and the plain files in it, as far as possible; of a symbolic link the link only. */
void ckpt_remove_dir(const char *path);

/* Replaces the file's content and syncs it. */
enum status ckpt_write_text(const char *path, const char *text);
/* *text: NUL-terminated, to be freed. ERR_CORRUPT: missing, or larger than `most` bytes. */
enum status ckpt_read_text(const char *path, int64_t most, char **text);
enum { CKPT_SMALL_TEXT = 1 << 20 };
/* A link to nowhere is there: opening it is an error. */
enum status ckpt_look(const char *path, int *there);
/* In a directory of texts: what a multimodal model has beside the text model. */
#define CKPT_OTHERS "others.safetensors"
/* Replaces `to` by the bytes of a regular file, and syncs it. */
enum status ckpt_copy(const char *from, const char *to);
/* Of the names those that are there, from one directory to another. */
enum status ckpt_copy_named(const char *from, const char *to, const char *const *names, int n);
enum status ckpt_move_named(const char *from, const char *to, const char *const *names, int n);
enum status ckpt_size(const char *path, int64_t *bytes); /* ERR_CORRUPT: missing */
/* A file's hash is the sum, modulo 2^64, of the xxh3 of its segments, each seeded with its number: so any ranks may hash any
 * segments, and nothing has to be kept. */
enum { CKPT_SEGMENT = 128 << 10 };
int64_t ckpt_segments(int64_t bytes);
/* A part of a file that is hashed by itself: its segments' seeds count from `seed` on, 0 for a whole file. */
struct ckpt_part {
    const char *path;
    int64_t at, bytes;
    uint64_t seed;
};
/* Adds n segments from `first` on to *sum; says what it has read (base/progress.h). ERR_CORRUPT: missing, or shorter. */
enum status ckpt_hash(const struct ckpt_part *part, int64_t first, int64_t n, uint64_t *sum);

/* Rank 0 marks a directory that it has made with a number of its own; the others look for it, so that they never take an older
 * directory, or one of the same path on their own host, for that. */
enum status ckpt_mark(const char *dir, uint64_t mark);
void ckpt_unmark(const char *dir, uint64_t mark);
/* patience: seconds; what another host has made may take a while to show. ERR_INVALID: it is not to be seen. */
enum status ckpt_check_mark(const char *dir, uint64_t mark, double patience);

#endif
