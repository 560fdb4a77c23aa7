/* `ltrain eval`: what a model is worth on texts that are given and in tasks of long contexts, at one length or several. */
#ifndef LTRAIN_TRAIN_EVAL_H
#define LTRAIN_TRAIN_EVAL_H

#include "comm/comm.h"
#include "settings/settings.h"

/* Of a model's directory, a preset or a run (its exported model, or its newest checkpoint). Of texts each length
 * has a plan of its own. Prints tables, or JSON. signal_number: of the signal that ended the tasks early, else 0. ERR_INVALID, ERR_NOFIT as
 * of training. */
enum status eval_run(struct settings *s, struct comm *comm, int *signal_number);

#endif
