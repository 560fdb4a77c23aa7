/* `ltrain eval`: a model's losses on given texts and scores in tasks of long contexts, at one length or several. */
#ifndef LTRAIN_EVAL_EVAL_H
#define LTRAIN_EVAL_EVAL_H

#include "comm/comm.h"
#include "settings/settings.h"

/* Evaluates a model's directory, a preset or a run (its exported model, or its newest checkpoint). Each length of texts has a
 * plan of its own. Prints tables or JSON. signal_number: the signal that ended the evaluation early, else 0. ERR_INVALID,
 * ERR_NOFIT: as in training. */
enum status eval_run(struct settings *s, struct comm *comm, int *signal_number);

#endif
