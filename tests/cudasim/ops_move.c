/* Tests kernels that only move elements: fill, copy, casts, rows between layouts, embedding and its gradient. All results are
 * compared bit for bit. */
#include "ops_harness.h"

#include "base/quantised.h"

static void test_fill(void)
{
    static const int64_t sizes[] = {1, 15, 16, 17, 4095, 4096, 4097, 33333};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct twin_case c;
        case_start(&c, OP_FILL, "fill %lld bytes", (long long)sizes[s]);
        c.attrs.fill.bytes = sizes[s];
        case_bytes(&c, array_new(sizes[s]), sizes[s], OUT);
        case_run(&c);
        case_start(&c, OP_COPY, "copy %lld bytes", (long long)sizes[s]);
        c.attrs.copy.bytes = sizes[s];
        case_bytes(&c, array_random(sizes[s], F32, 1.0), sizes[s], IN);
        case_bytes(&c, array_new(sizes[s]), sizes[s], OUT);
        case_run(&c);
        arrays_free();
    }
}

static void check_cast(enum dtype to, enum dtype from, int64_t n)
{
    struct twin_case c;
    case_start(&c, OP_CAST, "cast %lld elements from %s to %s", (long long)n, dtype_name(from), dtype_name(to));
    c.attrs.cast.n = n;
    c.attrs.cast.y_type = (int32_t)to;
    c.attrs.cast.x_type = (int32_t)from;
    void *src = array_random(n, from, 3.0);
    if (from == F32 && n > 4) {
        static const uint32_t odd[] = {0x7f800000, 0xff800000, 0x7fc12345, 0x00012345, 0x7f7fffff};
        memcpy(src, odd, 5 * 4); /* infinities, NaN, a subnormal, a number that rounds to infinity */
    }
    case_arg(&c, array_new(n * dtype_size(to)), n, to, OUT);
    case_arg(&c, src, n, from, IN);
    case_run(&c);
    arrays_free();
}

static void check_scale(enum dtype t, int64_t n)
{
    struct twin_case c;
    case_start(&c, OP_CAST, "%lld elements of %s scaled", (long long)n, dtype_name(t));
    c.attrs.cast.n = n;
    c.attrs.cast.y_type = c.attrs.cast.x_type = (int32_t)t;
    c.attrs.cast.scale = 0.22f;
    case_arg(&c, array_new(n * dtype_size(t)), n, t, OUT);
    case_arg(&c, array_random(n, t, 3.0), n, t, IN);
    case_run(&c);
    arrays_free();
}

static void check_multiply(enum dtype t, int64_t n)
{
    struct twin_case c;
    case_start(&c, OP_MULTIPLY, "%lld elements of %s times a number", (long long)n, dtype_name(t));
    c.attrs.cast.n = n;
    c.attrs.cast.y_type = c.attrs.cast.x_type = (int32_t)t;
    case_arg(&c, array_random(n, t, 3.0), n, t, INOUT);
    case_arg(&c, array_random(1, t, 1.0), 1, t, IN);
    case_run(&c);
    arrays_free();
}

struct rows_move {
    int64_t rows, row_bytes;
    int gather;
};

static enum status call_rows(void *const *arg, void *stream, void *context)
{
    const struct rows_move *k = context;
    return (k->gather ? ops_cuda_gather_rows : ops_cuda_scatter_rows)(arg[0], arg[1], arg[2], k->rows, k->row_bytes, stream);
}

/* Checks a gather or scatter of rows by a permutation with some padding (index -1). */
static void check_rows(int64_t rows, int64_t row_bytes, int gather)
{
    struct rows_move k = {rows, row_bytes, gather};
    struct twin_case c;
    case_start(&c, OP_COPY, "%s %lld rows of %lld bytes", gather ? "gather" : "scatter", (long long)rows, (long long)row_bytes);
    char *src = array_random(rows * row_bytes, F32, 1.0), *want = array_new(rows * row_bytes), *dst = array_new(rows * row_bytes);
    int32_t *index = array_new(rows * 4);
    memset(dst, 0x5a, (size_t)(rows * row_bytes));
    memcpy(want, dst, (size_t)(rows * row_bytes));
    for (int64_t i = 0; i < rows; i++) /* a permutation, since 7 and `rows` have no common factor in the sizes below */
        index[i] = i % 5 == 3 ? -1 : (int32_t)((i * 7 + 2) % rows);
    for (int64_t i = 0; i < rows; i++) {
        if (gather && index[i] < 0)
            memset(want + i * row_bytes, 0, (size_t)row_bytes);
        else if (gather)
            memcpy(want + i * row_bytes, src + index[i] * row_bytes, (size_t)row_bytes);
        else if (index[i] >= 0)
            memcpy(want + index[i] * row_bytes, src + i * row_bytes, (size_t)row_bytes);
    }
    case_bytes(&c, dst, rows * row_bytes, INOUT);
    case_bytes(&c, src, rows * row_bytes, IN);
    case_arg(&c, index, rows, I32, IN);
    case_run_call(&c, call_rows, &k, 0, want);
    arrays_free();
}

