/* What is known of a training run, as JSON: RUN/card.json from its start on, and ltrain_run.json beside what it has trained, from which
 * the model card is written and later commands learn what the model was trained with. Private to src/train. */
#ifndef LTRAIN_TRAIN_FACTS_H
#define LTRAIN_TRAIN_FACTS_H

#include "train/card.h"
#include "train/run.h"

#include <jansson.h>

/* By one rank, before the first step: RUN/card.json, of data and settings. */
enum status facts_begin(const struct run *r);
/* Of the state after `step`: what lies in RUN/card.json, and what RUN/metrics.jsonl says up to there. *out: to be freed by json_decref;
 * without card.json it has what there is. */
enum status facts_of_run(const char *run, int64_t step, json_t **out);
/* DIR/ltrain_run.json. *out NULL: there is none. ERR_INVALID: it is no JSON object. */
enum status facts_of_export(const char *dir, json_t **out);
int64_t facts_step(const json_t *facts); /* -1: not said; of NULL, too */

/* The two texts of an export, to be freed. */
struct facts_texts {
    char *facts, *card;
};
enum status facts_write(const json_t *facts, enum card_form form, struct facts_texts *out);
void facts_texts_free(struct facts_texts *x);

#endif
