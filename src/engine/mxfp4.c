#include "engine/mxfp4.h"

#include "base/mxfp4.h"
#include "base/sys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLAB = 1 << 20 }; /* bytes of codes read at a time, in whole rows */

/* Refuses scales with which a code is not finite. first: number of the first scale in the tensor. */
static enum status check_scales(const struct st_file *f, const char *name, int64_t first, int64_t n, const uint8_t *scale)
{
    for (int64_t i = 0; i < n; i++)
        if (scale[i] > MXFP4_LARGEST_SCALE)
            return status_fail(
                ERR_INVALID,
                "%s: tensor %s has the scale %d (element %lld), with which numbers are not finite; it is at most %d: "
                "get the file again",
                st_path(f, name), name, scale[i], (long long)(first + i), MXFP4_LARGEST_SCALE);
    return OK;
}

enum status mxfp4_read_packed(struct st_file *f, const char *const name[MXFP4_TENSORS], const struct model_param *p,
                              int64_t expert, uint8_t *packed)
{
    const int64_t n = p->shape[0] / p->experts * p->shape[1], scales = n / MXFP4_BLOCK;
    TRY(st_read_bytes(f, name[MXFP4_SCALES], expert * scales, scales, packed));
    TRY(check_scales(f, name[MXFP4_SCALES], expert * scales, scales, packed));
    return st_read_bytes(f, name[MXFP4_CODES], expert * (n / 2), n / 2, packed + mxfp4_scale_bytes(n));
}

/* ---- numbers ---- */

/* Elements [first, end) of an expert's matrix as numbers, [in, out], of which elements from `first` on go to `data`. */
struct reading {
    const char *const *name; /* [MXFP4_TENSORS] */
    int64_t expert, in, out, first, end;
    enum dtype type;
    char *data;
};

static void put(const struct reading *x, int64_t at, float value)
{
    if (x->type == F32)
        ((float *)x->data)[at - x->first] = value;
    else
        ((bf16 *)x->data)[at - x->first] = bf16_from_float(value);
}

/* Dequantises columns [column, column + n) of the numbers, which are rows of the codes. */
static void turn(const struct reading *x, int64_t column, int64_t n, const uint8_t *code, const uint8_t *scale)
{
    for (int64_t i = x->first / x->out; i < ceil_div(x->end, x->out); i++) {
        const int64_t row = i * x->out, from = max_i64(x->first - row, column), to = min_i64(x->end - row, column + n);
        for (int64_t o = from; o < to; o++) {
            const int64_t at = (o - column) * x->in + i;
            put(x, row + o, mxfp4_map[mxfp4_code(code, at)] * mxfp4_scale(scale[at / MXFP4_BLOCK]));
        }
    }
}

static enum status read_expert(struct st_file *f, const struct reading *x)
{
    const int64_t most = min_i64(x->out, max_i64(1, SLAB / (x->in / 2))), code_row = x->in / 2, scale_row = x->in / MXFP4_BLOCK;
    uint8_t *code = sys_malloc((size_t)(most * (code_row + scale_row))), *scale = code + most * code_row;
    enum status st = code ? OK : status_no_memory("for experts in MXFP4");
    for (int64_t column = 0; column < x->out && st == OK; column += most) {
        const int64_t n = min_i64(most, x->out - column), row = x->expert * x->out + column;
        st = st_read_bytes(f, x->name[MXFP4_CODES], row * code_row, n * code_row, code);
        if (st == OK)
            st = st_read_bytes(f, x->name[MXFP4_SCALES], row * scale_row, n * scale_row, scale);
        if (st == OK)
            st = check_scales(f, x->name[MXFP4_SCALES], row * scale_row, n * scale_row, scale);
        if (st == OK)
            turn(x, column, n, code, scale);
    }
    free(code);
    return st;
}

enum status mxfp4_read(struct st_file *f, const char *const name[MXFP4_TENSORS], const struct model_param *p, int64_t first,
                       int64_t n, enum dtype type, void *data)
{
    struct reading x = {.name = name, .in = p->shape[0] / p->experts, .out = p->shape[1], .type = type};
    const int64_t each = x.in * x.out;
    for (int64_t done = 0, part; done < n; done += part) {
        x.expert = (first + done) / each;
        x.first = (first + done) % each;
        part = min_i64(n - done, each - x.first);
        x.end = x.first + part;
        x.data = (char *)data + done * dtype_size(type);
        TRY(read_expert(f, &x));
    }
    return OK;
}