struct cast_call {
    int64_t dst_ld, src_ld, rows, cols;
};

static enum status call_cast(void *const *arg, void *stream, void *context)
{
    const struct cast_call *k = context;
    return ops_cuda_cast_rows(arg[0], k->dst_ld, arg[1], k->src_ld, k->rows, k->cols, stream);
}

/* Checks that the cast leaves columns beyond `cols`, between the rows, unchanged. */
static void check_cast_rows(int64_t rows, int64_t cols, int64_t dst_ld, int64_t src_ld)
{
    struct twin_case c;
    struct cast_call k = {dst_ld, src_ld, rows, cols};
    case_start(&c, OP_CAST, "cast of %lld rows of %lld, %lld apart, to %lld", (long long)rows, (long long)cols, (long long)src_ld,
               (long long)dst_ld);
    float *src = array_random(rows * src_ld, F32, 1.0);
    bf16 *dst = array_random(rows * dst_ld, BF16, 1.0), *want = array_new(rows * dst_ld * 2);
    memcpy(want, dst, (size_t)(rows * dst_ld * 2));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            want[i * dst_ld + j] = bf16_from_float(src[i * src_ld + j]);
    case_arg(&c, dst, rows * dst_ld, BF16, INOUT);
    case_arg(&c, src, rows * src_ld, F32, IN);
    case_run_call(&c, call_cast, &k, 0, want);
    arrays_free();
}

static uint8_t *pack(const struct quantised *q, uint8_t *packed)
{
    const int64_t n = q->rows * q->columns;
    float *x = array_random(n, F32, 0.3), *scale = array_new(nf4_blocks(n) * 4);
    uint8_t *codes = packed + quantised_scale_bytes(q);
    if (q->form == QUANTISED_MXFP4) { /* any bytes are numbers, but for the largest scales */
        memcpy(codes, x, (size_t)(n / 2));
        for (int64_t i = 0; i < n / MXFP4_BLOCK; i++)
            packed[i] = (uint8_t)(i * 37 % (MXFP4_LARGEST_SCALE + 1));
        return packed;
    }
    if (q->form != QUANTISED_INT8) {
        nf4_quantise(x, n, scale, codes);
        nf4_pack_scales(scale, n, quantised_scales(q->form), packed);
    }
    for (int64_t i = 0; i < q->rows && q->form == QUANTISED_INT8; i++)
        ((float *)packed)[i] = rows8_quantise(x + i * q->columns, q->columns, (int8_t *)codes + i * q->columns);
    return packed;
}

/* Dequantises the elements first + r * ld + c of a matrix for all r < rows and c < cols. */
static void check_dequantise(const struct quantised *q, int64_t first, int64_t rows, int64_t cols, int64_t ld, enum dtype t)
{
    struct twin_case c;
    const int64_t n = q->rows * q->columns, each = quantised_per_byte(q->form);
    uint8_t *packed = pack(q, array_new(quantised_bytes(q))), *codes = packed + quantised_scale_bytes(q);
    case_start(&c, OP_DEQUANTISE, "dequantise %lld x %lld of %lld from %lld on, %lld apart, form %d, to %s", (long long)rows,
               (long long)cols, (long long)n, (long long)first, (long long)ld, (int)q->form, dtype_name(t));
    c.attrs.dequantise.rows = rows;
    c.attrs.dequantise.cols = cols;
    c.attrs.dequantise.first = first;
    c.attrs.dequantise.ld = ld;
    c.attrs.dequantise.n = n;
    c.attrs.dequantise.columns = q->columns;
    c.attrs.dequantise.y_type = (int32_t)t;
    c.attrs.dequantise.form = (int32_t)q->form;
    case_arg(&c, array_new(rows * cols * dtype_size(t)), rows * cols, t, OUT);
    case_bytes(&c, codes + first / each, ceil_div(first + (rows - 1) * ld + cols, each) - first / each, IN);
    case_arg(&c, packed, quantised_scale_bytes(q) / 4, F32, IN);
    case_run(&c);
    arrays_free();
}

