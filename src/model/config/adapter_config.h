/* Reading and writing PEFT's adapter_config.json. */
#ifndef LTRAIN_MODEL_CONFIG_ADAPTER_CONFIG_H
#define LTRAIN_MODEL_CONFIG_ADAPTER_CONFIG_H

#include "model/model.h"

#include <jansson.h>

/* Writes the path of the file in `dir`. ERR_INVALID: the path is too long. */
enum status adapter_config_path(const char *dir, char path[4096]);
/* Tells whether the directory holds an adapter. */
int adapter_config_is_there(const char *dir);
/* Reads the file as JSON, an object that the caller releases. ERR_INVALID: missing, or no JSON. */
enum status adapter_config_load(const char *dir, json_t **out);
/* Reads the adapters and the name of the base they were made for ("": the file names none). ERR_INVALID: the file is missing, or
 * asks for something ltrain does not do. */
enum status adapter_config_read(const char *dir, struct lora *out, char *base, size_t bytes);
/* Leaves the base's stacks of experts out of adapters whose file names modules only: there `down_proj` is a map of shared experts
 * or dense layers, and PEFT has stacks in `target_parameters`. ERR_INVALID: the excluded modules become too long. */
enum status adapter_config_fit(const struct model_config *base, struct lora *l);
/* Tells whether the adapter was begun by MiCA, whose adapters train only A in PEFT. */
int adapter_config_froze_b(const char *dir);
/* Writes the file for model m, which has adapters; base: name of the base model. */
enum status adapter_config_write(const char *dir, const struct model *m, const char *base);

#endif
