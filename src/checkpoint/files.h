/* File system operations of checkpoints, through the system call table. Private to this folder. */
#ifndef LTRAIN_CHECKPOINT_FILES_H
#define LTRAIN_CHECKPOINT_FILES_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { CKPT_PATH = 4096 };

/* Writes DIR/NAME followed by suffix ("" for none). ERR_INVALID: the path is too long. */
enum status ckpt_path(char path[CKPT_PATH], const char *dir, const char *name, const char *suffix);
/* Makes one directory; fine if it is there already. */
enum status ckpt_make_dir(const char *path);
enum status ckpt_rename(const char *from, const char *to);
/* Removes a directory and the plain files in it, as far as possible; of a symbolic link only the link. */
void ckpt_remove_dir(const char *path);

/* Replaces the file's content and syncs it. */
enum status ckpt_write_text(const char *path, const char *text);
/* Reads a text (NUL-terminated, to be freed). ERR_CORRUPT: the file is missing, or larger than `most` bytes. */
enum status ckpt_read_text(const char *path, int64_t most, char **text);
enum { CKPT_SMALL_TEXT = 1 << 20 };
/* Tells in *there whether the path exists. A dangling link exists: opening it is an error. */
enum status ckpt_look(const char *path, int *there);
/* Names in a directory of texts: the templates' directory, and the file with the tensors beside the model. */
#define CKPT_TEMPLATES "additional_chat_templates"
#define CKPT_OTHERS "others.safetensors"
/* Replaces `to` by the bytes of a regular file, and syncs it. */
enum status ckpt_copy(const char *from, const char *to);
/* Copies or moves the files of these names that exist, from one directory to another. */
enum status ckpt_copy_named(const char *from, const char *to, const char *const *names, int n);
enum status ckpt_move_named(const char *from, const char *to, const char *const *names, int n);
enum status ckpt_size(const char *path, int64_t *bytes); /* ERR_CORRUPT: missing */
/* Bytes of a segment. A file's hash is the sum, modulo 2^64, of the xxh3 of its segments, each seeded with its number. So any
 * ranks may hash any segments, in any order. */
enum { CKPT_SEGMENT = 128 << 10 };
int64_t ckpt_segments(int64_t bytes);
/* A part of a file that is hashed by itself: its segments' seeds count from `seed` on, 0 for a whole file. */
struct ckpt_part {
    const char *path;
    int64_t at, bytes;
    uint64_t seed;
};
/* Adds the hashes of n segments from `first` on to *sum, and reports the bytes read (base/progress.h). ERR_CORRUPT: the file is
 * missing or shorter. */
enum status ckpt_hash(const struct ckpt_part *part, int64_t first, int64_t n, uint64_t *sum);
/* A file that is open, and the bytes of it that were read last: small parts side by side then take one call. */
struct ckpt_window {
    const char *path; /* borrowed */
    int fd;
    char *bytes;
    int64_t at, n; /* place of `bytes` in the file, and their number */
};
enum status ckpt_window_open(const char *path, struct ckpt_window *out);
void ckpt_window_close(struct ckpt_window *w);
/* Hashes as ckpt_hash does, through the window on part->path. */
enum status ckpt_hash_in(struct ckpt_window *w, const struct ckpt_part *part, int64_t first, int64_t n, uint64_t *sum);

/* Marks a directory that rank 0 has made with the save's own number. The other ranks look for the mark, so that they never take
 * an older directory, or one of the same path on their own host, for it. */
enum status ckpt_mark(const char *dir, uint64_t mark);
void ckpt_unmark(const char *dir, uint64_t mark);
/* Looks for the mark. patience: seconds in which another host's file may appear. ERR_INVALID: the mark cannot be seen. */
enum status ckpt_check_mark(const char *dir, uint64_t mark, double patience);

#endif
