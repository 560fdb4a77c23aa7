/* A text cut into sentences and paragraphs, in which tasks hide something. */
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

int haystack_is_given(const struct haystack *h); /* 1: the text is the user's; 0: ltrain's own */
int64_t haystack_sentences(const struct haystack *h);
int64_t haystack_paragraphs(const struct haystack *h); /* at least eight words each: shorter ones are joined to the next */
/* Returns sentence i with the blanks behind it, or paragraph i without blanks around it. The text repeats, so i may be beyond the
 * last. */
const char *haystack_sentence(const struct haystack *h, int64_t i, size_t *n);
const char *haystack_paragraph(const struct haystack *h, int64_t i, size_t *n);
int haystack_has(const struct haystack *h, const char *text);

#endif
