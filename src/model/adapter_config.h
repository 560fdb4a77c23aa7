/* PEFT's adapter_config.json. */
#ifndef LTRAIN_MODEL_ADAPTER_CONFIG_H
#define LTRAIN_MODEL_ADAPTER_CONFIG_H

#include "model/model.h"

/* Whether the directory holds an adapter. */
int adapter_config_is_there(const char *dir);
/* What adapters there are, and which base they were made for, as it is written there ("": nothing is). ERR_INVALID: there is none, or it
 * says what ltrain does not do. */
enum status adapter_config_read(const char *dir, struct lora *out, char *base, size_t bytes);
/* Of a model with adapters, whose base is called that. */
enum status adapter_config_write(const char *dir, const struct model *m, const char *base);

#endif
