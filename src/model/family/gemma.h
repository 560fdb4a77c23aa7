/* Parts that Gemma 4 shares with earlier Gemmas. Private to model. */
#ifndef LTRAIN_MODEL_FAMILY_GEMMA_H
#define LTRAIN_MODEL_FAMILY_GEMMA_H

#include "model/family/common.h"

void gemma_embedding(struct builder *b);
/* Reads hidden_activation. Its older name hidden_act is checked and ignored, as in transformers. */
enum status gemma_read_activation(struct config_reader *r, struct model_config *c);
json_t *gemma_write_activation(const struct model_config *c);
json_t *gemma_write_logit_cap(const struct model_config *c);
enum status gemma_derive(struct config_reader *r, struct model_config *c);

#endif
