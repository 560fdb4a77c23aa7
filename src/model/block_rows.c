/* The rows of blocks.h as functions of a block. */
#include "model/block_rows.h"

#include <string.h>

int model_expert_units(const struct model *m, int64_t layer, int units[EXPERT_UNITS])
{
    const struct model_block *b = model_find_block(&m->layers[layer], BLOCK_EXPERTS);
    if (!b)
        return 0;
    units[0] = m->params[b->experts.router.weight].unit;
    units[1] = m->params[b->experts.gate_up.weight].unit;
    return EXPERT_UNITS;
}

int model_expert_layers(const struct model *m)
{
    int n = 0;
    for (int64_t l = 0; m->config.experts > 0 && l < m->config.layers; l++)
        n += model_find_block(&m->layers[l], BLOCK_EXPERTS) != NULL;
    return n;
}

const struct model_block *model_find_block(const struct model_layer *layer, enum block_kind kind)
{
    for (int i = 0; i < layer->n_blocks; i++)
        if (layer->blocks[i].kind == kind)
            return &layer->blocks[i];
    return NULL;
}

int model_has_block(const struct model *m, enum block_kind kind)
{
    for (int k = 0; k < m->n_kinds; k++)
        if (model_find_block(&m->layers[m->kinds[k].first], kind))
            return 1;
    return 0;
}

const char *block_name(enum block_kind kind)
{
    static const char *const names[BLOCK_KINDS] = {
#define BLOCK(KIND, name, text, ...) text,
#include "model/blocks.h"
    };
    return names[kind];
}

int block_is_shared(enum block_kind kind)
{
    enum { WHOLE, SHARED };
    static const char shared[BLOCK_KINDS] = {
#define BLOCK(KIND, name, text, maps, mask, signature, flops, kept, saved, per_token, per_text, sharing, ...) sharing,
#include "model/blocks.h"
    };
    return shared[kind];
}

#define MAPS(...)   \
    {               \
        __VA_ARGS__ \
    }
#define SIGNATURE(...) \
    {                  \
        __VA_ARGS__    \
    }

const struct model_linear *block_map(const struct model_block *block, int i)
{
    switch (block->kind) {
#define BLOCK(KIND, name, text, maps, ...)                          \
    case BLOCK_##KIND: {                                            \
        const struct name##_block *b = &block->name;                \
        const struct model_linear *const all[] = maps;              \
        return i < (int)(sizeof all / sizeof *all) ? all[i] : NULL; \
    }
#include "model/blocks.h"
    case BLOCK_KINDS:
        break;
    }
    return NULL;
}

int block_mask(const struct model_block *block)
{
    switch (block->kind) {
#define BLOCK(KIND, name, text, maps, mask, ...)     \
    case BLOCK_##KIND: {                             \
        const struct name##_block *b = &block->name; \
        (void)b;                                     \
        return mask;                                 \
    }
#include "model/blocks.h"
    case BLOCK_KINDS:
        break;
    }
    return -1;
}

void block_signature(const struct model_block *block, int64_t out[BLOCK_SIGNATURE])
{
    for (int i = 0; i < BLOCK_SIGNATURE; i++)
        out[i] = -1;
    switch (block->kind) {
#define BLOCK(KIND, name, text, maps, mask, signature, ...)                                             \
    case BLOCK_##KIND: {                                                                                \
        const struct name##_block *b = &block->name;                                                    \
        const int64_t numbers[] = signature;                                                            \
        _Static_assert(sizeof numbers / sizeof *numbers <= BLOCK_SIGNATURE, "a signature is too long"); \
        memcpy(out, numbers, sizeof numbers);                                                           \
        return;                                                                                         \
    }
#include "model/blocks.h"
    case BLOCK_KINDS:
        break;
    }
}

double block_flops(const struct model *m, const struct model_block *block, int layers, int64_t tokens,
                   const double pairs[MODEL_MASKS])
{
    switch (block->kind) {
#define BLOCK(KIND, name, text, maps, mask, signature, flops, ...) \
    case BLOCK_##KIND: {                                           \
        const struct name##_block *b = &block->name;               \
        (void)b, (void)m, (void)layers, (void)tokens, (void)pairs; \
        return flops;                                              \
    }
#include "model/blocks.h"
    case BLOCK_KINDS:
        break;
    }
    return 0;
}

