/* Functions that look up an op's row in the op table by the op's kind. */
#include "program/op.h"

#include "base/mix.h"

#include <assert.h>
#include <stddef.h>

/* Types and flags of arguments, as members of struct op_arg. */
#define TYPE_F32 .element_bytes = 4
#define TYPE_BF16 .element_bytes = 2
#define TYPE_F64 .element_bytes = 8
#define TYPE_I32 .element_bytes = 4
#define TYPE_BYTES .element_bytes = 1
#define TYPE_RECORD .element_bytes = sizeof(struct step_record)
#define TYPE_NORM .element_bytes = sizeof(struct norm_result)
#define TYPE_T(attrs) .type_at = offsetof(struct op_attrs, attrs.dtype)
#define TYPE_T_OR_F32(attrs, flag) TYPE_T(attrs), .fp32_at = offsetof(struct op_attrs, flag)
#define TYPE_AS(attribute) .type_at = offsetof(struct op_attrs, attribute)
#define FLAG(attribute) .flag_at = offsetof(struct op_attrs, attribute)

/* clang-format off */
#define ARG(use_, ...) {.use = ARG_##use_, __VA_ARGS__}
/* clang-format on */
#define IN(name, type) ARG(IN, TYPE_##type)
#define OUT(name, type) ARG(OUT, TYPE_##type)
#define INOUT(name, type) ARG(INOUT, TYPE_##type)
#define SUM(name, type, flag) ARG(SUM, TYPE_##type, FLAG(flag))
#define IN_OR_INOUT(name, type, flag) ARG(IN_OR_INOUT, TYPE_##type, FLAG(flag))
#define ADDEND(name, type) ARG(IN, TYPE_##type, .addend = 1)
#define OPT_IN(name, type) ARG(IN, TYPE_##type, .optional = 1)
#define OPT_OUT(name, type) ARG(OUT, TYPE_##type, .optional = 1)
#define OPT_INOUT(name, type) ARG(INOUT, TYPE_##type, .optional = 1)
#define OPT_SUM(name, type, flag) ARG(SUM, TYPE_##type, FLAG(flag), .optional = 1)
#define WORK(name) ARG(WORK, TYPE_BYTES, .optional = 1)

static const struct {
    const char *name;
    enum op_class class;
    enum op_omission omission;
    int runs_on_gpus, args;
    struct op_arg arg[OP_MAX_ARGS];
} ops[OP_COUNT] = {
#define ROW(name, class, omission, runs_on_gpus, ...)                   \
    {                                                                   \
        #name,                                                          \
        OPS_##class,                                                    \
        OMITTED_##omission,                                             \
        runs_on_gpus,                                                   \
        sizeof((struct op_arg[]){__VA_ARGS__}) / sizeof(struct op_arg), \
        {__VA_ARGS__}},
#define OP(KIND, name, class, omission, storage, flops, ...) ROW(name, class, omission, 1, __VA_ARGS__)
#define CPU_OP(KIND, name, class, omission, storage, flops, ...) ROW(name, class, omission, 0, __VA_ARGS__)
#include "program/op_table.h"
};

const char *op_name(enum op_kind kind)
{
    return (unsigned)kind < OP_COUNT ? ops[kind].name : "?";
}

enum op_class op_class(enum op_kind kind)
{
    return ops[kind].class;
}

int op_is_scan(enum op_kind kind)
{
    return kind == OP_SCAN || kind == OP_SCAN_GRAD || kind == OP_SCAN_SUM || kind == OP_SCAN_GRAD_SUM;
}

int op_is_counted(enum op_kind kind)
{
    return kind == OP_DISPATCH || kind == OP_RETURN;
}

struct op_product op_product(enum op_kind kind, const struct op_attrs *a)
{
    assert(kind == OP_GEMM || kind == OP_EXPERTS || kind == OP_EXPERTS_GRAD || op_is_scan(kind));
    if (op_is_scan(kind))
        return (struct op_product){.m = (double)a->scan.rows,
                                   .n = a->scan.value_dim,
                                   .k = a->scan.key_dim,
                                   .a_type = (enum dtype)a->scan.dtype,
                                   .b_type = (enum dtype)a->scan.dtype};
    const double expected = (double)a->experts.rows * 100 / (a->experts.padded > 0 ? a->experts.padded : 100),
                 rows = expected / a->experts.experts, in = (double)a->experts.in, out = (double)a->experts.out;
    if (kind == OP_EXPERTS)
        return (struct op_product){.m = rows,
                                   .n = out,
                                   .k = in,
                                   .tb = a->experts.transposed,
                                   .a_type = (enum dtype)a->experts.x_type,
                                   .b_type = (enum dtype)a->experts.w_type};
    if (kind == OP_EXPERTS_GRAD)
        return (struct op_product){.m = out,
                                   .n = in,
                                   .k = rows,
                                   .ta = 1,
                                   .a_type = (enum dtype)a->experts.y_type,
                                   .b_type = (enum dtype)a->experts.x_type};
    return (struct op_product){.m = (double)a->gemm.m,
                               .n = (double)a->gemm.n,
                               .k = (double)a->gemm.k,
                               .ta = a->gemm.ta,
                               .tb = a->gemm.tb,
                               .a_type = (enum dtype)a->gemm.a_type,
                               .b_type = (enum dtype)a->gemm.b_type};
}

