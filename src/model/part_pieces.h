/* Pieces of making a part of a model. Private to src/model. */
#ifndef LTRAIN_MODEL_PART_PIECES_H
#define LTRAIN_MODEL_PART_PIECES_H

#include "model/model.h"

/* Refuses a part whose slices do not divide its layers, or whose blocks are not cut (part_check.c). */
enum status part_check(const struct model *whole, const struct model_part *part);
/* Gives the maps, norms and vectors of a part's layers and ends the parameters' new indices, to[old index] (part_move.c). */
void part_renumber(const int *to, struct model *m);

#endif
