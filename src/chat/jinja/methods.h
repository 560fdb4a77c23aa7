/* Operations on strings that methods and filters share. Private to src/chat. */
#ifndef LTRAIN_CHAT_JINJA_METHODS_H
#define LTRAIN_CHAT_JINJA_METHODS_H

#include "chat/jinja/value.h"

enum jinja_side { SIDE_LEFT = 1, SIDE_RIGHT = 2, SIDE_BOTH = 3 };

/* Strips text as str.strip does: whitespace if chars is None, else any characters of chars. */
const struct jinja_text *jinja_strip(struct jinja_task *task, const struct jinja_text *text, struct jinja_value chars,
                                     enum jinja_side side);
const struct jinja_text *jinja_replace(struct jinja_task *task, const struct jinja_text *text, const struct jinja_text *from,
                                       const struct jinja_text *to, int64_t times);
/* Splits text into lines as str.splitlines does. */
struct jinja_list *jinja_lines(struct jinja_task *task, const struct jinja_text *text, int keep_ends);

enum jinja_casing { CASE_UPPER, CASE_LOWER, CASE_CAPITALIZE, CASE_TITLE_METHOD, CASE_TITLE_FILTER };
const struct jinja_text *jinja_case(struct jinja_task *task, const struct jinja_text *text, enum jinja_casing casing);
/* Tells whether text is in capitals (upper) or small letters, in the sense of str.isupper and str.islower. */
int jinja_is_case(const struct jinja_text *text, int upper);

#endif
