/* A case of tests/golden: what PyTorch and transformers made of a small model (tests/golden/make_golden.py). */
#ifndef LTRAIN_TESTS_ENGINE_GOLDEN_H
#define LTRAIN_TESTS_ENGINE_GOLDEN_H

#include "data/corpus.h"
#include "data/safetensors.h"
#include "engine/session.h"
#include "model/model.h"

#include <jansson.h>

enum { GOLDEN_STEPS = 5 };

/* Relative differences of losses and of gradient norms. Measured (AVX2, all cases, steps and placements): losses at most 2.3e-8,
 * for they are means in fp64 of fp32 values whose errors are of either sign. */
#define GOLDEN_LOSS 2e-7
#define GOLDEN_NORM 1e-5

struct golden {
    char path[512]; /* the case's folder: config.json and model.safetensors */
    json_t *info;
    struct st_file *file; /* of what was made of it */
    int64_t seq_len;
    struct sequence sequence;
    double loss[GOLDEN_STEPS], norm[GOLDEN_STEPS];
};

/* Sentence on stderr if it fails. */
enum status golden_open(const char *name, struct golden *g);
void golden_close(struct golden *g);
/* The model, for the case's length, as a run makes it; with the adapters of the case's folder, if it has some. */
enum status golden_model(const struct golden *g, struct model **out);
/* Its parameters, which the session has then. */
enum status golden_load(const struct golden *g, struct session *s);

#endif
