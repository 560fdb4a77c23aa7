#include "engine/bitsandbytes.h"

#include "base/blocks8.h"
#include "base/finite.h"
#include "base/rows8.h"
#include "engine/weights.h"

#include <float.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define WEIGHT "weight"
#define FORMAT "weight_format"                 /* int8: order of the rows */
#define STATE ".quant_state.bitsandbytes__nf4" /* NF4: sizes and the mean of nested scales, as JSON */

static const char *const type_words[] = {[F32] = "float32", [BF16] = "bfloat16", [F16] = "float16"};

/* ---- parts ---- */

static int nf4_list(const struct quantised *q, struct bitsandbytes_part part[BITSANDBYTES_PARTS])
{
    const int64_t n = q->rows * q->columns, blocks = nf4_blocks(n), codes = ceil_div(n, 2),
                  most = ceil_div(blocks, NF4_NESTED_BLOCK);
    const int nested = q->form == QUANTISED_NF4;
    int i = 0;
    part[i++] = (struct bitsandbytes_part){"", "U8", 2, {codes, 1}, codes, quantised_scale_bytes(q)};
    part[i++] = (struct bitsandbytes_part){".quant_map", "F32", 1, {NF4_VALUES}, NF4_VALUES * 4, 0};
    part[i++] = nested ? (struct bitsandbytes_part){".absmax", "U8", 1, {blocks}, blocks, nf4_scale_floats(n, NF4_NESTED) * 4}
                       : (struct bitsandbytes_part){".absmax", "F32", 1, {blocks}, blocks * 4, NF4_VALUES * 4};
    if (nested) {
        part[i++] =
            (struct bitsandbytes_part){".nested_absmax", "F32", 1, {most}, most * 4, (NF4_VALUES + 1 + NF4_NESTED_VALUES) * 4};
        part[i++] = (struct bitsandbytes_part){".nested_quant_map", "F32", 1, {NF4_NESTED_VALUES}, NF4_NESTED_VALUES * 4,
                                               (NF4_VALUES + 1) * 4};
    }
    part[i++] = (struct bitsandbytes_part){STATE, "U8", 1, {BITSANDBYTES_WORDS}, BITSANDBYTES_WORDS, -1};
    return i;
}

int bitsandbytes_parts(const struct quantised *q, struct bitsandbytes_part part[BITSANDBYTES_PARTS])
{
    if (q->form != QUANTISED_INT8)
        return nf4_list(q, part);
    part[0] = (struct bitsandbytes_part){"", "I8", 2, {q->rows, q->columns}, q->rows * q->columns, quantised_scale_bytes(q)};
    part[1] = (struct bitsandbytes_part){"SCB", "F32", 1, {q->rows}, q->rows * 4, 0};
    part[2] = (struct bitsandbytes_part){FORMAT, "U8", 0, {0}, 1, -1};
    return 3;
}

enum status bitsandbytes_name(const char *weight, const struct bitsandbytes_part *part, char name[BITSANDBYTES_NAME])
{
    const size_t n = strlen(weight), w = strlen(WEIGHT), kept = part->suffix[0] && part->suffix[0] != '.' ? n - w : n;
    if (n < w || strcmp(weight + n - w, WEIGHT) != 0 ||
        snprintf(name, BITSANDBYTES_NAME, "%.*s%s", (int)kept, weight, part->suffix) >= BITSANDBYTES_NAME)
        return status_fail(ERR_INVALID,
                           "tensor %.200s: the name of a quantised matrix ends with .weight, and has at most 200 characters",
                           weight);
    return OK;
}

