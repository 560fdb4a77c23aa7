/* The table of configuration fields: values as numbers, limits, and how two configurations differ. */
#include "model/config/config.h"
#include "model/family/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(enum activation_kind) == sizeof(int) && sizeof(enum rope_kind) == sizeof(int) &&
                   sizeof(enum model_family) == sizeof(int),
               "choices are read and written as ints");
_Static_assert(GELU_TANH == 0 && GELU_ERF == 1 && RELU_SQUARED == 2 && RELU == 3 && ROPE_DEFAULT == 0 && ROPE_LINEAR == 1 &&
                   ROPE_LLAMA3 == 2 && ROPE_DYNAMIC == 3 && ROPE_YARN == 4 && ROPE_LONGROPE == 5 && ROPE_PROPORTIONAL == 6 &&
                   GATE_SILU == 0 && GATE_GELU_TANH == 1 && GATE_GELU_ERF == 2 && GATE_CLAMPED == 3,
               "words are in the order of their enums");

#define WORDS(...)        \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }
#define X(member, type, what, limit, compared, words) \
    [AT_##member] = {offsetof(struct model_config, member), FIELD_##type, what, limit, compared, words},
const struct config_field config_fields[CONFIG_FIELDS_END] = {CONFIG_FIELDS(X)};
#undef X

/* Returns the double with the same shortest decimal form as the float: 1e-05, not 9.99999974737875e-06. */
static double shortest(float x)
{
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)x);
        if (strtof(text, NULL) == x)
            break;
    }
    return strtod(text, NULL);
}

double config_get_number(const struct model_config *c, enum config_field_id field)
{
    const void *at = (const char *)c + config_fields[field].offset;
    switch (config_fields[field].type) {
    case FIELD_COUNT:
        return (double)*(const int64_t *)at;
    case FIELD_FLOAT:
        return shortest(*(const float *)at);
    case FIELD_DOUBLE:
        return *(const double *)at;
    case FIELD_FAMILY:
    case FIELD_SWITCH:
    case FIELD_CHOICE:
        return *(const int *)at;
    }
    return 0;
}

void *config_field_at(struct model_config *c, enum config_field_id field)
{
    return (char *)c + config_fields[field].offset;
}

enum status config_check_limits(const struct model_config *c)
{
    for (int i = NO_FIELD + 1; i < CONFIG_FIELDS_END; i++) {
        const struct config_field *f = &config_fields[i];
        if (!f->limit)
            continue;
        int64_t value = *(const int64_t *)((const char *)c + f->offset), limit = i == AT_kv_heads ? c->heads : f->limit;
        if (value > limit || value < (f->words ? 0 : 1))
            return status_fail(ERR_INVALID, "model: %s is %lld, must be 1 to %lld", f->what, (long long)value, (long long)limit);
    }
    return OK;
}

static void print_value(const struct model_config *c, enum config_field_id field, char *text, size_t bytes)
{
    const struct config_field *f = &config_fields[field];
    double value = config_get_number(c, field);
    int words = 0;
    while (f->words && f->words[words])
        words++;
    if (f->type == FIELD_FAMILY)
        snprintf(text, bytes, "%s", family_of(c)->name);
    else if (value < words && value == (int)value)
        snprintf(text, bytes, "%s", f->words[(int)value]);
    else
        snprintf(text, bytes, "%.9g", value);
}

/* Writes which of the values listed by layer or by frequency differ; returns 0 if none does. */
static int lists_differ(const struct model_config *there, const struct model_config *here, char *text, size_t bytes)
{
    const char *which = NULL;
    for (int64_t l = 0; l < here->layers; l++) {
        if (here->window > 0 && model_bit(there->windowed, l) != model_bit(here->windowed, l))
            which = "which layers have a sliding window";
        else if (model_bit(there->unrotated, l) != model_bit(here->unrotated, l))
            which = "which layers have rotary positions";
        else if (there->blocks_of[l] != here->blocks_of[l])
            which = "which blocks some layers have";
        else if (memcmp(&there->own[there->own_of[l]], &here->own[here->own_of[l]], sizeof *here->own) != 0)
            which = "what some layers have of their own (heads, head size, window)";
    }
    if (!which && here->rope == ROPE_LONGROPE &&
        (memcmp(there->rope_short, here->rope_short, sizeof here->rope_short) != 0 ||
         memcmp(there->rope_long, here->rope_long, sizeof here->rope_long) != 0))
        which = "RoPE scaling's short_factor or long_factor";
    if (which)
        snprintf(text, bytes, "%s is not the same there as in this run", which);
    return which != NULL;
}

int model_config_differs(const struct model_config *there, const struct model_config *here, char *text, size_t bytes)
{
    char value[2][32];
    for (int i = NO_FIELD + 1; i < CONFIG_FIELDS_END; i++) {
        enum config_field_id field = (enum config_field_id)i;
        if (!config_fields[i].compared || config_get_number(there, field) == config_get_number(here, field))
            continue;
        print_value(there, field, value[0], sizeof value[0]);
        print_value(here, field, value[1], sizeof value[1]);
        snprintf(text, bytes, "%s is %s there and %s in this run", config_fields[i].what, value[0], value[1]);
        return 1;
    }
    return lists_differ(there, here, text, bytes);
}
