/* The choices of a placement, and how placements compare. */
#include "plan/search/decisions.h"

#include <assert.h>
#include <stddef.h>

/* Rules that relate the values of a choice within one family of placements. */
enum family_rule {
    FAMILY_FREE,      /* any value */
    FAMILY_SAME,      /* the same value */
    FAMILY_ON_DEVICE, /* both on the device, or neither */
    FAMILY_FARTHER    /* the tried placement's tier is at least as near the device */
};

enum { NO_REQUEST = -1 };
#define ALWAYS DECISIONS

struct decision_row {
    size_t field;            /* offset in struct strategy */
    int request;             /* offset in struct plan_request of an enum offload, or NO_REQUEST */
    enum decision_kind kind; /* type of the values */
    const char *json;
    int classes;  /* 1: decisions_same_classes compares this choice */
    int distance; /* decisions_distance counts differing choices with the same number once; 0: does not count this one */
    enum family_rule family;
    enum decision_id leader; /* the choice from whose list of options this one takes its values; most often the choice itself */
    enum decision_id needs;  /* the choice that must be above 0 for this one to matter; ALWAYS: none */
};

/* clang-format off */
#define ROW(d, name, request, kind, json, classes, distance, family, ...)                                                   \
    [DECISION_##d] = {offsetof(struct strategy, placement.name), request, DECISION_IS_##kind, json, classes, distance, FAMILY_##family, \
                      __VA_ARGS__}
#define REQUEST(name) (int)offsetof(struct plan_request, name)
#define OWN(d) DECISION_##d, ALWAYS

static const struct decision_row rows[DECISIONS] = {
    /*  decision         field            request           kind    json             classes, distance, family, leader, needs */
    ROW(PARAMS,          params,          REQUEST(params),  TIER,   "params",        1, 1, FREE,      OWN(PARAMS)),
    ROW(GRADS,           grads,           REQUEST(grads),   TIER,   "grads",         1, 2, ON_DEVICE, OWN(GRADS)),
    ROW(OPTIM,           optim,           REQUEST(optim),   TIER,   "optim",         1, 3, SAME,      OWN(OPTIM)),
    ROW(ACTS,            acts,            REQUEST(acts),    TIER,   "acts",          1, 4, SAME,      OWN(ACTS)),
    ROW(PASSING,         passing,         REQUEST(passing), TIER,   "passing",       1, 4, FARTHER,   DECISION_ACTS, ALWAYS),
    ROW(UPDATE,          update_on_host,  NO_REQUEST,       CHOICE, NULL,            1, 5, SAME,      OWN(UPDATE)),
    ROW(PROMOTED_LAYERS, promoted_layers, NO_REQUEST,       AMOUNT, NULL,            1, 0, FREE,      OWN(PROMOTED_LAYERS)),
    ROW(PROMOTED_CLASS,  promoted_class,  NO_REQUEST,       CHOICE, NULL,            1, 0, FREE,      DECISION_PROMOTED_CLASS, DECISION_PROMOTED_LAYERS),
    ROW(PROMOTE_TIER,    promote_tier,    NO_REQUEST,       CHOICE, NULL,            1, 0, FREE,      DECISION_PROMOTE_TIER, DECISION_PROMOTED_LAYERS),
    ROW(KEEP_INPUTS,     keep_inputs,     NO_REQUEST,       AMOUNT, "input_every",   0, 0, FREE,      OWN(KEEP_INPUTS)),
    ROW(DEVICE_LAYERS,   device_layers,   NO_REQUEST,       AMOUNT, "device_layers", 1, 6, FREE,      OWN(DEVICE_LAYERS)),
    ROW(DEVICE_CHUNKS,   device_chunks,   NO_REQUEST,       AMOUNT, "device_chunks", 1, 0, FREE,      OWN(DEVICE_CHUNKS)),
    ROW(KEPT_CHUNKS,     kept_chunks,     NO_REQUEST,       AMOUNT, "kept_chunks",   0, 0, FREE,      OWN(KEPT_CHUNKS)),
    ROW(FULL_MORE,       full_more,       NO_REQUEST,       AMOUNT, NULL,            1, 0, FREE,      OWN(FULL_MORE)),
    ROW(LIGHT_FEWER,     light_fewer,     NO_REQUEST,       AMOUNT, NULL,            1, 0, FREE,      OWN(LIGHT_FEWER)),
    ROW(WRITE_DEPTH,     write_depth,     NO_REQUEST,       AMOUNT, NULL,            0, 0, FREE,      OWN(WRITE_DEPTH)),
};
/* clang-format on */

/* Fields are read and written as int: enumerations are of that size here. */
static_assert(sizeof(enum residency) == sizeof(int) && sizeof(enum tensor_class) == sizeof(int), "enumerations are ints");
static_assert((int)DECISION_PARAMS == (int)CLASS_PARAM && (int)DECISION_GRADS == (int)CLASS_GRAD &&
                  (int)DECISION_OPTIM == (int)CLASS_OPTIM && (int)DECISION_ACTS == (int)CLASS_ACT,
              "the first choices are classes");

enum decision_kind decision_kind(enum decision_id d)
{
    return rows[d].kind;
}

const char *decision_json(enum decision_id d)
{
    return rows[d].json;
}

static inline int value_of(const struct strategy *s, enum decision_id d)
{
    return *(const int *)(const void *)((const char *)s + rows[d].field);
}

int decision_get(const struct strategy *s, enum decision_id d)
{
    return value_of(s, d);
}

void decision_set(struct strategy *s, enum decision_id d, int value)
{
    *(int *)(void *)((char *)s + rows[d].field) = value;
}

enum offload *decision_request(struct plan_request *s, enum decision_id d)
{
    return rows[d].request == NO_REQUEST ? NULL : (enum offload *)(void *)((char *)s + rows[d].request);
}

enum decision_id decision_leader(enum decision_id d)
{
    return rows[d].leader;
}

int decisions_same_classes(const struct strategy *a, const struct strategy *b)
{
    for (int d = 0; d < DECISIONS; d++)
        if (rows[d].classes && value_of(a, d) != value_of(b, d) && (rows[d].needs == ALWAYS || value_of(a, rows[d].needs) > 0))
            return 0;
    return 1;
}

int decisions_distance(const struct strategy *a, const struct strategy *b)
{
    unsigned differ = 0;
    int n = 0;
    for (int d = 0; d < DECISIONS; d++)
        differ |= (unsigned)(value_of(a, d) != value_of(b, d)) << rows[d].distance;
    for (differ >>= 1; differ; differ &= differ - 1)
        n++;
    return n;
}

int decisions_same_family(const struct strategy *tried, const struct strategy *c)
{
    for (int d = 0; d < DECISIONS; d++) {
        const int of_tried = value_of(tried, d), of_c = value_of(c, d);
        if ((rows[d].family == FAMILY_SAME && of_tried != of_c) || (rows[d].family == FAMILY_FARTHER && of_tried > of_c) ||
            (rows[d].family == FAMILY_ON_DEVICE && (of_tried == RES_DEVICE) != (of_c == RES_DEVICE)))
            return 0;
    }
    return 1;
}

int decisions_family(const struct strategy *s)
{
    int family = 0;
    for (int d = 0; d < DECISIONS; d++)
        if (rows[d].family == FAMILY_SAME)
            family = family * (rows[d].kind == DECISION_IS_TIER ? TIERS : 2) + value_of(s, d);
        else if (rows[d].family == FAMILY_ON_DEVICE)
            family = family * 2 + (value_of(s, d) == RES_DEVICE);
    assert(family < DECISIONS_FAMILIES);
    return family;
}
