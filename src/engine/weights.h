/* A model's parameters in a file of weights. */
#ifndef LTRAIN_ENGINE_WEIGHTS_H
#define LTRAIN_ENGINE_WEIGHTS_H

#include "data/safetensors.h"
#include "engine/mxfp4.h"
#include "engine/weights_name.h"
#include "model/model.h"

/* Checks that the file is the model's. Every parameter must be there, in its shape and a readable type. Other tensors must be
 * buffers, an equal copy of a tied head, or named by one of the globs (fnmatch).
 *
 * ERR_INVALID names the first missing tensor, unused tensors, or a glob that matches no unused one. Reads no data but a tied
 * head's copy. */
enum status weights_check(struct st_file *f, const struct model *m, const char *const *ignore, int n_ignore);
/* Formats a shape as "[256, 64]". */
enum { WEIGHTS_SHAPE = 96 };
const char *weights_shape(int n_dims, const int64_t *shape, char text[WEIGHTS_SHAPE]);
/* Returns the parameter as the file has it: a stack of experts that files usually split may be one tensor. */
struct model_param weights_form(const struct st_file *f, const struct model_param *p);
/* Finds a tensor of the parameter, which is as weights_form returns it. ERR_INVALID: it is missing, or has another shape. */
enum status weights_find(struct st_file *f, const struct model_param *p, int64_t tensor, const char **name);
/* Tells whether the file has the stack of experts in MXFP4 (mxfp4.h), and returns the file's names of its tensors. ERR_INVALID: one is
 * missing, of another type or shape. */
int weights_has_mxfp4(const struct st_file *f, const struct model_param *p);
enum status weights_find_mxfp4(const struct st_file *f, const struct model_param *p, const char *name[MXFP4_TENSORS]);
/* Reads elements [first, first + n), in fp32 or bf16, from tensors of the parameter's shapes and names behind a prefix: the parameter
 * itself or its optimizer state. *finite: number of leading finite values, as of st_read. */
enum status weights_read_tensors(struct st_file *f, const char *prefix, const struct model_param *p, int64_t first, int64_t n,
                                 enum dtype type, void *data, int64_t *finite);
/* Reads elements [first, first + n) of the parameter, in fp32 or bf16. ERR_INVALID names the tensor and its first value that is
 * NaN or infinite, or would be in bf16. */
enum status weights_read(struct st_file *f, const struct model_param *p, int64_t first, int64_t n, enum dtype type, void *data);

/* Tensors of files beside the model that is trained: a multimodal model's vision tower and projector, layers that predict further
 * tokens. Names live as long as the file is open. */
struct weights_others {
    const char **names;
    int n;
    int64_t bytes;
};
enum status weights_others(const struct st_file *f, const struct model *m, struct weights_others *out);
void weights_others_free(struct weights_others *x);

#endif