void bitsandbytes_words(const struct quantised *q, const void *packed, enum dtype type, char words[BITSANDBYTES_WORDS])
{
    int n;
    memset(words, 0, BITSANDBYTES_WORDS); /* int8: the format byte 0, rows one after another */
    if (q->form == QUANTISED_INT8)
        return;
    memset(words, ' ', BITSANDBYTES_WORDS); /* NF4: JSON allows trailing spaces */
    n = snprintf(words, BITSANDBYTES_WORDS,
                 "{\"quant_type\": \"nf4\", \"blocksize\": %d, \"dtype\": \"%s\", \"shape\": [%lld, %lld]", NF4_BLOCK,
                 type_words[type], (long long)q->rows, (long long)q->columns);
    if (q->form == QUANTISED_NF4)
        n += snprintf(words + n, (size_t)(BITSANDBYTES_WORDS - n),
                      ", \"nested_blocksize\": %d, \"nested_dtype\": \"float32\", \"nested_offset\": %.17g", NF4_NESTED_BLOCK,
                      (double)((const float *)packed)[NF4_VALUES]);
    words[n] = '}';
}

/* Reads the parts that are packed bytes. NF4's mean (at < 0) is skipped: it stands in the JSON words, which are read elsewhere. */
static enum status read_parts(struct source *s, const char *weight, const struct quantised *q, void *packed)
{
    struct bitsandbytes_part part[BITSANDBYTES_PARTS];
    const int n = bitsandbytes_parts(q, part);
    for (int i = 0; i < n; i++) {
        char name[BITSANDBYTES_NAME];
        struct st_raw t;
        TRY(bitsandbytes_name(weight, &part[i], name));
        if (part[i].at < 0)
            continue;
        TRY(st_find_raw(s->file, name, &t));
        if (strcmp(t.type, part[i].type) != 0 || t.bytes != part[i].bytes)
            return status_fail(
                ERR_INVALID, "%s: tensor %s has %lld bytes of %s; as a part of a matrix in %s, %lld of %s are meant", t.path,
                name, (long long)t.bytes, t.type, model_base_name(s->model->config.base), (long long)part[i].bytes, part[i].type);
        TRY(st_read_bytes(s->file, name, 0, t.bytes, (uint8_t *)packed + part[i].at));
    }
    return OK;
}

/* Refuses scales that are not finite, negative or above `most`: a scale is a largest magnitude or a mean of such. each: "row" or
 * "block", for the message. */
static enum status check_scales(struct source *s, const char *name, const char *each, const float *x, int64_t n, double most)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return status_fail(ERR_INVALID,
                               "%s: a scale of %s is %s (%s %lld): such weights cannot be trained beside; get the file again",
                               st_path(s->file, name), name, finite_word(x[i]), each, (long long)i);
        else if (!(x[i] >= 0 && (double)x[i] <= most))
            return status_fail(ERR_INVALID,
                               "%s: a scale of %s is %g (%s %lld); it is at least 0 and at most %g: get the file again",
                               st_path(s->file, name), name, (double)x[i], each, (long long)i, most);
    return OK;
}

static enum status other_shape(struct source *s, const char *name, const struct quantised *q)
{
    return status_fail(ERR_INVALID, "%s: the quantised %s has another shape than [%lld, %lld], which config.json means",
                       st_path(s->file, name), name, (long long)q->rows, (long long)q->columns);
}

static enum status other_form(struct source *s, const char *name, const char *why)
{
    return status_fail(ERR_INVALID, "%s: %s %s: it is not in bitsandbytes' %s, which quantization_config of config.json promises",
                       st_path(s->file, name), name, why, model_base_name(s->model->config.base));
}

/* ---- NF4 ---- */

/* NF4's quant_state, parsed from JSON: {"quant_type": "nf4", "blocksize": 64, "shape": [32, 48], "dtype": "bfloat16", ...}. */
struct state {
    int64_t shape[2]; /* -1: the JSON has not two sizes */
    int64_t block, nested;
    float mean;
    enum dtype type;
};

