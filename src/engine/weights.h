/* A model's parameters in a file of weights. */
#ifndef LTRAIN_ENGINE_WEIGHTS_H
#define LTRAIN_ENGINE_WEIGHTS_H

#include "data/safetensors.h"
#include "model/model.h"

/* Whether the file is the model's: every parameter is there, in its shape and a type that is read, and nothing else is but
 * buffers, an equal copy of a tied head, and tensors that one of the globs names (fnmatch). ERR_INVALID names the first that is
 * missing, or those that nothing uses, or a glob that names none of these. Reads no data but a tied head's copy. */
enum status weights_check(struct st_file *f, const struct model *m, const char *const *ignore, int n_ignore);
/* What the file calls a tensor: as it is called here, without its first word, or as the text model of a multimodal one. */
const char *weights_name(const struct st_file *f, const char *name);
/* The tensor that is the parameter. ERR_INVALID: there is none, or it has another shape. */
enum status weights_find(struct st_file *f, const struct model_param *p, const char **name);
/* Elements [first, first + n) of the parameter, in fp32 or bf16, from a tensor of its shape: itself, or what an optimizer keeps of it.
 * *finite: as st_read has it. */
enum status weights_read_tensor(struct st_file *f, const char *name, const struct model_param *p, int64_t first, int64_t n,
                                enum dtype type, void *data, int64_t *finite);
/* Elements [first, first + n) of the parameter, in fp32 or bf16. ERR_INVALID names the tensor and its first value that is NaN or infinite,
 * or would be in bf16. */
enum status weights_read(struct st_file *f, const struct model_param *p, int64_t first, int64_t n, enum dtype type, void *data);

/* The tensors of a multimodal model's files that are not the text model's: vision tower, projector. Names live as long as the
 * file is open. */
struct weights_others {
    const char **names;
    int n;
    int64_t bytes;
};
enum status weights_others(const struct st_file *f, const struct model *m, struct weights_others *out);
void weights_others_free(struct weights_others *x);

#endif
