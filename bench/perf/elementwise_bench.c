/* Worker of bench_elementwise.py: each line "OP TYPE BYTES" runs an op of the kernel table for a few milliseconds on operands of
 * about BYTES bytes each (rows of 1024 elements, 8192 for the loss). The answer is {"seconds", "bytes"} of one run, with the
 * bytes that it reads and writes. The op "stream" is a copy by an ordinary loop. */
#include "base/clock.h"
#include "base/num.h"
#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/simd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { DIM = 1024, VOCAB = 8192, HEAD_DIM = 64, ARGS = 8, MOST = 128 << 20 };
static const double AT_LEAST = 4e-3; /* least seconds of a measurement */

/* Ops, with a letter in `args` and a digit in `times` for each argument. The digit: how often the argument is read or written. The
 * letter:
 *
 *     T    rows x DIM elements of the measured type
 *     Z    the same, all zeros, which the op leaves zeros
 *     F    rows x DIM elements in fp32
 *     t    DIM elements of the measured type
 *     f    DIM elements in fp32
 *     h    rows x heads elements in fp32
 *     i    an integer for each row
 *     s    a few small positive numbers
 *     w    workspace
 *     -    absent argument */
static const struct {
    const char *name;
    enum op_kind op;
    const char *args, *times;
} cases[] = {
    {"add", OP_ADD, "TTF-", "1110"},
    {"accum", OP_ACCUM, "FF", "21"},
    {"bias", OP_BIAS, "Tt", "20"},
    {"bias_grad", OP_BIAS_GRAD, "fT", "01"},
    {"norm", OP_NORM, "TTt-", "1100"},
    {"norm_grad", OP_NORM_GRAD, "TTtFf-w", "2101000"},
    {"rope", OP_ROPE, "Tif", "200"},
    {"swiglu", OP_SWIGLU, "TTT", "111"},
    {"swiglu_grad", OP_SWIGLU_GRAD, "ZZZ", "222"},
    {"gelu", OP_GELU, "TT", "11"},
    {"gelu_grad", OP_GELU_GRAD, "ZZ", "22"},
    {"attn_delta", OP_ATTN_DELTA, "hTT", "111"},
    {"loss", OP_LOSS, "Fsis", "2000"},
    {"cast", OP_CAST, "FT", "11"},
    {"embed", OP_EMBED, "TTi--", "11000"},
    {"embed_grad", OP_EMBED_GRAD, "FTi", "210"},
    {"sumsq", OP_SUMSQ, "sF", "01"},
    {"fill", OP_FILL, "F", "1"},
};
enum { CASES = sizeof cases / sizeof *cases };

static struct op_attrs attrs_of(enum op_kind op, int64_t rows, int32_t type)
{
    const int64_t n = rows * DIM;
    switch (op) {
    case OP_ADD:
        return (struct op_attrs){.add = {.rows = rows, .dim = DIM, .dtype = type}};
    case OP_BIAS:
    case OP_BIAS_GRAD:
        return (struct op_attrs){.bias = {.rows = rows, .dim = DIM, .dtype = type, .y_type = type}};
    case OP_NORM:
    case OP_NORM_GRAD:
        return (struct op_attrs){.norm = {.rows = rows, .dim = DIM, .eps = 1e-5f, .kind = NORM_RMS, .dtype = type}};
    case OP_ROPE:
        return (struct op_attrs){.rope = {.rows = rows, .heads = DIM / HEAD_DIM, .head_dim = HEAD_DIM, .x_type = type}};
    case OP_ATTN_DELTA:
        return (struct op_attrs){.heads = {.rows = rows, .heads = DIM / HEAD_DIM, .head_dim = HEAD_DIM, .dtype = type}};
    case OP_LOSS:
        return (struct op_attrs){.loss = {.rows = n / VOCAB, .vocab = VOCAB, .gradient = 1}};
    case OP_CAST:
        return (struct op_attrs){.cast = {.n = n, .y_type = F32, .x_type = type}};
    case OP_EMBED:
    case OP_EMBED_GRAD:
        return (struct op_attrs){.embed = {.rows = rows, .dim = DIM, .vocab = rows, .dtype = type, .accumulate = 1}};
    case OP_FILL:
        return (struct op_attrs){.fill = {.bytes = n * 4}};
    case OP_ACCUM:
    case OP_SUMSQ:
        return (struct op_attrs){.vec = {.n = n}};
    default:
        return (struct op_attrs){.act = {.rows = rows, .dim = DIM, .dtype = type, .kind = GELU_TANH}};
    }
}

