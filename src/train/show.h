/* `ltrain data`: the text that would be trained on. */
#ifndef LTRAIN_TRAIN_SHOW_H
#define LTRAIN_TRAIN_SHOW_H

#include "comm/comm.h"
#include "settings/settings.h"

/* Prints documents of the data with supervised text marked, and the lengths of documents. If the settings have a sequence length,
 * also prints the cut into sequences. One rank prints; errors as in opening the corpus. */
enum status show_data(const struct settings *s, struct comm *comm);

#endif
