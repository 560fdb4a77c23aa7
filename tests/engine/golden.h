/* Reads a case of tests/golden: results of PyTorch and transformers for a small model (tests/golden/make_golden.py). */
#ifndef LTRAIN_TESTS_ENGINE_GOLDEN_H
#define LTRAIN_TESTS_ENGINE_GOLDEN_H

#include "data/corpus.h"
#include "data/safetensors.h"
#include "engine/session.h"
#include "model/model.h"

#include <jansson.h>

enum { GOLDEN_STEPS = 5 };

/* Relative differences of losses and of gradient norms. Measured losses (AVX2, all cases, steps and placements) differ by at most
 * 2.3e-8: they are means in fp64 of fp32 values whose errors are of either sign. */
#define GOLDEN_LOSS 2e-7
#define GOLDEN_NORM 1e-5

struct golden {
    char path[512]; /* the case's folder: config.json and model.safetensors */
    json_t *info;
    struct st_file *file; /* the reference's results, golden.safetensors */
    int64_t seq_len;
    struct sequence sequence;
    double loss[GOLDEN_STEPS], norm[GOLDEN_STEPS];
};

/* Opens a case; writes a sentence to stderr if it fails. */
enum status golden_open(const char *name, struct golden *g);
void golden_close(struct golden *g);
/* Makes the model as a run does, for the case's length, with the adapters of the case's folder if it has any. */
enum status golden_model(const struct golden *g, struct model **out);
/* Loads the model's parameters into the session. */
enum status golden_load(const struct golden *g, struct session *s);

#endif
