/* `ltrain eval`: what a model is worth on texts that are given, at one length or several. */
#ifndef LTRAIN_TRAIN_EVAL_H
#define LTRAIN_TRAIN_EVAL_H

#include "comm/comm.h"
#include "settings/settings.h"

/* Of a model's directory, a preset or a run (its exported model, or its newest checkpoint). Each length has a plan of its own.
 * Prints tables, or JSON. ERR_INVALID, ERR_NOFIT as of training. */
enum status eval_run(struct settings *s, struct comm *comm);

#endif
