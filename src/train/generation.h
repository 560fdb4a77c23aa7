/* What a model's directory says about generating texts. Private to src/train. */
#ifndef LTRAIN_TRAIN_GENERATION_H
#define LTRAIN_TRAIN_GENERATION_H

#include "settings/settings.h"
#include "text/tokenizer.h"

struct generation {
    struct ids eos;                                       /* tokens that end a text */
    int samples;                                          /* "do_sample" */
    double temperature, top_p, min_p, repetition_penalty; /* below 0: not said */
    int64_t top_k;
    char undone[512]; /* "KEY VALUE, ..." of what transformers would do and ltrain does not; "" */
};
/* Of a preset nothing. ERR_INVALID: a file that is there and is not JSON, or a value that is none of its key's. */
enum status generation_read(const struct settings *s, struct generation *out);

#endif
