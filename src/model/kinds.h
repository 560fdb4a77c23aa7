/* Listing masks, heads and rotary frequencies of a model's attention, and the kinds of its layers. Private to model. */
#ifndef LTRAIN_MODEL_KINDS_H
#define LTRAIN_MODEL_KINDS_H

#include "model/model.h"

/* Returns the heads of layer l. */
struct attention_shape config_shape(const struct model_config *c, int64_t l);

/* Lists masks and shapes of the layers with attention; if `rotates`, also sets of rotary frequencies. The layers' kinds of blocks
 * are known. ERR_INVALID: there are too many. */
enum status kinds_list_attention(struct model *m, int rotates);
/* Lists the kinds of layers. The blocks are connected. ERR_INVALID: there are too many, or a layer has two blocks of a kind. */
enum status kinds_list(struct model *m);
/* Sets the layer's attention as the configuration says. */
void kinds_set(const struct model *m, int64_t l, struct attention_block *a);

#endif
