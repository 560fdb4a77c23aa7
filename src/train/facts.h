/* Facts of a training run, as JSON: RUN/card.json from its start on, and ltrain_run.json beside the trained model. The model card
 * is written from them, and later commands learn from them how the model was trained. */
#ifndef LTRAIN_TRAIN_FACTS_H
#define LTRAIN_TRAIN_FACTS_H

#include "train/card.h"
#include "train/run.h"

#include <jansson.h>

/* Writes RUN/card.json with facts about data and settings, before the first step (one rank only). */
enum status facts_begin(const struct run *r);
/* Collects the facts after `step` from RUN/card.json and, up to that step, RUN/metrics.jsonl. *out: freed by json_decref; without
 * card.json it has the facts of metrics.jsonl only. */
enum status facts_of_run(const char *run, int64_t step, json_t **out);
/* Reads DIR/ltrain_run.json. *out NULL: there is none. ERR_INVALID: it is no JSON object. */
enum status facts_of_export(const char *dir, json_t **out);
int64_t facts_step(const json_t *facts); /* -1: facts are NULL or name no step */

/* The two texts of an export, to be freed. */
struct facts_texts {
    char *facts, *card;
};
enum status facts_write(const json_t *facts, enum card_form form, struct facts_texts *out);
void facts_texts_free(struct facts_texts *x);

#endif