int64_t block_kept_bytes(const struct model *m, const struct model_block *block, int64_t size)
{
    switch (block->kind) {
#define BLOCK(KIND, name, text, maps, mask, signature, flops, kept, ...) \
    case BLOCK_##KIND: {                                                 \
        const struct name##_block *b = &block->name;                     \
        (void)b, (void)m, (void)size;                                    \
        return kept;                                                     \
    }
#include "model/blocks.h"
    case BLOCK_KINDS:
        break;
    }
    return 0;
}

int64_t block_saved(const struct model *m, const struct model_block *block)
{
    switch (block->kind) {
#define BLOCK(KIND, name, text, maps, mask, signature, flops, kept, saved, ...) \
    case BLOCK_##KIND: {                                                        \
        const struct name##_block *b = &block->name;                            \
        (void)b, (void)m;                                                       \
        return saved;                                                           \
    }
#include "model/blocks.h"
    case BLOCK_KINDS:
        break;
    }
    return 0;
}

int64_t block_cached_per_token(const struct model *m, const struct model_block *block)
{
    switch (block->kind) {
#define BLOCK(KIND, name, text, maps, mask, signature, flops, kept, saved, per_token, ...) \
    case BLOCK_##KIND: {                                                                   \
        const struct name##_block *b = &block->name;                                       \
        (void)b, (void)m;                                                                  \
        return per_token;                                                                  \
    }
#include "model/blocks.h"
    case BLOCK_KINDS:
        break;
    }
    return 0;
}

int64_t block_cached_per_text(const struct model *m, const struct model_block *block)
{
    switch (block->kind) {
#define BLOCK(KIND, name, text, maps, mask, signature, flops, kept, saved, per_token, per_text, ...) \
    case BLOCK_##KIND: {                                                                             \
        const struct name##_block *b = &block->name;                                                 \
        (void)b, (void)m;                                                                            \
        return per_text;                                                                             \
    }
#include "model/blocks.h"
    case BLOCK_KINDS:
        break;
    }
    return 0;
}

#define CUT(...) BLOCK_CUT
#define BY_ROWS BLOCK_BY_ROWS
#define UNCUT BLOCK_UNCUT
enum block_slicing block_slicing(enum block_kind kind)
{
    static const enum block_slicing slicing[BLOCK_KINDS] = {
#define BLOCK(KIND, name, text, maps, mask, signature, flops, kept, saved, per_token, per_text, sharing, cut) cut,
#include "model/blocks.h"
    };
    return slicing[kind];
}
#undef CUT
#undef BY_ROWS
#undef UNCUT

#define CUT(count, called, ...) *what = called, count
#define BY_ROWS 0
#define UNCUT 0
int64_t block_cut_count(const struct model *m, const struct model_block *block, const char **what)
{
    switch (block->kind) {
#define BLOCK(KIND, name, text, maps, mask, signature, flops, kept, saved, per_token, per_text, sharing, cut) \
    case BLOCK_##KIND: {                                                                                      \
        const struct name##_block *b = &block->name;                                                          \
        (void)b, (void)m, (void)what;                                                                         \
        return cut;                                                                                           \
    }
#include "model/blocks.h"
    case BLOCK_KINDS:
        break;
    }
    return 0;
}
#undef CUT
#undef BY_ROWS
#undef UNCUT

#define CUT(count, called, ...) \
    {                           \
        __VA_ARGS__             \
    }
#define BY_ROWS        \
    {                  \
        .out_of = NULL \
    }
#define UNCUT BY_ROWS
void block_fields(struct model_block *block, struct fields *f)
{
    switch (block->kind) {
#define BLOCK(KIND, name, text, maps, mask, signature, flops, kept, saved, per_token, per_text, sharing, cut) \
    case BLOCK_##KIND: {                                                                                      \
        struct name##_block *b = &block->name;                                                                \
        (void)b;                                                                                              \
        *f = (struct fields)cut;                                                                              \
        return;                                                                                               \
    }
#include "model/blocks.h"
    case BLOCK_KINDS:
        break;
    }
}
