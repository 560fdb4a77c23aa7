/* A text in sentences, among which something is hidden. */
#ifndef LTRAIN_TASKS_HAYSTACK_H
#define LTRAIN_TASKS_HAYSTACK_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct haystack;

/* text: valid UTF-8, copied; n = 0: a few sentences of ltrain's own, which repeat. ERR_INVALID: there are no words in it. */
enum status haystack_create(const char *text, size_t n, struct haystack **out);
void haystack_destroy(struct haystack *h); /* NULL is fine */

int haystack_is_given(const struct haystack *h); /* it is the user's */
int64_t haystack_sentences(const struct haystack *h);
int64_t haystack_paragraphs(const struct haystack *h); /* of eight words at least: shorter ones go with the next one */
/* Their bytes, with the blanks behind a sentence and without those around a paragraph. i may be beyond the last: they repeat. */
const char *haystack_sentence(const struct haystack *h, int64_t i, size_t *n);
const char *haystack_paragraph(const struct haystack *h, int64_t i, size_t *n);
int haystack_has(const struct haystack *h, const char *text);

#endif
