/* What would be trained on, as text. */
#ifndef LTRAIN_TRAIN_SHOW_H
#define LTRAIN_TRAIN_SHOW_H

#include "comm/comm.h"
#include "settings/settings.h"

/* Prints documents of the data with what is supervised marked, how long documents are and, if the settings have a sequence
 * length, how they are cut into sequences. By one rank; errors as of opening the corpus. */
enum status show_data(const struct settings *s, struct comm *comm);

#endif
