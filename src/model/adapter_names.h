/* Names of modules of many layers as one regular expression. Private to model. */
#ifndef LTRAIN_MODEL_ADAPTER_NAMES_H
#define LTRAIN_MODEL_ADAPTER_NAMES_H

#include "settings/lora.h"

#include <jansson.h>

/* Returns where the number of a layer begins in a name such as model.layers.10.mlp.up_proj; NULL: it has none, or is a regular expression. */
const char *adapter_names_layer(const char *name);
/* Writes before, an expression that matches just the names of the list, and after. Names of equal layers are put together, as
 * model[.]layers[.](0|1)[.](mlp[.]up_proj|mlp[.]down_proj). Returns 0 where that is too long or memory is short. */
int adapter_names_join(const json_t *list, const char *before, const char *after, char out[LORA_TEXT]);

#endif
