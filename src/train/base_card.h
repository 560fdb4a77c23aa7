/* Facts of a base model that the card of a trained one repeats. Private to src/train. */
#ifndef LTRAIN_TRAIN_BASE_CARD_H
#define LTRAIN_TRAIN_BASE_CARD_H

#include <jansson.h>

/* Returns {"name", "id", "license", "license_name", "license_link"} without unknown members. The id is the hub's if the directory
 * lies in the hub's cache (models--ORG--NAME). The license is that of the front matter of README.md. name: used if there is no id
 * (the hub's cache calls directories by a hash). */
json_t *base_card_read(const char *dir, const char *name);

#endif
