#include "engine/packed.h"

#include "base/finite.h"
#include "base/sys.h"
#include "engine/weights.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 22, PIECE = 64 * NF4_BLOCK }; /* numbers that are read, and quantised by a thread, at a time */

/* ---- quantised here ---- */

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

static enum status quantise_source(struct source *s, int param, void *packed)
{
    const int64_t elements = model_param_stored(&s->model->params[param]);
    float *x = sys_malloc((size_t)min_i64(CHUNK, elements) * sizeof *x), *scale = sys_malloc((size_t)nf4_blocks(elements) * sizeof *scale);
    enum status st = x && scale ? quantise(s, param, x, scale, packed) : no_memory(&s->model->params[param]);
    free(scale);
    free(x);
    return st;
}

/* ---- as bitsandbytes has saved it ---- */

/* A tensor NAME.part, of a type and as many bytes as are meant. */
static enum status read_part(struct source *s, const char *name, const char *part, const char *type, int64_t bytes, void *out)
{
    char full[256];
    struct st_raw t;
    snprintf(full, sizeof full, "%s%s%s", name, part[0] ? "." : "", part);
    TRY(st_find_raw(s->file, full, &t));
    if (strcmp(t.type, type) != 0 || t.bytes != bytes)
        return status_fail(ERR_INVALID, "%s: tensor %s has %lld bytes of %s; as a part of a matrix in NF4, %lld of %s are meant", t.path, full,
                           (long long)t.bytes, t.type, (long long)bytes, type);
    return st_read_bytes(s->file, full, 0, bytes, out);
}

static enum status check_floats(struct source *s, const char *name, const float *x, int64_t n)
{
    int64_t i = finite_until(x, n);
    return i == n ? OK
                  : status_fail(ERR_INVALID, "%s: a scale of %s is %s: such weights cannot be trained beside; get the file again",
                                st_path(s->file, name), name, finite_word(x[i]));
}

/* What a matrix's state says in words: {"quant_type": "nf4", "blocksize": 64, "shape": [32, 48], "dtype": "bfloat16", ...}. */
struct state {
    int64_t shape[2]; /* -1: it has not two sizes */
    int64_t block, nested;
    float mean;
    enum dtype type;
};

static void parse_state(const json_t *json, struct state *out)
{
    const json_t *shape = json_object_get(json, "shape"), *mean = json_object_get(json, "nested_offset");
    const char *type = json_string_value(json_object_get(json, "dtype"));
    for (size_t i = 0; i < 2; i++)
        out->shape[i] = json_array_size(shape) == 2 ? (int64_t)json_integer_value(json_array_get(shape, i)) : -1;
    out->block = (int64_t)json_integer_value(json_object_get(json, "blocksize"));
    out->nested = (int64_t)json_integer_value(json_object_get(json, "nested_blocksize"));
    out->mean = json_is_number(mean) ? (float)json_number_value(mean) : NAN; /* which no scale may be */
    out->type = type && strcmp(type, "bfloat16") == 0 ? BF16 : type && strcmp(type, "float16") == 0 ? F16 : F32;
}

static enum status read_state(struct source *s, const char *name, struct state *out)
{
    static const char key[] = "quant_state.bitsandbytes__nf4";
    char text[4096], full[256];
    struct st_raw t;
    snprintf(full, sizeof full, "%s.%s", name, key);
    if (!st_has(s->file, full))
        return status_fail(ERR_INVALID, "%s: %s has no %s: it is not in bitsandbytes' NF4, which quantization_config of config.json promises",
                           st_path(s->file, name), name, key);
    TRY(st_find_raw(s->file, full, &t));
    if (t.bytes >= (int64_t)sizeof text)
        return status_fail(ERR_INVALID, "%s: %s has %lld bytes", t.path, full, (long long)t.bytes);
    TRY(st_read_bytes(s->file, full, 0, t.bytes, text));
    json_t *json = json_loadb(text, (size_t)t.bytes, 0, NULL);
    parse_state(json, out);
    json_decref(json);
    return OK;
}

