/* The kinds of attention that a configuration's layers have. Private to model. */
#ifndef LTRAIN_MODEL_KINDS_H
#define LTRAIN_MODEL_KINDS_H

#include "model/model.h"

/* Heads of layer l, and how many keys its queries attend; 0: all. */
struct attention_shape config_shape(const struct model_config *c, int64_t l);
int64_t config_window(const struct model_config *c, int64_t l);

/* Lists masks, shapes, kinds and, of models that rotate heads, sets of frequencies of m->config's layers. ERR_INVALID: there are too
 * many. */
enum status kinds_list(struct model *m, int rotates);
/* What the configuration says of the layer's attention. */
void kinds_set(const struct model *m, int64_t l, struct attention_block *a);

#endif