int op_arg_count(enum op_kind kind)
{
    return (unsigned)kind < OP_COUNT ? ops[kind].args : 0;
}

const struct op_arg *op_arg(enum op_kind kind, int arg)
{
    return &ops[kind].arg[arg];
}

static int32_t attribute(const struct op_attrs *a, int at)
{
    return *(const int32_t *)((const char *)a + at);
}

enum op_use op_arg_use(enum op_kind kind, int arg, const struct op_attrs *a)
{
    const struct op_arg *x = op_arg(kind, arg);
    if (x->use != ARG_SUM && x->use != ARG_IN_OR_INOUT)
        return (enum op_use)x->use;
    return attribute(a, x->flag_at) ? ARG_INOUT : x->use == ARG_SUM ? ARG_OUT : ARG_IN;
}

int64_t op_arg_element_bytes(enum op_kind kind, int arg, const struct op_attrs *a)
{
    const struct op_arg *x = op_arg(kind, arg);
    if (x->fp32_at && attribute(a, x->fp32_at))
        return dtype_size(F32);
    return x->element_bytes ? x->element_bytes : dtype_size((enum dtype)attribute(a, x->type_at));
}

int op_may_be_omitted(enum op_kind kind)
{
    return ops[kind].omission == OMITTED_FREELY;
}

int op_runs_on_gpus(enum op_kind kind)
{
    return ops[kind].runs_on_gpus;
}

enum dtype op_storage_type(enum op_kind kind, const struct op_attrs *a)
{
    switch (kind) {
#define OP(KIND, name, class, omission, storage, ...) \
    case OP_##KIND:                                   \
        return (enum dtype)(storage);
#include "program/op_table.h"
    case OP_COUNT:
        break;
    }
    return F32;
}

/* Returns the operations of the products of OP_SCAN_SUM or OP_SCAN_GRAD_SUM, whose triangles count half. */
static double op_scan_sum_flops(const struct op_attrs *a, int gradient)
{
    const double k = a->scan.key_dim, v = a->scan.value_dim, chunk = SCAN_CHUNK, delta = a->scan.kind != SCAN_SSD;
    const double shared = (1 + delta) * 2 * chunk * k * a->scan.groups / a->scan.heads, wide = gradient ? v : v + k;
    const double state = 2 * (gradient ? 2 + delta : 1 + delta) * k * wide, pairs = chunk * (gradient ? 1 + delta : delta) * wide;
    return (double)a->scan.rows * a->scan.heads * (state + pairs + shared);
}

/* Returns the operations of the products of OP_SCAN or OP_SCAN_GRAD, whose triangles count half. */
static double op_scan_flops(const struct op_attrs *a, int gradient)
{
    const double k = a->scan.key_dim, v = a->scan.value_dim, chunk = SCAN_CHUNK, delta = a->scan.kind != SCAN_SSD;
    const double state = k * v, shared = 2 * chunk * k * a->scan.groups / a->scan.heads;
    const double forward = 2 * (2 + delta) * state + chunk * (1 + delta) * v + (1 + delta) * shared;
    const double backward = 2 * (4 + 2 * delta) * state + chunk * v * (2 + 2 * delta) + chunk * k * (2 + 2 * delta);
    const double again = 2 * (1 + 2 * delta) * state + 2 * chunk * delta * v + 2 * (1 + delta) * shared;
    return (double)a->scan.rows * a->scan.heads * (gradient ? backward + again : forward);
}

double op_flops(enum op_kind kind, const struct op_attrs *a, double pairs)
{
    switch (kind) {
#define OP(KIND, name, class, omission, storage, flops, ...) \
    case OP_##KIND:                                          \
        return flops;
#include "program/op_table.h"
    case OP_COUNT:
        break;
    }
    return 0.0;
}

uint64_t op_table_digest(void)
{
    static const char *const rows[] = {
#define OP(...) #__VA_ARGS__,
#include "program/op_table.h"
    };
    uint64_t digest = sizeof(struct op_attrs);
    for (int i = 0; i < OP_COUNT; i++)
        for (const char *c = rows[i]; *c; c++)
            digest = mix(digest, (unsigned char)*c);
    return digest;
}