static enum status parse_state(const char *where, const char *name, const json_t *json, struct state *out)
{
    const json_t *shape = json_object_get(json, "shape"), *mean = json_object_get(json, "nested_offset"),
                 *kind = json_object_get(json, "quant_type");
    const char *type = json_string_value(json_object_get(json, "dtype")),
               *said = json_is_string(kind) ? json_string_value(kind) : "no string";
    if (strcmp(said, "nf4") != 0)
        return status_fail(ERR_INVALID, "%s: quant_type of %s is %.40s; matrices in bitsandbytes' nf4 are read", where, name,
                           said);
    for (size_t i = 0; i < 2; i++)
        out->shape[i] = json_array_size(shape) == 2 ? (int64_t)json_integer_value(json_array_get(shape, i)) : -1;
    out->block = (int64_t)json_integer_value(json_object_get(json, "blocksize"));
    out->nested = (int64_t)json_integer_value(json_object_get(json, "nested_blocksize"));
    out->mean = json_is_number(mean) ? (float)json_number_value(mean) : NAN; /* NAN fails the later check of scales */
    out->type = type && strcmp(type, type_words[BF16]) == 0 ? BF16 : type && strcmp(type, type_words[F16]) == 0 ? F16 : F32;
    return OK;
}

static enum status read_state(struct source *s, const char *name, struct state *out)
{
    char text[4096], full[BITSANDBYTES_NAME];
    struct st_raw t;
    TRY(bitsandbytes_name(name, &(struct bitsandbytes_part){.suffix = STATE}, full));
    if (!st_has(s->file, full))
        return other_form(s, name, "has no quant_state.bitsandbytes__nf4");
    TRY(st_find_raw(s->file, full, &t));
    if (t.bytes >= (int64_t)sizeof text)
        return status_fail(ERR_INVALID,
                           "%s: %s has %lld bytes, and such a text has less than %d: the file is damaged, get it again", t.path,
                           full, (long long)t.bytes, (int)sizeof text);
    TRY(st_read_bytes(s->file, full, 0, t.bytes, text));
    json_error_t error;
    json_t *json = json_loadb(text, (size_t)t.bytes, 0, &error);
    enum status st;
    if (json_is_object(json))
        st = parse_state(t.path, full, json, out);
    else if (json || t.bytes == 0)
        st = status_fail(ERR_INVALID, "%s: %s is %s: the file is damaged, get it again", t.path, full,
                         json ? "no JSON object" : "empty");
    else
        st = status_fail(ERR_INVALID, "%s: %s is no JSON: %s: the file is damaged, get it again", t.path, full,
                         memchr(text, 0, (size_t)t.bytes) ? "it has bytes that are 0" : error.text);
    json_decref(json);
    return st;
}

static enum status read_nf4(struct source *s, const char *name, const struct quantised *q, void *packed)
{
    const int64_t n = q->rows * q->columns, blocks = nf4_blocks(n);
    const int nested = q->form == QUANTISED_NF4;
    struct nf4_parts x = nf4_parts(packed, n, quantised_scales(q->form));
    struct state state;
    TRY(read_state(s, name, &state));
    if (state.shape[0] != q->rows || state.shape[1] != q->columns)
        return other_shape(s, name, q);
    if (state.block != NF4_BLOCK || (nested && state.nested != NF4_NESTED_BLOCK))
        return status_fail(ERR_INVALID, "%s: %s is in blocks of %lld and its scales of %lld; blocks of %d and of %d are read",
                           st_path(s->file, name), name, (long long)state.block, (long long)state.nested, NF4_BLOCK,
                           NF4_NESTED_BLOCK);
    TRY(read_parts(s, name, q, packed));
    if (memcmp(x.map, nf4_map, sizeof nf4_map) != 0)
        return status_fail(ERR_INVALID, "%s: %s.quant_map has not the 16 values of NF4", st_path(s->file, name), name);
    if (!nested)
        return check_scales(s, name, "block", x.scale, blocks, NF4_LARGEST);
    for (int i = 0; i < NF4_NESTED_VALUES;
         i++) /* releases of bitsandbytes may round differently: by up to 16 units in the last place */
        if (!(fabsf(x.nested[i] - blocks8_map(BLOCKS8_SIGNED)[i]) <= 16 * FLT_EPSILON * fabsf(blocks8_map(BLOCKS8_SIGNED)[i])))
            return status_fail(ERR_INVALID,
                               "%s: value %d of %s.nested_quant_map is %g, and bitsandbytes has %g there: get the file again",
                               st_path(s->file, name), i, name, (double)x.nested[i], (double)blocks8_map(BLOCKS8_SIGNED)[i]);
    *x.mean = state.mean;
    if (!(state.mean >= 0 && (double)state.mean <= NF4_LARGEST))
        return status_fail(
            ERR_INVALID,
            "%s: the scales of %s have the mean %g (nested_offset of its quant_state); it is at least 0 and at most %g: get the "
            "file again",
            st_path(s->file, name), name, (double)state.mean, NF4_LARGEST);
    return check_scales(s, name, "block of blocks", x.most, ceil_div(blocks, NF4_NESTED_BLOCK), NF4_LARGEST);
}

