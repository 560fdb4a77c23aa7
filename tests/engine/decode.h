/* Makes a small sampling run for tests: a golden model, a plan with tiny blocks, a decoder. */
#ifndef LTRAIN_TESTS_ENGINE_DECODE_H
#define LTRAIN_TESTS_ENGINE_DECODE_H

#include "engine/decoder.h"
#include "engine/rig.h"
#include "plan/sampling.h"

struct decode_rig {
    struct settings settings;
    struct target target;
    const struct model_config *config; /* a model with initial values, in place of a folder's; NULL: none */
    enum model_base base;              /* storage format of frozen matrices if the files name none */
    struct model *model;
    struct session *session;
    struct decoder *decoder;
    int64_t limit[TIERS];
    char scratch[64];
};

/* Sets defaults: fp32, everything on cpu, rows and blocks of 8, room for 96 tokens. Settings are changed before decode_start. */
void decode_defaults(struct decode_rig *r);
/* Makes the model of a run, with the adapter that its folder has. The caller destroys it. */
enum status decode_model(const struct decode_rig *r, const char *name, struct model **out);
/* Starts a run. name: a folder of tests/golden, or of a model with initial values what it is called. Writes a sentence to stderr if it fails. */
enum status decode_start(struct decode_rig *r, const char *name);
void decode_stop(struct decode_rig *r);

#endif
