/* Parts of a model: the layers of a pipeline stage, and a tensor-parallel member's slices of them, as a smaller model.
 *
 * A slice has an equal share of every layer's heads and of the MLP's columns: maps into heads or columns are cut by outputs, maps
 * out of them by inputs (Shoeybi et al. 2019, Megatron-LM). Norms, biases of maps cut by inputs, and the halves of adapters beside
 * the stream's width are in every slice. The embedding, the final norm and the head are in every part. */
#ifndef LTRAIN_MODEL_PART_H
#define LTRAIN_MODEL_PART_H

#include "model/model.h"

/* Finds a stage's part: layers are shared out in order, the first stages have one more where they do not divide. ERR_INVALID: more
 * stages than layers, or the slices do not divide the heads or columns of some layer; the sentence names the legal numbers. */
enum status model_stage(const struct model *whole, int stage, int stages, int slice, int slices, struct model_part *out);

/* Builds a part as a model of its own, to be destroyed before `whole`. Its parameters have the whole model's names, and shapes of
 * their own; model_param_piece maps their elements to files. ERR_INVALID: the slices do not divide a layer, or cannot be made. */
enum status model_part_create(const struct model *whole, const struct model_part *part, struct model **out);
/* Tells whether the part is the first one that has a parameter: several have the ends, and slices what is not cut. */
int model_part_is_first(const struct model *m, int param);
/* Tells whether two parts of one model have the same programs: equal layers in the same order, equal slices. */
int model_part_alike(const struct model *a, const struct model *b);

#endif
