/* Names of parameters in files. */
#ifndef LTRAIN_ENGINE_WEIGHTS_NAME_H
#define LTRAIN_ENGINE_WEIGHTS_NAME_H

#include "data/safetensors.h"

/* Returns the file's own copy of its name for a tensor: the same, without its first word, or as part of a multimodal model's text
 * model; `name` itself if the file has no such tensor. */
const char *weights_name(const struct st_file *f, const char *name);

#endif
