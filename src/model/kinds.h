/* Listing the kinds of attention among a configuration's layers. Private to model. */
#ifndef LTRAIN_MODEL_KINDS_H
#define LTRAIN_MODEL_KINDS_H

#include "model/model.h"

/* Returns the heads of layer l, or how many keys its queries attend (0: all). */
struct attention_shape config_shape(const struct model_config *c, int64_t l);
int64_t config_window(const struct model_config *c, int64_t l);

/* Lists masks, shapes and kinds of the layers of m->config; if `rotates`, also sets of rotary frequencies. ERR_INVALID: there are
 * too many. */
enum status kinds_list(struct model *m, int rotates);
/* Sets the layer's attention as the configuration says. */
void kinds_set(const struct model *m, int64_t l, struct attention_block *a);

#endif