/* Dequantises matrices of a stack together. */
static void check_stack(const struct quantised *q, int64_t matrices, enum dtype t)
{
    struct twin_case c;
    const int64_t n = q->rows * q->columns, stride = quantised_bytes(q), scales = quantised_scale_bytes(q);
    uint8_t *packed = array_new(matrices * stride);
    for (int64_t m = 0; m < matrices; m++)
        pack(q, packed + m * stride);
    case_start(&c, OP_DEQUANTISE, "dequantise %lld matrices of %lld x %lld, form %d, to %s", (long long)matrices,
               (long long)q->rows, (long long)q->columns, (int)q->form, dtype_name(t));
    c.attrs.dequantise.rows = matrices;
    c.attrs.dequantise.cols = c.attrs.dequantise.ld = c.attrs.dequantise.n = n;
    c.attrs.dequantise.columns = q->columns;
    c.attrs.dequantise.stride = stride;
    c.attrs.dequantise.y_type = (int32_t)t;
    c.attrs.dequantise.form = (int32_t)q->form;
    case_arg(&c, array_new(matrices * n * dtype_size(t)), matrices * n, t, OUT);
    case_bytes(&c, packed + scales, (matrices - 1) * stride + ceil_div(n, quantised_per_byte(q->form)), IN);
    case_arg(&c, packed, ((matrices - 1) * stride + scales) / 4, F32, IN);
    case_run(&c);
    arrays_free();
}

static void test_dequantise(void)
{
    for (int k = 0; k < 8; k++) {
        const enum quantised_form f = (enum quantised_form)(k / 2);
        const enum dtype t = k % 2 ? BF16 : F32;
        check_stack(&(struct quantised){f, 5, 64}, 3, t);
        check_stack(&(struct quantised){f, 33, 96}, 2, t);
        check_dequantise(&(struct quantised){f, 40, 64}, 64, 1, 64 * 39, 64 * 39, t);
        check_dequantise(&(struct quantised){f, 33, 96}, 96 * 5 + 31, 28, 48, 96, t); /* the elements read span two blocks */
    }

    for (int k = 0; k < 6; k++) {
        const enum quantised_form f = (enum quantised_form)(k / 2);
        const enum dtype t = k % 2 ? BF16 : F32;
        check_dequantise(&(struct quantised){f, 1, 1}, 0, 1, 1, 1, t);
        check_dequantise(&(struct quantised){f, 40, 64}, 0, 1, 64 * 40, 64 * 40, t);
        check_dequantise(&(struct quantised){f, 3, 43}, 44, 2, 42, 43, t);
        check_dequantise(&(struct quantised){f, 33, 96}, 96 * 5 + 24, 28, 48, 96, t);
        check_dequantise(&(struct quantised){f, 300, 72}, 72, 299, 72, 72, t);
        check_dequantise(&(struct quantised){f, 304, 3}, 8, 1, 904, 904, t); /* the elements read span several rows */
        check_dequantise(&(struct quantised){f, 2, 8200}, 1, 2, 8190, 8200, t);
        check_dequantise(&(struct quantised){f, 3, 200}, 3, 2, 192, 200, t); /* the elements read span two blocks */
    }
}

