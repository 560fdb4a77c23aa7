/* Files of an exported adapter that describe the model it belongs to. Private to this folder. */
#ifndef LTRAIN_CHECKPOINT_BASE_H
#define LTRAIN_CHECKPOINT_BASE_H

#include "checkpoint/checkpoint.h"

#define ADAPTER_CONFIG "adapter_config.json"
#define BASE_FILE "ltrain_base.json" /* hash of the base's weights, which PEFT does not keep */

/* Writes both files (one rank only). base: the base's directory, or its name if it has none; xxh3: 0 for initial values. */
enum status base_write(const struct model *m, const char *base, uint64_t xxh3, const char *dir);
/* Writes facts and card of an export, as far as given; NULL: neither (one rank only). */
enum status base_write_texts(const struct export_texts *texts, const char *dir);
/* Moves facts and card from one directory to another, as far as they exist. */
enum status base_move_texts(const char *from, const char *to);

#endif
