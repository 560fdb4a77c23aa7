/* Modules that a quantisation has left alone. Private to model. */
#ifndef LTRAIN_MODEL_SKIPPED_H
#define LTRAIN_MODEL_SKIPPED_H

#include "base/status.h"

struct skipped;

/* Compiles the lines of llm_int8_skip_modules ("": none). ERR_INVALID: one is no regular expression. */
enum status skipped_create(const char *patterns, struct skipped **out);
void skipped_destroy(struct skipped *s); /* NULL is fine */
/* Tells whether transformers 5.24 leaves the module alone: a pattern matches the beginning of its name up to a dot, or ends the
 * name. */
int skipped_has(const struct skipped *s, const char *module);

#endif