static void check_dropout(int64_t rows, int64_t cols, uint32_t first, int64_t apart, enum dtype y_type, int accumulate)
{
    const enum dtype x_type = accumulate ? F32 : y_type;
    static const struct step_record record = {.dropout = {0x01234567, 0x89abcdef}, .sequence = 77, .member = {5}};
    struct twin_case c;
    int32_t *numbers = array_new(rows * 4);
    for (int64_t i = 0; i < rows; i++)
        numbers[i] = (int32_t)(i * 1000003);
    case_start(&c, OP_DROPOUT, "dropout of %lld x %lld, features from %u on, rows %lld further apart, %s to %s%s",
               (long long)rows, (long long)cols, (unsigned)first, (long long)apart, dtype_name(x_type), dtype_name(y_type),
               accumulate ? ", added" : "");
    c.attrs.dropout.rows = rows;
    c.attrs.dropout.cols = cols;
    c.attrs.dropout.x_ld = cols + apart;
    c.attrs.dropout.y_ld = cols + 2 * apart;
    c.attrs.dropout.first = first;
    c.attrs.dropout.slices = apart ? 3 : 0; /* place 5 has the last one of three slices of a layer */
    c.attrs.dropout.share = (uint32_t)cols;
    c.attrs.dropout.module = 0xfedcba98;
    c.attrs.dropout.threshold = 0x4ccccccc;
    c.attrs.dropout.scale = 1 / 0.7f;
    c.attrs.dropout.dtype = (int32_t)y_type;
    c.attrs.dropout.accumulate = accumulate;
    case_arg(&c, array_random(rows * (cols + 2 * apart), y_type, 1.0), rows * (cols + 2 * apart), y_type, INOUT);
    case_arg(&c, array_random(rows * (cols + apart), x_type, 1.0), rows * (cols + apart), x_type, IN);
    case_arg(&c, numbers, rows, I32, IN);
    case_arg(&c, memcpy(array_new(sizeof record), &record, sizeof record), sizeof record / 4, F32, IN);
    case_run(&c);
    arrays_free();
}

static void test_dropout(void)
{
    for (int k = 0; k < 4; k++) {
        const enum dtype y = k & 1 ? BF16 : F32;
        check_dropout(3, 128, 0, 0, y, k / 2);
        check_dropout(5, 64, 16, 8, y, k / 2);
        check_dropout(2, 24, 6, 0, y, k / 2); /* a group of four numbers begins in the middle of a vector */
        check_dropout(3, 37, 8, 0, y, k / 2);
        check_dropout(2, 16, 4, 4, y, k / 2);
        check_dropout(70, 1, 1, 0, y, k / 2);
    }
    check_dropout(2, 4104, 32, 0, BF16, 0);
}

void test_moves(void)
{
    static const int64_t sizes[] = {1, 7, 8, 9, 2047, 2048, 2049, 10001};
    test_fill();
    test_dequantise();
    test_dropout();
    check_cast_rows(3, 40, 40, 40);
    check_cast_rows(5, 48, 64, 52);
    check_cast_rows(4, 41, 48, 41); /* an odd vocabulary */
    check_cast_rows(3, 40, 40, 42); /* source rows are not aligned */
    check_cast_rows(3, 40, 44, 44);
    check_cast_rows(130, 1, 8, 3);
    check_cast_rows(2, 2051, 2056, 2052);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        check_cast(BF16, F32, sizes[s]);
        check_cast(F32, BF16, sizes[s]);
        check_cast(BF16, BF16, sizes[s]);
        check_scale(s % 2 ? F32 : BF16, sizes[s]);
        check_multiply(s % 2 ? F32 : BF16, sizes[s]);
    }
    static const int64_t rows[][2] = {{1, 2}, {5, 16}, {33, 30}, {13, 8192}, {300, 18}, {65, 4112}};
    for (size_t s = 0; s < sizeof rows / sizeof *rows; s++)
        for (int gather = 0; gather < 2; gather++)
            check_rows(rows[s][0], rows[s][1], gather);
}

/* --- embedding ----------------------------------------------------------------------------------------------------------------
 */

static void set_embed(struct twin_case *c, int64_t rows, int64_t dim, int64_t vocab, enum dtype t, int accumulate)
{
    c->attrs.embed.rows = rows;
    c->attrs.embed.dim = dim;
    c->attrs.embed.vocab = vocab;
    c->attrs.embed.max_pos = 11;
    c->attrs.embed.dtype = t;
    c->attrs.embed.accumulate = accumulate;
}

