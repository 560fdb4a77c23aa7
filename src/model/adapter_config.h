/* PEFT's adapter_config.json. */
#ifndef LTRAIN_MODEL_ADAPTER_CONFIG_H
#define LTRAIN_MODEL_ADAPTER_CONFIG_H

#include "model/model.h"

/* The file's path in a directory. ERR_INVALID: it is too long. */
enum status adapter_config_path(const char *dir, char path[4096]);
/* Returns whether the directory holds an adapter. */
int adapter_config_is_there(const char *dir);
/* What adapters there are, and which base they were made for, as it is written there ("": nothing is). ERR_INVALID: there is none, or it
 * says what ltrain does not do. */
enum status adapter_config_read(const char *dir, struct lora *out, char *base, size_t bytes);
/* Returns whether the adapter was begun by MiCA, of which PEFT trains A alone. */
int adapter_config_froze_b(const char *dir);
/* Of a model with adapters, whose base is called that. */
enum status adapter_config_write(const char *dir, const struct model *m, const char *base);

#endif
