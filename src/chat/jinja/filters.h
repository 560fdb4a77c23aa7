/* Filters, grouped by the values they take. Private to src/chat: filters.c has the table. */
#ifndef LTRAIN_CHAT_JINJA_FILTERS_H
#define LTRAIN_CHAT_JINJA_FILTERS_H

#include "chat/jinja/run.h"

typedef struct jinja_value jinja_filter_call(struct jinja_run *, struct jinja_value, struct jinja_call *);

/* Filters that turn values into text or numbers (filters_text.c). */
jinja_filter_call filter_tojson, filter_string, filter_trim, filter_upper, filter_lower, filter_capitalize, filter_title,
    filter_replace, filter_indent, filter_int, filter_float, filter_abs, filter_round, filter_safe, filter_format,
    filter_wordcount;
/* Filters of lists and dicts (filters_list.c). */
jinja_filter_call filter_length, filter_list, filter_first, filter_last, filter_join, filter_items, filter_dictsort, filter_sort,
    filter_unique, filter_reverse, filter_sum, filter_min, filter_max, filter_attr, filter_default;

/* Returns an attribute by the names that filters take: "a", "a.b", or an index such as 0. */
struct jinja_value filter_attribute(struct jinja_run *run, struct jinja_value v, struct jinja_value attribute);

#endif
