/* Values of templates, with Python's meaning of truth, equality, order and text. Private to src/chat. */
#ifndef LTRAIN_CHAT_JINJA_VALUE_H
#define LTRAIN_CHAT_JINJA_VALUE_H

#include "chat/jinja/text.h"

enum jinja_kind {
    JINJA_UNDEFINED, /* name: of the missing variable or attribute, or NULL */
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_TEXT,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_RANGE,
    JINJA_DICT,
    JINJA_VIEW,     /* keys(), values(), items() of a dict: can be counted and walked, not indexed */
    JINJA_ITERATOR, /* result of map, select, items, reverse ...: can be walked once */
    JINJA_NAMESPACE,
    JINJA_LOOP,
    JINJA_MACRO,
    JINJA_METHOD, /* method of a value, not yet called */
    JINJA_GLOBAL, /* a function by name */
};

struct jinja_value {
    enum jinja_kind kind;
    union {
        const char *name;
        int64_t i; /* value of INT and BOOL */
        double f;
        const struct jinja_text *text;
        struct jinja_list *list; /* items of LIST, TUPLE, RANGE, VIEW, ITERATOR */
        struct jinja_dict *dict; /* entries of DICT and NAMESPACE */
        struct jinja_loop *loop;
        struct jinja_macro *macro;
        struct jinja_method *method;
    };
};

struct jinja_list {
    struct jinja_value *items;
    size_t n, room;
    size_t at; /* number of items taken from an iterator */
};

struct jinja_dict { /* entries in order of insertion */
    struct jinja_value *keys, *values;
    size_t n, room, values_room;
};

struct jinja_method {
    struct jinja_value self;
    const char *name;
};

struct jinja_value jinja_none(void);
struct jinja_value jinja_bool(int truth);
struct jinja_value jinja_int(int64_t i);
struct jinja_value jinja_float(double f);
struct jinja_value jinja_undefined(const char *name);
struct jinja_value jinja_of_text(const struct jinja_text *text);
struct jinja_value jinja_of_list(enum jinja_kind kind, struct jinja_list *list);

struct jinja_list *jinja_list_new(struct jinja_task *task);
void jinja_list_add(struct jinja_task *task, struct jinja_list *list, struct jinja_value item);
struct jinja_dict *jinja_dict_new(struct jinja_task *task);
/* Sets a key's value, in place of that of an equal key if there is one. */
void jinja_dict_set(struct jinja_task *task, struct jinja_dict *dict, struct jinja_value key, struct jinja_value value);
/* Adds a key; the dict must not have an equal one. */
void jinja_dict_add(struct jinja_task *task, struct jinja_dict *dict, struct jinja_value key, struct jinja_value value);
const struct jinja_value *jinja_dict_get(struct jinja_task *task, const struct jinja_dict *dict, struct jinja_value key);
const struct jinja_value *jinja_dict_name(struct jinja_task *task, const struct jinja_dict *dict, const char *key);

/* Returns the name of a value's type for messages: "str", "dict" ... */
const char *jinja_type(struct jinja_value v);
int jinja_is_number(struct jinja_value v); /* int, float or bool */
double jinja_number(struct jinja_value v);
int jinja_truth(struct jinja_value v);
int jinja_equal(struct jinja_task *task, struct jinja_value a, struct jinja_value b);
/* Compares two values as a < b, equal or a > b: returns < 0, 0 or > 0. Values without an order end the task. */
int jinja_compare(struct jinja_task *task, struct jinja_value a, struct jinja_value b);
int jinja_contains(struct jinja_task *task, struct jinja_value all, struct jinja_value part);
/* Returns the value if v is of that type; ends the task if not. what: v's name in the message. */
int64_t jinja_need_int(struct jinja_task *task, struct jinja_value v, const char *what);
const struct jinja_text *jinja_need_text(struct jinja_task *task, struct jinja_value v, const char *what);
_Noreturn void jinja_fail_undefined(struct jinja_task *task, struct jinja_value v);

/* Returns all items over which a loop over v would run, as a list; an iterator is used up. */
struct jinja_list *jinja_items(struct jinja_task *task, struct jinja_value v);
/* Returns Python's len(v); -1: v has no length. */
int64_t jinja_length(struct jinja_task *task, struct jinja_value v);

/* Returns Python's str(v) (jinja_string), or appends repr(v) (jinja_put_repr). */
const struct jinja_text *jinja_string(struct jinja_task *task, struct jinja_value v);
void jinja_put_repr(struct jinja_builder *b, struct jinja_value v);

#endif