/* ---- int8 ---- */

/* Refuses int8 files whose rows are not one after another. bitsandbytes 0.45 and later write that order only; older releases
 * saved their GPU's tiled layout. */
static enum status check_format(struct source *s, const char *name)
{
    static const char *const formats[] = {"row", "col32", "col_turing", "col_ampere"};
    char full[BITSANDBYTES_NAME];
    uint8_t format = 0;
    struct st_raw t;
    TRY(bitsandbytes_name(name, &(struct bitsandbytes_part){.suffix = FORMAT}, full));
    if (!st_has(s->file, full))
        return OK;
    TRY(st_find_raw(s->file, full, &t));
    if (t.bytes != 1)
        return status_fail(ERR_INVALID, "%s: %s has %lld bytes, and a format has one: the file is damaged, get it again", t.path,
                           full, (long long)t.bytes);
    TRY(st_read_bytes(s->file, full, 0, 1, &format));
    if (format == 0)
        return OK;
    return status_fail(ERR_INVALID,
                       "%s: %s is %d (%s): of bitsandbytes' int8 matrices whose rows lie one after another (0, row) are read",
                       t.path, full, format, format < 4 ? formats[format] : "not known");
}

static enum status read_int8(struct source *s, const char *name, const struct quantised *q, void *packed)
{
    struct st_raw t;
    TRY(st_find_raw(s->file, name, &t));
    if (strcmp(t.type, "I8") != 0)
        return other_form(s, name, "is not of type I8");
    if (t.n_dims != 2 || t.shape[0] != q->rows || t.shape[1] != q->columns)
        return other_shape(s, name, q);
    TRY(check_format(s, name));
    TRY(read_parts(s, name, q, packed));
    return check_scales(s, name, "row", packed, q->rows, ROWS8_LARGEST);
}

/* ---- either form ---- */

enum status bitsandbytes_read(struct source *s, int param, void *packed)
{
    const struct model_param *p = &s->model->params[param];
    const struct quantised q = model_quantised(&s->model->config, p);
    const char *name = weights_name(s->file, p->name);
    if (!st_has(s->file, name))
        return status_fail(ERR_INVALID, "%s: there is no tensor %s, which config.json means", st_path(s->file, NULL), name);
    return q.form == QUANTISED_INT8 ? read_int8(s, name, &q, packed) : read_nf4(s, name, &q, packed);
}

static enum status type_of_embedding(struct source *s, enum dtype *out)
{
    const char *name;
    struct st_info info;
    TRY(weights_find(s->file, &s->model->params[s->model->embed], 0, &name));
    TRY(st_find(s->file, name, &info));
    *out = info.dtype;
    return OK;
}

enum status bitsandbytes_type(struct source *s, int param, enum dtype *out)
{
    struct state state;
    if (s->model->config.base == BASE_INT8)
        return type_of_embedding(s, out);
    TRY(read_state(s, weights_name(s->file, s->model->params[param].name), &state));
    *out = state.type;
    return OK;
}
