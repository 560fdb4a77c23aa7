/* manifest.json: facts about a checkpoint, and its files' sizes and hashes. Private to this folder. */
#ifndef LTRAIN_CHECKPOINT_MANIFEST_H
#define LTRAIN_CHECKPOINT_MANIFEST_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/lineage.h"

enum { CKPT_MODEL, CKPT_OPTIMIZER, CKPT_CONFIG, CKPT_SETTINGS, CKPT_DATA, CKPT_FILES };
extern const char *const ckpt_file_names[CKPT_FILES];

struct manifest {
    struct checkpoint_info info;
    uint64_t base;    /* hash of the weights that adapters were trained beside (checkpoint_hash_base); 0: no adapters */
    uint64_t digests; /* hash of digests.txt; 0: saved by an ltrain that made none */
    struct {
        int64_t bytes;
        uint64_t xxh3;
    } files[CKPT_FILES];
};

/* Writes the manifest with its own hash, so that a changed digit shows. */
enum status manifest_write(const char *dir, const struct manifest *m, const struct lineage *l, const struct model *model,
                           enum dtype dtype);
/* Reads only a checkpoint's ancestors (one rank only). ERR_CORRUPT, ERR_INVALID as manifest_open. */
enum status manifest_read_lineage(const char *dir, struct lineage *out);
/* Hashes the files from first_file on: each rank a share of the segments of every file; the sums go to xxh3. All ranks call it with the
 * same m->files[].bytes. */
enum status manifest_hash(struct comm *c, const char *dir, int first_file, struct manifest *m);
/* Opens a checkpoint: rank 0 reads the manifest; then all ranks check that the files are as written, sizes first, then hashes.
 * All ranks call it and get the same status. ERR_CORRUPT names the missing or damaged file; ERR_INVALID: another format, or a
 * rank does not see the directory. */
enum status manifest_open(struct comm *c, const char *dir, struct manifest *out);
/* Opens a checkpoint as manifest_open does, without hashing. */
enum status manifest_look(struct comm *c, const char *dir, struct manifest *out);

#endif
