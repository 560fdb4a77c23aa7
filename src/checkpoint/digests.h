/* Digests of a checkpoint's tensors, which do not depend on the ranks and the placement that saved them. Private to this folder. */
#ifndef LTRAIN_CHECKPOINT_DIGESTS_H
#define LTRAIN_CHECKPOINT_DIGESTS_H

#include "checkpoint/files.h"
#include "checkpoint/manifest.h"
#include "comm/comm.h"
#include "data/safetensors.h"

/* File of a checkpoint with a line for each tensor: 16 digits, the number of the file, the name. */
#define CKPT_DIGESTS "digests.txt"
enum { DIGEST_FILES = 2 }; /* files with tensors: the first ones of ckpt_file_names */

/* Finds tensor i's bytes in its file. The seed depends on the tensor's name, type and shape, not on the file. Returns 0 for tensors
 * of kinds that no model has. */
int digest_find(const struct st_file *f, int i, struct ckpt_part *out);
/* Adds the hashes of this rank's share of a tensor's segments to *sum; all ranks call it, and their sums add up to the digest. */
enum status digest_share(struct comm *c, const struct ckpt_part *part, uint64_t *sum);

/* Writes DIR/digests.txt from the tensors' files that lie there, whose sizes *m has, and sets their hashes and the text's in *m, on all
 * ranks; all call it, and each reads a share once. */
enum status digests_write(struct comm *c, const char *dir, struct manifest *m);

/* Digests read back (one rank only). */
struct digests {
    char *text, *next; /* next: the line behind the last one found, since files are asked in the text's order */
};
/* Reads DIR/digests.txt and checks the text's hash. ERR_CORRUPT: it is missing or damaged. */
enum status digests_read(const char *dir, uint64_t text_xxh3, struct digests *out);
void digests_free(struct digests *d);
/* Finds a tensor's digest; returns 0 if the text has none. */
int digests_look(struct digests *d, int file, const char *name, uint64_t *out);

#endif
