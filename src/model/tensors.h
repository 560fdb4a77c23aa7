/* The tensors that files have of a model's parameters, found by name. */
#ifndef LTRAIN_MODEL_TENSORS_H
#define LTRAIN_MODEL_TENSORS_H

#include "model/model.h"

struct tensor_list; /* sorted names */

/* Lists the tensors of a model that outlives the list. ERR_NOMEM. */
enum status tensor_list_create(const struct model *m, struct tensor_list **out);
void tensor_list_destroy(struct tensor_list *list);
/* Returns the index of the parameter that the tensor belongs to; -1: the model has no such tensor. */
int tensor_list_find(const struct tensor_list *list, const char *name);
/* Tells whether a tensor belongs to layers that predict further tokens: layers behind the last one, or `mtp`. */
int tensor_is_further(const struct model_config *c, const char *name);

#endif
