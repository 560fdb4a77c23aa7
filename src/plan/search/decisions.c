/* The choices of a placement, and how placements compare. */
#include "plan/search/decisions.h"

#include <assert.h>
#include <stddef.h>

/* What placements of one family have in common. */
enum family_rule {
    FAMILY_FREE,      /* anything */
    FAMILY_SAME,      /* the same value */
    FAMILY_ON_DEVICE, /* it is the device, or it is not */
    FAMILY_FARTHER    /* the tried one is as near or nearer */
};

enum { NO_REQUEST = -1 };
#define ALWAYS DECISIONS

struct decision_row {
    size_t field;            /* of struct strategy */
    int request;             /* of struct plan_request: an enum offload */
    enum decision_kind kind; /* of the values */
    const char *json;
    int classes;  /* part of decisions_same_classes */
    int distance; /* choices with one number differ once; 0: they do not count */
    enum family_rule family;
    enum decision_id leader; /* listed together with that one */
    enum decision_id needs;  /* it means nothing unless that one is above 0 */
};

#define FIELD(name) offsetof(struct strategy, name)
#define REQUEST(name) (int)offsetof(struct plan_request, name)
#define ALONE(d) .leader = (d), .needs = ALWAYS

/* clang-format off */
static const struct decision_row rows[DECISIONS] = {
    /*                         field                  request           kind                json           classes, distance, family */
    [DECISION_PARAMS] =       {FIELD(params),         REQUEST(params),  DECISION_IS_TIER,   "params",        1, 1, FAMILY_FREE,      ALONE(DECISION_PARAMS)},
    [DECISION_GRADS] =        {FIELD(grads),          REQUEST(grads),   DECISION_IS_TIER,   "grads",         1, 2, FAMILY_ON_DEVICE, ALONE(DECISION_GRADS)},
    [DECISION_OPTIM] =        {FIELD(optim),          REQUEST(optim),   DECISION_IS_TIER,   "optim",         1, 3, FAMILY_SAME,      ALONE(DECISION_OPTIM)},
    [DECISION_ACTS] =         {FIELD(acts),           REQUEST(acts),    DECISION_IS_TIER,   "acts",          1, 4, FAMILY_SAME,      ALONE(DECISION_ACTS)},
    [DECISION_PASSING] =      {FIELD(passing),        REQUEST(passing), DECISION_IS_TIER,   "passing",       1, 4, FAMILY_FARTHER,   DECISION_ACTS, ALWAYS},
    [DECISION_UPDATE] =       {FIELD(update_on_host), NO_REQUEST,       DECISION_IS_CHOICE, NULL,            1, 5, FAMILY_SAME,      ALONE(DECISION_UPDATE)},
    [DECISION_NEARER] =       {FIELD(nearer),         NO_REQUEST,       DECISION_IS_AMOUNT, NULL,            1, 0, FAMILY_FREE,      ALONE(DECISION_NEARER)},
    [DECISION_NEARER_CLASS] = {FIELD(nearer_class),   NO_REQUEST,       DECISION_IS_CHOICE, NULL,            1, 0, FAMILY_FREE,      DECISION_NEARER_CLASS, DECISION_NEARER},
    [DECISION_NEARER_AT] =    {FIELD(nearer_at),      NO_REQUEST,       DECISION_IS_CHOICE, NULL,            1, 0, FAMILY_FREE,      DECISION_NEARER_AT, DECISION_NEARER},
    [DECISION_INPUT_EVERY] =  {FIELD(input_every),    NO_REQUEST,       DECISION_IS_AMOUNT, "input_every",   0, 0, FAMILY_FREE,      ALONE(DECISION_INPUT_EVERY)},
    [DECISION_DEVICE_LAYERS] = {FIELD(device_layers), NO_REQUEST,       DECISION_IS_AMOUNT, "device_layers", 1, 6, FAMILY_FREE,      ALONE(DECISION_DEVICE_LAYERS)},
    [DECISION_DEVICE_CHUNKS] = {FIELD(device_chunks), NO_REQUEST,       DECISION_IS_AMOUNT, "device_chunks", 1, 0, FAMILY_FREE,      ALONE(DECISION_DEVICE_CHUNKS)},
    [DECISION_KEPT_CHUNKS] =  {FIELD(kept_chunks),    NO_REQUEST,       DECISION_IS_AMOUNT, "kept_chunks",   0, 0, FAMILY_FREE,      ALONE(DECISION_KEPT_CHUNKS)},
    [DECISION_WRITE_DEPTH] =  {FIELD(write_depth),    NO_REQUEST,       DECISION_IS_AMOUNT, NULL,            0, 0, FAMILY_FREE,      ALONE(DECISION_WRITE_DEPTH)},
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
    return family;
}
