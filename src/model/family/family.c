/* The list of families. */
#include "model/family/family.h"

#define X(upper, lower) [FAMILY_##upper] = &family_##lower,
const struct family *const families[N_FAMILIES] = {MODEL_FAMILIES(X)};
#undef X

const struct family *family_of(const struct model_config *c)
{
    return families[c->family];
}

const char *family_head_name(const struct model_config *c)
{
    return family_of(c)->head_name ? family_of(c)->head_name : "lm_head";
}

int model_first_position(const struct model_config *config)
{
    return family_of(config)->first_position;
}

int model_fixes_rope(const struct model_config *config)
{
    return family_of(config)->fixed_rope;
}

int model_learns_positions(const struct model_config *config)
{
    return family_of(config)->learned_positions;
}

int model_rotates(const struct model_config *config)
{
    int64_t l = 0;
    while (l < config->layers && model_bit(config->unrotated, l))
        l++;
    return l < config->layers && !model_learns_positions(config);
}
