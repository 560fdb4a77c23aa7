/* What an exported adapter says of the model that it belongs to. Private to this folder. */
#ifndef LTRAIN_CHECKPOINT_BASE_H
#define LTRAIN_CHECKPOINT_BASE_H

#include "checkpoint/checkpoint.h"

#define ADAPTER_CONFIG "adapter_config.json"
#define BASE_FILE "ltrain_base.json" /* beside it: the hash of the base's weights, which PEFT does not keep */

/* Both files, by one rank. base: its directory, or its name where it has none; xxh3: 0 of initial values. */
enum status base_write(const struct model *m, const char *base, uint64_t xxh3, const char *dir);
/* Facts and card of an export, as far as they are given; NULL: neither is. By one rank. */
enum status base_write_texts(const struct export_texts *texts, const char *dir);
/* The same from one directory into another one, as far as they are there. */
enum status base_move_texts(const char *from, const char *to);

#endif
