/* What lies in RUN/checkpoints. Private to this folder. */
#ifndef LTRAIN_CHECKPOINT_NAMES_H
#define LTRAIN_CHECKPOINT_NAMES_H

#include "base/status.h"

#include <stdint.h>

enum form { FORM_FINAL, FORM_OLD, FORM_PARTIAL };

struct ckpt_entry {
    char name[48];
    int64_t step;
    enum form form;
};

struct ckpt_listing {
    struct ckpt_entry *entries; /* newest step first; of one step, the final one first */
    int n;
};

/* Free l->entries. A directory that does not exist is empty. */
enum status names_list(const char *dir, struct ckpt_listing *l);
/* The name in `latest` if there is a sensible one, else "". */
enum status names_read_latest(const char *dir, char name[48]);
/* Removes what saves that failed or were killed have left. */
void names_remove_dead(const char *dir);
/* Removes dead directories and all but the last `keep` up to `step`. Later ones are of a longer run that was not resumed at its
 * end: left alone until this one has passed them. What cannot be removed now is tried again at the next save. */
void names_prune(const char *dir, int64_t step, int keep);

#endif
