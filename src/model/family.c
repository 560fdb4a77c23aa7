/* The list of families. */
#include "model/family.h"

const struct family *family_of(const struct model_config *c)
{
    static const struct family *const families[] = {[FAMILY_LLAMA] = &family_llama, [FAMILY_GPT2] = &family_gpt2};
    return families[c->family];
}

int model_learns_positions(const struct model_config *config)
{
    return family_of(config)->learned_positions;
}