/* Fills x according to the argument's letter: with rounded numbers in [-1, 1), with zeros, with token numbers below `rows`, or
 * with small positive numbers. */
static void fill(void *x, char kind, int32_t type, int64_t n, int64_t rows)
{
    for (int64_t i = 0; i < n; i++) {
        const float value = kind == 'Z' ? 0.0f : (float)(i * 7919 % 4001 - 2000) / 2000.0f;
        if (kind == 'i')
            ((int32_t *)x)[i] = (int32_t)(i * 7919 % rows);
        else if (strchr("TZt", kind) && type == BF16)
            ((bf16 *)x)[i] = bf16_from_float(value);
        else
            ((float *)x)[i] = kind == 's' ? 1.0f : value;
    }
}

static int64_t elements(char kind, int64_t rows)
{
    return strchr("TZF", kind) ? rows * DIM : kind == 'h' ? rows * DIM / HEAD_DIM : kind == 'i' ? rows : DIM;
}

CLONES static void copy_block(float *y, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i];
}

static enum status stream(const struct op_attrs *attrs, void *const *arg, void *on)
{
    (void)on;
    const int64_t n = attrs->fill.bytes / 4;
#pragma omp parallel for schedule(static)
    for (int64_t at = 0; at < n; at += ROWS_BLOCK)
        copy_block((float *)arg[0] + at, (const float *)arg[1] + at, min_i64(ROWS_BLOCK, n - at));
    return OK;
}

static double seconds_of(op_kernel *kernel, const struct op_attrs *attrs, void *const *arg)
{
    (void)kernel(attrs, arg, NULL);
    double t = clock_seconds(), now;
    int64_t runs = 0;
    do {
        (void)kernel(attrs, arg, NULL);
        runs++;
    } while ((now = clock_seconds()) - t < AT_LEAST);
    return (now - t) / (double)runs;
}

int main(void)
{
    char line[256], filled[256] = "", name[32], type[8], *memory[ARGS];
    long long bytes;
    op_kernel *table[OP_COUNT] = {NULL};
    if (ops_cpu_kernels(table) != OK)
        return 1;
    for (int i = 0; i < ARGS; i++) { /* arrays begin at different offsets in their pages, as the planner might place them */
        memory[i] = aligned_alloc(2 << 20, MOST + (2 << 20));
        if (!memory[i])
            return 1;
        madvise(memory[i], MOST + (2 << 20), MADV_HUGEPAGE);
        memset(memory[i], 0, MOST + (2 << 20));
        memory[i] += 1088 * i;
    }
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "%31s %7s %lld", name, type, &bytes) != 3 || bytes > MOST)
            return 2;
        const int32_t dtype = strcmp(type, "bf16") == 0 ? BF16 : F32;
        const int64_t rows = bytes / (DIM * dtype_size((enum dtype)dtype));
        struct op_attrs attrs = {.fill = {.bytes = rows * DIM * 4}};
        op_kernel *kernel = stream;
        void *arg[ARGS] = {memory[0], memory[1]};
        double moved = 2.0 * (double)attrs.fill.bytes;
        for (int c = 0; c < CASES; c++) {
            if (strcmp(name, cases[c].name) != 0)
                continue;
            attrs = attrs_of(cases[c].op, rows, dtype);
            kernel = table[cases[c].op];
            moved = 0;
            for (int i = 0; cases[c].args[i]; i++) {
                const char kind = cases[c].args[i];
                const int64_t n = elements(kind, rows);
                arg[i] = kind == '-' ? NULL : memory[i];
                if (arg[i] && kind != 'w' && strcmp(line, filled) != 0)
                    fill(arg[i], kind, dtype, n, rows);
                moved += (double)((cases[c].times[i] - '0') * n * (strchr("TZ", kind) && dtype == BF16 ? 2 : 4));
            }
        }
        if (kernel !=
            stream) /* a copy does not fill the arrays, and leaves values on which the op filled for before can run again */
            strcpy(filled, line);
        printf("{\"seconds\": %.9f, \"bytes\": %.17g}\n", seconds_of(kernel, &attrs, arg), moved);
        fflush(stdout);
    }
    return 0;
}
