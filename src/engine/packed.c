#include "engine/packed.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 22, PIECE = 64 * NF4_BLOCK }; /* numbers that are read, and quantised by a thread, at a time */

static enum status no_memory(const struct model_param *p)
{
    return status_fail(ERR_NOMEM, "out of memory for quantising %s", p->name);
}

static void quantise_chunk(const float *x, int64_t n, float *scale, uint8_t *code)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < ceil_div(n, PIECE); i++)
        nf4_quantise(x + i * PIECE, min_i64(PIECE, n - i * PIECE), scale + i * (PIECE / NF4_BLOCK), code + i * (PIECE / 2));
}

/* x [CHUNK], scale [blocks]: scratch. */
static enum status quantise(struct source *s, int param, float *x, float *scale, void *packed)
{
    const struct model_param *p = &s->model->params[param];
    const enum nf4_scales scales = model_scales(&s->model->config);
    const int64_t elements = model_param_stored(p);
    uint8_t *code = nf4_parts(packed, elements, scales).code;
    for (int64_t at = 0; at < elements; at += CHUNK) {
        const int64_t n = min_i64(CHUNK, elements - at);
        TRY(source_read(s, param, at, n, F32, x));
        quantise_chunk(x, n, scale + at / NF4_BLOCK, code + at / 2);
    }
    nf4_pack_scales(scale, elements, scales, packed);
    return OK;
}

static enum status make(struct source *s, int param, void *packed)
{
    const int64_t elements = model_param_stored(&s->model->params[param]);
    float *x = sys_malloc((size_t)min_i64(CHUNK, elements) * sizeof *x), *scale = sys_malloc((size_t)nf4_blocks(elements) * sizeof *scale);
    enum status st = x && scale ? quantise(s, param, x, scale, packed) : no_memory(&s->model->params[param]);
    free(scale);
    free(x);
    return st;
}

enum status packed_read(struct source *s, int param, int64_t first, int64_t n, uint8_t *data)
{
    const struct model_param *p = &s->model->params[param];
    if (!s->packed.bytes || s->packed.param != param) {
        free(s->packed.bytes);
        s->packed.bytes = sys_calloc(1, (size_t)p->packed_bytes);
        s->packed.param = param;
        enum status st = s->packed.bytes ? make(s, param, s->packed.bytes) : no_memory(p);
        if (st != OK) {
            free(s->packed.bytes);
            s->packed.bytes = NULL;
            return st;
        }
    }
    memcpy(data, (const uint8_t *)s->packed.bytes + first, (size_t)n);
    return OK;
}
