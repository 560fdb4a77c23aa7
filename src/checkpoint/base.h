/* What an exported adapter says of the model that it belongs to. Private to this folder. */
#ifndef LTRAIN_CHECKPOINT_BASE_H
#define LTRAIN_CHECKPOINT_BASE_H

#include "engine/session.h"

#define ADAPTER_CONFIG "adapter_config.json"
#define BASE_FILE "ltrain_base.json" /* beside it: the hash of the base's weights, which PEFT does not keep */

/* Both files, by one rank. */
enum status base_write(const struct session *s, const char *dir);

#endif