static enum status check_state(struct source *s, const char *name, const struct model_param *p, const struct state *x)
{
    const int nested = s->model->config.base == BASE_NF4;
    if (x->shape[0] != p->shape[0] || x->shape[1] != p->shape[1])
        return status_fail(ERR_INVALID, "%s: the quantised %s has another shape than [%lld, %lld], which config.json means", st_path(s->file, name),
                           name, (long long)p->shape[0], (long long)p->shape[1]);
    if (x->block != NF4_BLOCK || (nested && x->nested != NF4_NESTED_BLOCK))
        return status_fail(ERR_INVALID, "%s: %s is in blocks of %lld and its scales of %lld; blocks of %d and of %d are read", st_path(s->file, name),
                           name, (long long)x->block, (long long)x->nested, NF4_BLOCK, NF4_NESTED_BLOCK);
    return OK;
}

/* The matrix as the file has it, byte for byte. */
static enum status read_quantised(struct source *s, int param, void *packed)
{
    const struct model_param *p = &s->model->params[param];
    const enum nf4_scales scales = model_scales(&s->model->config);
    const int64_t n = model_param_stored(p), blocks = nf4_blocks(n), nested = ceil_div(blocks, NF4_NESTED_BLOCK);
    const char *name = weights_name(s->file, p->name);
    struct nf4_parts x = nf4_parts(packed, n, scales);
    struct state state;
    if (!st_has(s->file, name))
        return status_fail(ERR_INVALID, "%s: there is no tensor %s, which config.json means", st_path(s->file, NULL), name);
    TRY(read_state(s, name, &state));
    TRY(check_state(s, name, p, &state));
    TRY(read_part(s, name, "", "U8", ceil_div(n, 2), x.code));
    TRY(read_part(s, name, "quant_map", "F32", (int64_t)sizeof nf4_map, x.map));
    if (memcmp(x.map, nf4_map, sizeof nf4_map) != 0)
        return status_fail(ERR_INVALID, "%s: %s.quant_map has not the 16 values of NF4", st_path(s->file, name), name);
    if (scales == NF4_PLAIN) {
        TRY(read_part(s, name, "absmax", "F32", blocks * 4, x.scale));
        return check_floats(s, name, x.scale, blocks);
    }
    *x.mean = state.mean;
    TRY(read_part(s, name, "nested_quant_map", "F32", NF4_NESTED_VALUES * 4, x.nested));
    TRY(read_part(s, name, "nested_absmax", "F32", nested * 4, x.most));
    TRY(read_part(s, name, "absmax", "U8", blocks, x.scale_code));
    return check_floats(s, name, x.mean, 1 + NF4_NESTED_VALUES + nested);
}

/* ---- either ---- */

/* The whole matrix, unless it is the one that was made last. */
static enum status make_current(struct source *s, int param)
{
    const struct model_param *p = &s->model->params[param];
    if (s->packed.bytes && s->packed.param == param)
        return OK;
    free(s->packed.bytes);
    s->packed.bytes = sys_calloc(1, (size_t)p->packed_bytes);
    s->packed.param = param;
    enum status st = !s->packed.bytes                        ? no_memory(p)
                     : s->model->config.quantised && s->file ? read_quantised(s, param, s->packed.bytes)
                                                             : quantise_source(s, param, s->packed.bytes);
    if (st != OK) {
        free(s->packed.bytes);
        s->packed.bytes = NULL;
    }
    return st;
}

enum status packed_read(struct source *s, int param, int64_t first, int64_t n, uint8_t *data)
{
    TRY(make_current(s, param));
    memcpy(data, (const uint8_t *)s->packed.bytes + first, (size_t)n);
    return OK;
}

enum status packed_read_f32(struct source *s, int param, int64_t first, int64_t n, float *data)
{
    TRY(make_current(s, param));
    nf4_dequantise(s->packed.bytes, model_param_stored(&s->model->params[param]), model_scales(&s->model->config), first, n, data);
    return OK;
}

enum status packed_file_type(struct source *s, int param, enum dtype *out)
{
    struct state state;
    TRY(read_state(s, weights_name(s->file, s->model->params[param].name), &state));
    *out = state.type;
    return OK;
}
