/* Joining names of modules of many layers into one regular expression. Private to model. */
#ifndef LTRAIN_MODEL_ADAPTER_NAMES_H
#define LTRAIN_MODEL_ADAPTER_NAMES_H

#include "settings/lora.h"

#include <jansson.h>

/* Returns the start of the layer's number in a name such as model.layers.10.mlp.up_proj; NULL if the name has none or is a
 * regular expression. */
const char *adapter_names_layer(const char *name);
/* Writes `before`, an expression that matches just the names of the list, and `after`. Layers with equal names are grouped, as in
 * model[.]layers[.](0|1)[.](mlp[.]up_proj|mlp[.]down_proj). Returns 0 if the text is too long or memory is short. */
int adapter_names_join(const json_t *list, const char *before, const char *after, char out[LORA_TEXT]);

/* Joins targets that are names (or else, expression) and that `l` restricts to layers and excludes from modules with names of parameters,
 * which nothing restricts, to one regular expression, l->targets. The restrictions become parts of it. Returns 0 if the text is too
 * long. */
int adapter_names_guard(const json_t *names, const char *expression, const json_t *parameters, struct lora *l);

#endif
