/* Stacks of experts in MXFP4 (base/mxfp4.h) as gpt-oss' files have them: NAME_blocks [experts, out, in / 32, 16] and NAME_scales
 * [experts, out, in / 32], where a file of numbers has NAME [experts, in, out].
 *
 * Only for this folder and src/checkpoint. */
#ifndef LTRAIN_ENGINE_MXFP4_H
#define LTRAIN_ENGINE_MXFP4_H

#include "data/safetensors.h"
#include "model/model.h"

enum { MXFP4_CODES, MXFP4_SCALES, MXFP4_TENSORS }; /* blocks, scales */

/* Reads elements [first, first + n) of the parameter as numbers, in fp32 or bf16, which hold them exactly. name: as weights_find_mxfp4
 * returns them (weights.h). ERR_INVALID: a scale with which numbers are not finite. From several threads at once. */
enum status mxfp4_read(struct st_file *f, const char *const name[MXFP4_TENSORS], const struct model_param *p, int64_t first,
                       int64_t n, enum dtype type, void *data);
/* Reads the matrix of an expert, [out, in], byte for byte. Errors as above. */
enum status mxfp4_read_packed(struct st_file *f, const char *const name[MXFP4_TENSORS], const struct model_param *p,
                              int64_t expert, uint8_t *packed);

#endif