static void check_lookup(int64_t rows, int64_t dim, enum dtype t, int positions, float scale, int by_columns)
{
    const int64_t vocab = 19;
    struct twin_case c;
    case_start(&c, OP_EMBED, "embed %lld x %lld %s%s%s", (long long)rows, (long long)dim, dtype_name(t),
               positions ? " with positions" : "", by_columns ? " by columns" : "");
    set_embed(&c, rows, dim, vocab, t, 0);
    c.attrs.embed.by_columns = by_columns;
    c.attrs.embed.scale = scale;
    case_arg(&c, array_new(rows * dim * dtype_size(t)), rows * dim, t, OUT);
    case_arg(&c, array_random(vocab * dim, t, 1.0), vocab * dim, t, IN);
    case_arg(&c, array_indices(rows, -1, 21), rows, I32, IN); /* some indices (-1 and vocab) are outside the vocabulary */
    if (positions) {
        case_arg(&c, array_random(11 * dim, t, 1.0), 11 * dim, t, IN);
        case_arg(&c, array_indices(rows, 0, 12), rows, I32, IN);
    } else {
        case_absent(&c);
        case_absent(&c);
    }
    case_run(&c);
    arrays_free();
}

/* Rows of a second table lie over some of the rows that are there; others, whose index is negative, stay. */
static void check_over(int64_t rows, int64_t dim, enum dtype t, int positions)
{
    const int64_t vocab = 5;
    struct twin_case c;
    case_start(&c, OP_EMBED, "embed over %lld x %lld %s%s", (long long)rows, (long long)dim, dtype_name(t),
               positions ? " with positions" : "");
    set_embed(&c, rows, dim, vocab, t, 0);
    c.attrs.embed.over = 1;
    case_arg(&c, array_random(rows * dim, t, 1.0), rows * dim, t, INOUT);
    case_arg(&c, array_random(vocab * dim, t, 1.0), vocab * dim, t, IN);
    case_arg(&c, array_indices(rows, -1, 7), rows, I32, IN); /* -1: no row; 5: outside the table */
    if (positions) {
        case_arg(&c, array_random(11 * dim, t, 1.0), 11 * dim, t, IN);
        case_arg(&c, array_indices(rows, 0, 11), rows, I32, IN);
    } else {
        case_absent(&c);
        case_absent(&c);
    }
    case_run(&c);
    arrays_free();
}

static void check_picked(enum op_kind op, int64_t rows, int64_t n, enum dtype t)
{
    const int64_t y_ld = 3 * n + 2, x_ld = n + 1;
    const int taken = op == OP_TAKE_COLUMNS;
    struct twin_case c;
    case_start(&c, op, "%s %lld x %lld %s", op_name(op), (long long)rows, (long long)n, dtype_name(t));
    c.attrs.picked.rows = rows;
    c.attrs.picked.n = n;
    c.attrs.picked.y_ld = y_ld;
    c.attrs.picked.x_ld = x_ld;
    c.attrs.picked.dtype = t;
    int32_t *index = array_indices(n, 0, 1);
    for (int64_t j = 0; j < n; j++)
        index[j] = (int32_t)((7 * j + 1) % (3 * n + 1)); /* 7 and 3 n + 1 have no common factor for the n below */
    if (taken)
        case_arg(&c, array_random(rows * x_ld, t, 1.0), rows * x_ld, t, INOUT); /* nobody writes the column behind x */
    case_arg(&c, array_random(rows * y_ld, t, 1.0), rows * y_ld, t, INOUT);
    if (!taken)
        case_arg(&c, array_random(rows * x_ld, t, 1.0), rows * x_ld, t, IN);
    case_arg(&c, index, n, I32, IN);
    case_run(&c);
    arrays_free();
}

static void check_placed(int64_t rows, int64_t dim, int64_t vocab, enum dtype t)
{
    struct twin_case c;
    case_start(&c, OP_SCATTER, "scatter %lld x %lld into %lld, %s", (long long)rows, (long long)dim, (long long)vocab,
               dtype_name(t));
    set_embed(&c, rows, dim, vocab, t, 0);
    int32_t *index = array_indices(rows, 0, 1);
    for (int64_t i = 0; i < rows; i++) /* no two indices are equal; some are outside the vocabulary */
        index[i] = i % 5 == 3 ? -1 : (int32_t)((i * 3 + 1) % (vocab + 1));
    case_arg(&c, array_random(vocab * dim, t, 1.0), vocab * dim, t, INOUT);
    case_arg(&c, array_random(rows * dim, t, 1.0), rows * dim, t, IN);
    case_arg(&c, index, rows, I32, IN);
    case_run(&c);
    arrays_free();
}

