/* Provides a tokenizer and a directory of cached tokens to tests of tokenized corpora; the group's set_up opens them. */
#ifndef TESTS_DATA_TOKENIZED_H
#define TESTS_DATA_TOKENIZED_H

#include "corpora.h"
#include "scratch.h"

static struct tokenizer *tokenizer;
static char cache[256];

static inline int set_up(void **state)
{
    char path[600];
    const char *root = getenv("LTRAIN_SOURCE_ROOT");
    snprintf(path, sizeof path, "%s/tests/text/families/llama3.json", root ? root : ".");
    if (tokenizer_open(path, &tokenizer) != OK || scratch_create(state) != 0)
        return -1;
    snprintf(cache, sizeof cache, "%s/cache", scratch);
    return 0;
}

static inline int tear_down(void **state)
{
    tokenizer_close(tokenizer);
    return scratch_destroy(state);
}

#endif
