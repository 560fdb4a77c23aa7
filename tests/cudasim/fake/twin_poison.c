/* Extents of kernels' results, whose memory may hold anything while the kernel runs. */
#include "twin.h"

#include <string.h>

struct extent {
    int64_t rows, row, stride; /* in elements */
};

static struct extent flat(int64_t n)
{
    return (struct extent){1, n, n};
}

/* Returns the extent of argument `arg`, which the op writes without reading it. */
static struct extent extent_of(enum op_kind op, int arg, const struct op_attrs *a)
{
    switch (op) {
    case OP_COPY:
    case OP_FILL:
        return flat(a->copy.bytes);
    case OP_EMBED:
        return flat(a->embed.rows * a->embed.dim);
    case OP_EMBED_GRAD:
        return flat(a->embed.vocab * a->embed.dim);
    case OP_NORM:
        return flat(a->norm.rows * a->norm.dim);
    case OP_NORM_GRAD:
        return flat(a->norm.dim); /* arguments dweight and dbias; dx is read as well */
    case OP_GEMM:
        return (struct extent){a->gemm.m, a->gemm.n, a->gemm.ldc};
    case OP_BIAS_GRAD:
        return flat(a->bias.dim);
    case OP_ADD:
        return flat(a->add.rows * a->add.dim);
    case OP_SWIGLU:
    case OP_GELU:
        return flat(a->act.rows * a->act.dim);
    case OP_ATTN_FWD:
        return flat(a->attn.sq * a->attn.hq * (arg == 0 ? op_value_dim(a) : 1));
    case OP_ATTN_BWD:
        return flat(arg == 0   ? a->attn.sq * a->attn.hq * a->attn.head_dim
                    : arg == 1 ? a->attn.sk * a->attn.hk * a->attn.head_dim
                               : a->attn.sk * a->attn.hk * op_value_dim(a));
    case OP_ATTN_DELTA:
        return flat(a->heads.rows * a->heads.heads);
    case OP_ATTN_MERGE:
        return flat(a->heads.rows * a->heads.heads * (arg == 0 ? a->heads.head_dim : 1));
    case OP_CAST:
        return flat(a->cast.n);
    case OP_LOSS:
        return arg == 5 ? (struct extent){a->loss.rows, a->loss.vocab, a->loss.ld} : flat(arg == 4 ? a->loss.rows : 1);
    case OP_ROUTE:
        return flat(arg < 2 ? a->route.rows * a->route.k : a->route.experts);
    case OP_ROUTE_GRAD:
        return flat(a->route.rows * (arg == 8 ? a->route.k : a->route.experts));
    case OP_PERMUTE:
        return flat(arg < 2 ? a->route.rows * a->route.k : a->route.experts + 1);
    case OP_EXPERTS:
        return flat(a->experts.rows * a->experts.out);
    case OP_EXPERTS_GRAD:
        return flat(a->experts.count * a->experts.out * (arg == 0 ? a->experts.in : 1));
    case OP_GATED:
        return flat(a->gated.rows * a->gated.k * a->gated.dim);
    case OP_GATED_GRAD:
        return flat(a->gated.rows * a->gated.k); /* dp; the rest is updated */
    case OP_COMBINE:
        return flat(a->combine.rows * a->combine.dim);
    case OP_SUMSQ:
    case OP_CLIP:
        return flat(1);
    case OP_ADAMW:
        return flat(a->vec.n); /* argument param; the others are read as well */
    default:
        return flat(0);
    }
}

/* Tells whether the op, working in place, also reads some of the `bytes` bytes from `at` on. */
static int is_read(enum op_kind op, const struct op_attrs *a, void *const *arg, const char *at, int64_t bytes)
{
    for (int i = 0; i < op_arg_count(op); i++) {
        enum op_use use = op_arg_use(op, i, a);
        if (arg[i] && (use == ARG_IN || use == ARG_INOUT) && (const char *)arg[i] >= at && (const char *)arg[i] < at + bytes)
            return 1;
    }
    return 0;
}

void twin_poison(enum op_kind op, const struct op_attrs *attrs, void *const *arg)
{
    for (int i = 0; i < op_arg_count(op); i++) {
        if (!arg[i] || op_arg_use(op, i, attrs) != ARG_OUT)
            continue;
        const int64_t size = op_arg_element_bytes(op, i, attrs);
        const struct extent e = extent_of(op, i, attrs);
        for (int64_t r = 0; r < e.rows; r++) {
            char *at = (char *)arg[i] + r * e.stride * size;
            if (!is_read(op, attrs, arg, at, e.row * size))
                memset(at, 0xff, (size_t)(e.row * size));
        }
    }
}
