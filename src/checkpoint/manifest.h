/* manifest.json: what a checkpoint is of, and its files' sizes and hashes. Private to this folder. */
#ifndef LTRAIN_CHECKPOINT_MANIFEST_H
#define LTRAIN_CHECKPOINT_MANIFEST_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/lineage.h"

enum { CKPT_MODEL, CKPT_OPTIMIZER, CKPT_CONFIG, CKPT_SETTINGS, CKPT_DATA, CKPT_FILES };
extern const char *const ckpt_file_names[CKPT_FILES];

struct manifest {
    struct checkpoint_info info;
    uint64_t base; /* of a model with adapters: the hash of what they were trained on (checkpoint_hash_base); 0: none */
    struct {
        int64_t bytes;
        uint64_t xxh3;
    } files[CKPT_FILES];
};

/* The manifest carries its own hash, so that a changed digit shows. */
enum status manifest_write(const char *dir, const struct manifest *m, const struct lineage *l, const struct model *model, enum dtype dtype);
/* By one rank: reads a checkpoint's ancestors alone. ERR_CORRUPT, ERR_INVALID as manifest_open. */
enum status manifest_read_lineage(const char *dir, struct lineage *out);
/* Called by all ranks with the same m->files[].bytes: each hashes a share of the segments of every file; the sums go to xxh3. */
enum status manifest_hash(struct comm *c, const char *dir, struct manifest *m);
/* Called by all ranks: rank 0 reads the manifest; then all check that the files are as written: sizes first, then
 * hashes. All return the same. ERR_CORRUPT names what is missing or damaged; ERR_INVALID: of another format, or a rank does not
 * see the directory. */
enum status manifest_open(struct comm *c, const char *dir, struct manifest *out);
/* The same without hashing. */
enum status manifest_look(struct comm *c, const char *dir, struct manifest *out);

#endif
