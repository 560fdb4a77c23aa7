/* What a model's directory says of itself that a card of what was made of it should say, too. Private to src/train. */
#ifndef LTRAIN_TRAIN_BASE_CARD_H
#define LTRAIN_TRAIN_BASE_CARD_H

#include <jansson.h>

/* {"name", "id", "license", "license_name", "license_link"}: the hub's id where the directory lies in the hub's cache
 * (models--ORG--NAME), and the license of the front matter of its README.md; what is not known is left out. name: in place of the
 * directory's, which the hub's cache calls by a hash. */
json_t *base_card_read(const char *dir, const char *name);

#endif
