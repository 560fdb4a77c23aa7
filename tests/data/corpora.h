/* Opens corpora, and checks that they are refused. */
#ifndef TESTS_DATA_CORPORA_H
#define TESTS_DATA_CORPORA_H

#include "data/corpus.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static inline struct corpus *open_corpus(const struct corpus_config *config)
{
    struct corpus *c = NULL;
    if (corpus_open(config, &c) != OK)
        fail_msg("%s", status_message());
    return c;
}

/* Checks that the corpus is refused with a message that contains `part`. */
static inline void refuse_corpus(const struct corpus_config *config, const char *part)
{
    struct corpus *c = NULL;
    assert_int_equal(corpus_open(config, &c), ERR_INVALID);
    assert_null(c);
    if (!strstr(status_message(), part))
        fail_msg("'%s' does not say '%s'", status_message(), part);
}

#endif
