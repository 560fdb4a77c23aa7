/* manifest.json: what a checkpoint is of, and its files' sizes and hashes. Private to this folder. */
#ifndef LTRAIN_ENGINE_CHECKPOINT_MANIFEST_H
#define LTRAIN_ENGINE_CHECKPOINT_MANIFEST_H

#include "engine/checkpoint.h"

enum { CKPT_MODEL, CKPT_OPTIMIZER, CKPT_CONFIG, CKPT_FILES };
extern const char *const ckpt_file_names[CKPT_FILES];

struct manifest {
    struct checkpoint_info info;
    struct {
        int64_t bytes;
        uint64_t xxh3;
    } files[CKPT_FILES];
};

/* The manifest carries its own hash, so that a changed digit shows. */
enum status manifest_write(const char *dir, const struct manifest *m, const struct model *model, enum dtype dtype);
/* ERR_CORRUPT: missing or damaged; ERR_INVALID: of a later ltrain. */
enum status manifest_read(const char *dir, struct manifest *out);
/* The files are those that were written: sizes first, then hashes. ERR_CORRUPT names the file. */
enum status manifest_verify(const char *dir, const struct manifest *m);

#endif
