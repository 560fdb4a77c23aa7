/* Room for a run's files in its directory. */
#ifndef LTRAIN_TRAIN_SPACE_H
#define LTRAIN_TRAIN_SPACE_H

#include "model/model.h"
#include "settings/settings.h"

struct run_space {
    /* bytes of one checkpoint, of the model at the end, and of the log with settings, plan and the tokenizer's files */
    int64_t checkpoint, model, log;
    int64_t checkpoints; /* most checkpoints at one time, beside the existing ones */
    int64_t bytes;       /* bytes of all files, at their most */
};

/* Returns the bytes that the run's directory takes; 0 with --machine. */
int64_t run_space_bytes(const struct settings *s, const struct model *m);
/* Makes sure that the directory's file system, and any quota, has that room. ERR_NOFIT names all numbers. */
enum status run_space_check(const struct settings *s, const struct model *m);

#endif
