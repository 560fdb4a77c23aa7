/* Parts of a model as smaller models: the layers of a pipeline stage, or a tensor-parallel member's slices of these layers.
 *
 * A slice has an equal share of every layer's heads and of the MLP's columns: maps into heads or columns are cut by outputs, maps
 * out of them by inputs (Shoeybi et al. 2019, Megatron-LM).
 *
 * Every slice has the norms, the biases of maps cut by inputs, and the halves of adapters that touch the stream. Every part has
 * the embedding, the final norm and the head. */
#ifndef LTRAIN_MODEL_PART_H
#define LTRAIN_MODEL_PART_H

#include "model/model.h"
#include "program/mesh.h"

/* Finds a stage's part: layers are divided in order; if the division leaves a remainder, the first stages have one more.
 * ERR_INVALID: more stages than layers, or the slices do not divide the heads or columns of some layer; the sentence names the
 * legal numbers. */
enum status model_stage(const struct model *whole, int stage, int stages, int slice, int slices, struct model_part *out);

/* Finds the same where the layers of each stage may be given; layers->n = 0: divided in order. ERR_INVALID, too: their sum is not the
 * model's layers. */
enum status model_stage_of(const struct model *whole, const struct mesh_stages *layers, int stage, int stages, int slice,
                           int slices, struct model_part *out);
/* Returns the layers of the stage with the most. */
int64_t model_most_layers(const struct model *whole, const struct mesh_stages *layers, int stages);

/* Builds a part as a model of its own, to be destroyed before `whole`. Its parameters have the names of the whole model's and the part's
 * shapes; model_param_piece maps their elements to files. ERR_INVALID: slices do not divide a layer, or the part cannot be cut. */
enum status model_part_create(const struct model *whole, const struct model_part *part, struct model **out);
/* Refuses a number of slices (--mesh tp=N) that does not divide the layers, and models whose layers cannot be cut. */
enum status model_slices_check(const struct model *whole, int slices);
/* Writes the configuration of the part's layers in the whole model, with all heads and columns. */
void model_part_config(const struct model *m, struct model_config *out);
/* Creates a model of `config`, which describes whole layers, and cuts this model into slices as `m` is cut; *out owns the uncut model.
 * freeze: as for model_create. */
enum status model_part_create_like(const struct model *m, const struct model_config *config, const char *const *freeze,
                                   int n_freeze, struct model **out);
/* Finds n elements, from `first` on, of a part's unit in the whole model: the whole model's unit (*of_whole) and the first element's
 * index there (*there). Returns how many of the n are adjacent there. */
int64_t model_part_piece(const struct model *m, int unit, int64_t first, int64_t n, int *of_whole, int64_t *there);
/* Finds a part's element `at` of a parameter in the whole parameter: its element *there. Returns how many of the n elements from `at` on
 * are adjacent in the whole parameter, too. */
int64_t model_part_span(const struct model_param *p, const struct model_param *of_whole, int64_t at, int64_t n, int64_t *there);
/* Tells whether no earlier part has the parameter. Every part has the embedding and the head, and every slice the parameters that are
 * not cut. */
int model_part_is_first(const struct model *m, int param);
/* Tells whether a pipeline's first stage alone computes the embedding, so that no other one needs its state: only if the head has a matrix
 * of its own and no adapters are trained. The other stages' parts have the embedding frozen and unused. */
int model_first_embeds(const struct model *m);
/* Tells whether two parts of one model have the same programs: equal layers in the same order, equal slices. */
int model_part_alike(const struct model *a, const struct model *b);

#endif
