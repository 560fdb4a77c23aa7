/* `ltrain sample`: a text is read on, or a chat at the terminal. */
#ifndef LTRAIN_TRAIN_SAMPLE_H
#define LTRAIN_TRAIN_SAMPLE_H

#include "comm/comm.h"
#include "settings/settings.h"

/* Takes the settings' prompt, or standard input, or a conversation; prints to stdout. signal_number: of the signal that ended it
 * early, else 0. */
enum status sample_run(struct settings *s, struct comm *c, int *signal_number);

#endif
