/* Settings of sampling that a model's directory gives (generation_config.json, config.json). Private to src/eval. */
#ifndef LTRAIN_EVAL_GENERATION_H
#define LTRAIN_EVAL_GENERATION_H

#include "settings/settings.h"
#include "text/tokenizer.h"

struct generation {
    struct ids eos;                                       /* tokens that end a text */
    int samples;                                          /* "do_sample" */
    double temperature, top_p, min_p, repetition_penalty; /* below 0: not given */
    int64_t top_k;
    char undone[512]; /* "KEY VALUE, ..." of keys that transformers obeys and ltrain does not; "": none */
};
/* Reads the keys; a preset has none. ERR_INVALID: a file is not JSON, or a value does not fit its key. */
enum status generation_read(const struct settings *s, struct generation *out);

#endif
