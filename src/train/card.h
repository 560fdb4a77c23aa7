/* README.md of what a run has trained: front matter for the hub, then data, training, evaluation and how to load it. Private to
 * src/train. */
#ifndef LTRAIN_TRAIN_CARD_H
#define LTRAIN_TRAIN_CARD_H

#include "base/status.h"

#include <jansson.h>
#include <stdio.h>

/* Content of a directory: a whole model, an adapter, or an adapter merged into its base. */
enum card_form { CARD_MODEL, CARD_ADAPTER, CARD_MERGED };

/* Prints the card. facts: as in ltrain_run.json (facts.h); the card leaves out missing ones. */
void card_print(const json_t *facts, enum card_form form, FILE *f);

#endif
