/* Functions with which a family describes its model. Private to model.
 *
 * A description runs three times. COUNT counts the parameters, DECLARE lists them. After each unit's parameters have been sorted,
 * CONNECT returns their places. Parameters of a unit are declared in their order within their group (matrices, vectors; see
 * model.h). */
#ifndef LTRAIN_MODEL_BUILDER_H
#define LTRAIN_MODEL_BUILDER_H

#include "model/adapters.h"
#include "model/model.h"

enum build_pass { COUNT, DECLARE, CONNECT };

struct experts_form;

struct builder {
    struct model *m;
    enum build_pass pass;
    int unit, n_params;
    char prefix[64];       /* prefix of parameter names */
    const char *head_name; /* name of an untied head */
    int head_bias;
    const char *root, *unadapted; /* members of struct family */
    const struct param_renaming *renamings;
    struct attention_shape shape;       /* heads of the attention begun last */
    const struct adapter_rules *rules;  /* NULL: no adapters */
    const struct experts_form *experts; /* experts of the family (family/experts.h); NULL: none */
};

enum linear_form {
    LINEAR_OUT_IN = 0, /* stored [out, in] */
    LINEAR_IN_OUT = 1, /* stored [in, out] */
    LINEAR_BIAS = 2,
};

/* Sets the prefix of parameter names up to the end of the unit; each unit begins without a prefix. */
void build_prefix(struct builder *b, const char *prefix);
/* Sets a layer's prefix: `layers`, as "model.layers.", its number and a dot. */
void build_layer_prefix(struct builder *b, const char *layers, int l);
/* Declares NAME.weight, drawn with standard deviation std; returns its place. */
int build_matrix(struct builder *b, const char *name, int64_t rows, int64_t columns, double std);
/* Declares the table that tokens are looked up in, with its adapter; returns its place. */
int build_embedding(struct builder *b, const char *name, int64_t rows, int64_t columns, double std);
/* Declares NAME itself, a vector drawn with standard deviation std. */
int build_vector(struct builder *b, const char *name, int64_t n, double std);
/* Declares NAME itself, a vector with initial values of that kind. */
int build_vector_of(struct builder *b, const char *name, int64_t n, enum param_init init);
/* Declares NAME itself, a vector that files have as [1, 1, heads, 1]. */
int build_vector_of_heads(struct builder *b, const char *name, int64_t heads, enum param_init init);
/* Declares NAME.weight of a convolution over each channel's last `width` tokens, drawn with standard deviation std. */
int build_conv(struct builder *b, const char *name, int64_t channels, int64_t width, double std);
/* Declares NAME itself, a number that is 1 at first and never trained. Must come after all others of the unit. */
int build_constant(struct builder *b, const char *name);
/* Limits the use of the matrix declared last to its first `rows` rows, if it has more; 0: all are used. */
void build_use_rows(struct builder *b, int64_t rows);
/* Declares NAME.weight of ones (zeros where the norm multiplies by 1 + w) and, for layer norms, NAME.bias of zeros. Width: the
 * model's, or `dim`. */
struct model_norm build_norm(struct builder *b, const char *name, enum norm_kind kind);
struct model_norm build_norm_of(struct builder *b, const char *name, enum norm_kind kind, int64_t dim);
/* Declares a layer norm for each head, without bias; every head has its own weights: [heads, head size]. */
struct model_norm build_norm_of_heads(struct builder *b, const char *name, int64_t heads, int64_t head_dim);
/* Returns an RMS norm of each head, without weights. */
struct model_norm build_bare_norm(void);
/* Declares NAME.weight and, with LINEAR_BIAS, NAME.bias of zeros. form: flags of enum linear_form. */
struct model_linear build_linear(struct builder *b, const char *name, int64_t in, int64_t out, unsigned form, double std);
/* Declares `parts` maps, up to PARAM_PARTS, whose heads files interleave. rows[i]: outputs of a head of the i-th map. */
struct model_linear build_interleaved(struct builder *b, const char *name, int64_t in, int64_t out, int parts,
                                      const int64_t *rows, unsigned form, double std);
/* Returns outputs [first, first + out) of a fused map. */
struct model_linear build_slice(const struct model_linear *fused, int64_t first, int64_t out);
struct model_linear build_no_linear(void);
/* Declares NAME, a stack of `experts` maps, and (LINEAR_BIAS) NAME_bias. parts: ends of the names of the tensors that files have for
 * each expert, up to EXPERT_PARTS; NULL: files have the stack as one tensor, as multimodal models' files have. Sizes are those of one map. */
struct model_linear build_stack(struct builder *b, const char *name, int64_t experts, int64_t in, int64_t out, unsigned form,
                                const char *const *parts, double std);
/* Tells whether the module of that name has an adapter. */
int build_adapts(const struct builder *b, const char *module);
/* Declares the adapter, if there is one, of a map that PEFT calls NAME. A is drawn at first as PyTorch draws a linear map's weights; B is
 * zero. */
void build_adapter(struct builder *b, const char *name, struct model_linear *w);
/* Declares the adapter of a stack, w, which is STACK of the module that holds the experts: named as PEFT names those of a parameter,
 * inner: 1: another parameter's is wrapped around it. */
void build_stack_adapter(struct builder *b, const char *module, const char *stack, int inner, int64_t experts,
                         struct model_linear *w);
/* Declares NAME itself, a vector of zeros that is never trained. rows: 1: files have it as a matrix with one row; 0: as a vector. */
int build_frozen_vector(struct builder *b, const char *name, int64_t n, int rows);
/* Returns the shape of the heads of a layer's attention, which was begun last. */
const struct attention_shape *build_shape(const struct builder *b, const struct attention_block *a);
/* Begins the next block of layer l, without norms, and returns it. Mask and heads of attention are the configuration's. */
struct model_block *build_block(struct builder *b, int l, enum block_kind kind);
/* Declares the head: the embedding's matrix if tied, else a matrix by the family's name for it. In both cases the head has an
 * adapter of its own. */
void build_head(struct builder *b);

#endif
