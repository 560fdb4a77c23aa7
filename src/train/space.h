/* What a run writes into its directory. Private to src/train. */
#ifndef LTRAIN_TRAIN_SPACE_H
#define LTRAIN_TRAIN_SPACE_H

#include "model/model.h"
#include "settings/settings.h"

struct run_space {
    int64_t checkpoint, model, log; /* bytes of one; log: with settings, plan and the files of a tokenizer */
    int64_t checkpoints;            /* that are there at once, beside those that are there already */
    int64_t bytes;                  /* of all, at the moment of most */
};

/* Bytes that the run's directory takes; 0 with --machine. */
int64_t run_space_bytes(const struct settings *s, const struct model *m);
/* ERR_NOFIT, with all numbers, if the directory's file system, or a quota, has less. */
enum status run_space_check(const struct settings *s, const struct model *m);

#endif
