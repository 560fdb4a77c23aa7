/* A model's weights quantised as bitsandbytes lays them out: files in, files out, a matrix at a time. */
#ifndef LTRAIN_CHECKPOINT_QUANTISE_H
#define LTRAIN_CHECKPOINT_QUANTISE_H

#include "checkpoint/checkpoint.h"

struct quantise_report {
    int matrices, others; /* tensors that were quantised, and that were copied as they are */
    int64_t was, is;      /* bytes of all tensors */
};

/* m: of the files in `model`, with nothing trained and its base the form that is meant. Writes DIR/model.safetensors, or several files and their
 * index, config.json with quantization_config, and the files that say how the model is used. like: the directory of those files and of the
 * original config.json, if it has one; NULL: `model`. */
enum status checkpoint_quantise(const struct model *m, const char *model, const char *like, const char *dir, struct quantise_report *out);

#endif
