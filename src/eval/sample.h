/* `ltrain sample`: continuing a text, or a chat at the terminal. */
#ifndef LTRAIN_EVAL_SAMPLE_H
#define LTRAIN_EVAL_SAMPLE_H

#include "comm/comm.h"
#include "settings/settings.h"

/* Answers the settings' prompt, standard input, or a conversation; prints to stdout. signal_number: the signal that ended it
 * early, else 0. */
enum status sample_run(struct settings *s, struct comm *c, int *signal_number);

#endif
