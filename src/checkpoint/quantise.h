/* Quantising a model's weights into bitsandbytes' layout: files in, files out, a matrix at a time. */
#ifndef LTRAIN_CHECKPOINT_QUANTISE_H
#define LTRAIN_CHECKPOINT_QUANTISE_H

#include "checkpoint/checkpoint.h"

struct quantise_report {
    int matrices, others; /* tensors that were quantised, and those copied as they are */
    int64_t was, is;      /* bytes of all tensors, before and after */
};

/* Quantises the files in `model` to m's base format; m has nothing trained. Writes DIR/model.safetensors, or several files and
 * their index, config.json with quantization_config, and the tokenizer's and other text files.
 *
 * like: directory of those text files and of the original config.json, if it has one; NULL: `model`. */
enum status checkpoint_quantise(const struct model *m, const char *model, const char *like, const char *dir,
                                struct quantise_report *out);

#endif
