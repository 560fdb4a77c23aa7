/* Convolutions of queries, keys and values whose rows a file cuts into thirds. Private to src/engine.
 *
 * transformers 5.24 has the three of OLMo Hybrid as one, and saves it as three tensors of equal rows (findings/olmo_hybrid_saved.sh). */
#ifndef LTRAIN_ENGINE_THIRDS_H
#define LTRAIN_ENGINE_THIRDS_H

#include "data/safetensors.h"
#include "model/model.h"

struct thirds {
    const char *name[3]; /* the file's tensors, of which each goes on where the one before ends */
    int64_t rows[3], columns;
    int64_t before; /* rows of the three before the parameter's */
};

/* Tells whether the file cuts the parameter's rows, which it has under another tensor's name in part, into thirds. */
int thirds_find(const struct st_file *f, const struct model_param *p, struct thirds *out);
/* Moves an element of the parameter in files to that of the tensor that has it. Returns the tensor's name; *left: number of its elements
 * from there on. */
const char *thirds_place(const struct thirds *x, int64_t *element, int64_t *left);

#endif
