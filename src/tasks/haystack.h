/* A text cut into sentences and paragraphs, among which something is hidden. */
#ifndef LTRAIN_TASKS_HAYSTACK_H
#define LTRAIN_TASKS_HAYSTACK_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

struct haystack;

/* Creates a haystack. text: valid UTF-8, copied; n = 0: a few sentences of ltrain's own, which repeat. ERR_INVALID: the text has
 * no words. */
enum status haystack_create(const char *text, size_t n, struct haystack **out);
void haystack_destroy(struct haystack *h); /* NULL is fine */

int haystack_is_given(const struct haystack *h); /* 1: the text is the user's */
int64_t haystack_sentences(const struct haystack *h);
int64_t haystack_paragraphs(const struct haystack *h); /* at least eight words each: shorter ones are joined to the next */
/* Returns the text of sentence i with the blanks behind it, or of paragraph i without blanks around it. They repeat, so that i
 * may be beyond the last. */
const char *haystack_sentence(const struct haystack *h, int64_t i, size_t *n);
const char *haystack_paragraph(const struct haystack *h, int64_t i, size_t *n);
int haystack_has(const struct haystack *h, const char *text);

#endif