/* hot: eighths of the rows that have the same token, which makes long runs of equal tokens. */
static void check_scatter(int64_t rows, int64_t dim, int64_t vocab, enum dtype t, int accumulate, int hot, float scale,
                          int by_columns)
{
    struct twin_case c;
    case_start(&c, OP_EMBED_GRAD, "embed_grad %lld x %lld into %lld, %s, accumulate %d, hot %d%s", (long long)rows,
               (long long)dim, (long long)vocab, dtype_name(t), accumulate, hot, by_columns ? ", by columns" : "");
    set_embed(&c, rows, dim, vocab, t, accumulate);
    c.attrs.embed.by_columns = by_columns;
    c.attrs.embed.scale = scale;
    int32_t *index = array_indices(rows, -1, (int32_t)vocab + 2);
    for (int64_t i = 0; i < rows; i++)
        if (i * 5 % 8 < hot)
            index[i] = (int32_t)(vocab / 2);
    case_arg(&c, array_random(vocab * dim, F32, 1.0), vocab * dim, F32, accumulate ? INOUT : OUT);
    case_arg(&c, array_random(rows * dim, t, 1.0), rows * dim, t, IN);
    case_arg(&c, index, rows, I32, IN);
    case_run(&c);
    arrays_free();
}

void test_embedding(void)
{
    static const int64_t shapes[][2] = {{1, 1}, {3, 7}, {9, 8}, {5, 64}, {70, 24}, {17, 2049}, {2, 2056}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int t = F32; t <= BF16; t++)
            check_lookup(shapes[s][0], shapes[s][1], (enum dtype)t, s % 2 == 0, s % 4 == 1 ? 12.0f : 0.0f, 0);
    static const int64_t picked[][2] = {{1, 1}, {3, 7}, {40, 300}, {2, 1030}};
    for (size_t s = 0; s < sizeof picked / sizeof *picked; s++)
        for (int t = F32; t <= BF16; t++) {
            check_over(picked[s][0] * 3, picked[s][1], (enum dtype)t, s % 2 == 1);
            check_picked(OP_PUT_COLUMNS, picked[s][0], picked[s][1], (enum dtype)t);
            check_picked(OP_TAKE_COLUMNS, picked[s][0], picked[s][1], (enum dtype)t);
        }
    for (int t = F32; t <= BF16; t++) { /* (3 i + 1) mod (vocab + 1) differs for each row */
        check_placed(1, 8, 4, (enum dtype)t);
        check_placed(31, 24, 39, (enum dtype)t);
        check_placed(8, 7, 9, (enum dtype)t);
    }
    /* in the simulator the kernel groups 1024 rows at a time, into two or more bins of up to 512 tokens; its blocks have 256
     * threads of 8 or 4 columns */
    check_scatter(1, 1, 1, F32, 0, 0, 0.0f, 0);
    check_scatter(1, 8, 63, BF16, 1, 0, 0.0f, 0);
    check_scatter(31, 16, 64, BF16, 0, 2, 1.3f, 0);
    check_scatter(1023, 8, 65, BF16, 1, 0, 0.0f, 0);
    check_scatter(1024, 8, 129, BF16, 0, 3, 0.0f, 0);
    check_scatter(1025, 12, 64, F32, 1, 8, 1.3f, 0);
    check_scatter(2600, 8, 40, BF16, 0, 4, 0.0f, 0);
    check_scatter(2049, 5, 200, F32, 1, 1, 0.0f, 0);
    check_scatter(40, 2056, 70, BF16, 1, 2, 0.0f, 0);
    check_scatter(700, 8, 1100, BF16, 1, 1, 1.3f, 0);
    check_scatter(40, 515, 70, F32, 0, 2, 0.0f, 0);
    for (int t = F32; t <= BF16; t++) {
        check_lookup(5, 64, (enum dtype)t, 0, 0.0f, 1);
        check_lookup(9, 3, (enum dtype)t, 0, 1.3f, 1);
        check_scatter(300, 16, 40, (enum dtype)t, t == BF16, 3, 0.0f, 1);
        check_scatter(70, 3, 9, (enum dtype)t, 0, 0, 1.3f, 1);
    }
}
