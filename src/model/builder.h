/* What a family describes its model with. Private to model.
 *
 * A description is run three times: COUNT finds how many parameters there are, DECLARE lists them, and, after each unit's have
 * been put in order, CONNECT returns their places. Parameters of a unit are declared in the order in which they lie within their
 * group (matrices, vectors; see model.h). */
#ifndef LTRAIN_MODEL_BUILDER_H
#define LTRAIN_MODEL_BUILDER_H

#include "model/adapters.h"
#include "model/model.h"

enum build_pass { COUNT, DECLARE, CONNECT };

struct builder {
    struct model *m;
    enum build_pass pass;
    int unit, n_params;
    char prefix[64];                   /* of names */
    const char *head_name;             /* of an untied head */
    int head_bias;
    const struct adapter_rules *rules; /* NULL: no adapters */
};

enum linear_form {
    LINEAR_OUT_IN = 0, /* stored [out, in] */
    LINEAR_IN_OUT = 1, /* stored [in, out] */
    LINEAR_BIAS = 2,
};

/* What names begin with from here on to the unit's end; a unit begins without any. */
void build_prefix(struct builder *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* NAME.weight, drawn with standard deviation std; returns its place. */
int build_matrix(struct builder *b, const char *name, int64_t rows, int64_t columns, double std);
/* The same of the table that tokens are looked up in, with its adapter. */
int build_embedding(struct builder *b, const char *name, int64_t rows, int64_t columns, double std);
/* NAME itself, a vector, drawn likewise. */
int build_vector(struct builder *b, const char *name, int64_t n, double std);
/* NAME itself, a number that is 1 at first and never trained. To be declared after all others of the unit. */
int build_constant(struct builder *b, const char *name);
/* Of the matrix declared last only the first rows are in use, if it has more; 0: all. */
void build_use_rows(struct builder *b, int64_t rows);
/* NAME.weight of ones (of zeros where it is 1 + w) and, for layer norms, NAME.bias of zeros, as wide as the model or `dim`. */
struct model_norm build_norm(struct builder *b, const char *name, enum norm_kind kind);
struct model_norm build_norm_of(struct builder *b, const char *name, enum norm_kind kind, int64_t dim);
/* A layer norm of each head, without bias, with weights of its own: [heads, head size]. */
struct model_norm build_norm_of_heads(struct builder *b, const char *name, int64_t heads, int64_t head_dim);
struct model_norm build_no_norm(void);
/* An RMS norm of each head, without weights. */
struct model_norm build_bare_norm(void);
/* NAME.weight and, with LINEAR_BIAS, NAME.bias of zeros. form: flags. */
struct model_linear build_linear(struct builder *b, const char *name, int64_t in, int64_t out, unsigned form, double std);
/* The same of `parts` maps with heads of head_rows outputs, which files interleave head by head; the first `joined` of them are one
 * map. */
struct model_linear build_interleaved(struct builder *b, const char *name, int64_t in, int64_t out, int parts, int joined,
                                      int64_t head_rows, unsigned form, double std);
/* Outputs [first, first + out) of a fused map. */
struct model_linear build_slice(const struct model_linear *fused, int64_t first, int64_t out);
struct model_linear build_no_linear(void);
/* Heads of a layer's attention. */
const struct attention_shape *build_shape(const struct builder *b, const struct attention_block *a);
/* The next block of layer l, without norms. Its attention is of the kind that the configuration says. */
struct model_block *build_block(struct builder *b, int l, enum block_kind kind);
/* The head: the embedding's matrix if it is tied, else one by the family's name for it; an adapter of its own either way. */
void build_head(struct builder *b);

#endif
