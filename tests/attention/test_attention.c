/* Tests attention against its definition in fp64, with many masks, shapes, dtypes, numbers of threads and addresses. */
#include "harness.h"

#include "ops/ops.h"

#include <omp.h>

/* Tolerances of relative L2 errors. fp32: measured at most 6e-7 for o and 1.1e-6 for gradients at these sizes (from rounding sums
 * of up to 700 terms, and rounding lse, about 1e-7 of p per unit of lse). bf16: the oracle uses the same inputs, and gradients
 * are fp32 as before; only o is rounded to 8 bits, with a uniform error within half a unit: between 2^-9 / sqrt(3) and 2^-8 /
 * sqrt(3) of o. */
#define TOLERANCE_O 1e-6
#define TOLERANCE_O_BF16 2.3e-3
#define TOLERANCE_LSE 1e-6
#define TOLERANCE_GRAD 2e-6
/* Tolerances with P and dS rounded to bf16 (8 bits): each term of a sum has an error of 2^-9 / sqrt(3) on average, 1.1e-3 of
 * itself; sums whose terms cancel have more.
 *
 * Measured: at most 3.3e-3 of o, which is rounded once more and may come from a single key (2^-8 at worst, twice), and 2.8e-3 of
 * gradients. */
#define TOLERANCE_O_ROUNDED 4e-3
#define TOLERANCE_GRAD_ROUNDED 3e-3

static struct kernels implementation[4];
static int implementations;

/* Returns the first implementation to test: with sanitizers, which spend most of their time in the portable kernels, these are
 * tested with every third shape only. */
static int first_implementation(void)
{
    static int shapes;
    return SANITIZED && implementations > 1 && shapes++ % 3 ? 1 : 0;
}

/* Tells whether a shape is left out whose numbers of rows other shapes have: sanitizers try one in three. */
static int is_left_out(void)
{
    static int shapes;
    return SANITIZED && shapes++ % 3;
}

static int takes(const struct kernels *k, enum dtype t)
{
    return t == BF16 || !k->bf16_only;
}

static double o_tolerance(const struct kernels *k, enum dtype t, double grow)
{
    if (t == F32)
        return TOLERANCE_O * grow;
    return k->bf16_only ? TOLERANCE_O_ROUNDED : TOLERANCE_O_BF16;
}

static double gradient_tolerance(const struct kernels *k, double grow)
{
    return k->bf16_only ? TOLERANCE_GRAD_ROUNDED : TOLERANCE_GRAD * grow;
}

/* Checks that the call with o in fp32 agrees with the same call with o in bf16. */
static void check_o_in_fp32(const struct kernels *k, const struct call *rounded, const struct problem *p)
{
    struct problem other = *p;
    other.attrs.attn.o_fp32 = 1;
    struct call c = forward_call(&other, k, 4);
    call_run(&c, k->forward, &other);
    check_unrounded(&c, rounded, p);
    call_free(&c);
}

static void check_shape(const struct shape *s)
{
    struct problem p = problem_make(s);
    const int first = first_implementation();
    const double grow = s->gain > 4 ? s->gain : 1; /* rounding errors of exponents grow with the scores */
    for (int i = first; i < implementations; i++) {
        const struct kernels *k = &implementation[i];
        if (!takes(k, s->dtype))
            continue;
        struct call c = forward_call(&p, k, 4);
        call_run(&c, k->forward, &p);
        check_error("o", k->name, s, error_of(c.b[0].data, s->dtype, p.x.o, p.no), o_tolerance(k, s->dtype, grow));
        check_error("lse", k->name, s, error_of(c.b[1].data, F32, p.x.lse, p.nl), TOLERANCE_LSE);
        if (s->dtype == BF16)
            check_o_in_fp32(k, &c, &p);
        call_free(&c);
    }
    round_oracle(&p);
    oracle_backward(&p.attrs, &p.x);
    for (int i = first; i < implementations; i++) {
        const struct kernels *k = &implementation[i];
        if (!takes(k, s->dtype))
            continue;
        struct call c = backward_call(&p, k, 8);
        call_run(&c, k->backward, &p);
        check_error("dq", k->name, s, error_above(p.x.dq_terms, c.b[0].data, F32, p.x.dq, p.nq), gradient_tolerance(k, grow));
        check_error("dk", k->name, s, error_above(p.x.dk_terms, c.b[1].data, F32, p.x.dk, p.nk), gradient_tolerance(k, grow));
        check_error("dv", k->name, s, error_of(c.b[2].data, F32, p.x.dv, p.nv), gradient_tolerance(k, grow));
        call_free(&c);
    }
    problem_free(&p);
}

/* Numbers of rows next to the edges of tiles of 4, 8, 24, 32, 48, 64, 192 and 288 rows, and several such tiles. */
static const int64_t sizes[] = {1,  2,  3,  4,  5,   7,   8,   9,   23,  24,  25,  31,  33,  47, 48,
                                49, 63, 64, 65, 191, 192, 193, 287, 288, 289, 383, 384, 385, 577};

static void sizes_causal(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int t = F32; t <= BF16; t++)
            check_shape(&(struct shape){sizes[i], sizes[i], 0, 0, 2, 1, 32, CAUSAL, (enum dtype)t, 1});
}

static void sizes_full_rectangular(void **state)
{
    (void)state;
    const int64_t few[] = {1, 5, 24, 191, 193, 400};
    for (size_t i = 0; i < sizeof few / sizeof *few; i++)
        for (size_t j = 0; j < sizeof few / sizeof *few; j++)
            for (int t = F32; t <= BF16; t++)
                check_shape(&(struct shape){few[i], few[j], 0, 0, 1, 1, 40, FULL, (enum dtype)t, 1});
}

static void head_dims(void **state)
{
    (void)state;
    for (int32_t d = 32; d <= 256; d += d < 128 ? 8 : 64)
        for (int t = d % 16 ? BF16 : F32; t <= BF16 && !is_left_out(); t++)
            check_shape(&(struct shape){211, 211, 0, 0, 2, 2, d, CAUSAL, (enum dtype)t, 1});
    for (int t = F32; t <= BF16; t++)
        check_shape(&(struct shape){211, 211, 0, 0, 2, 1, 512, WINDOW, (enum dtype)t, 1});
}

/* Kernels as programs call them, which choose an implementation by the sizes. */
static op_kernel *picked[OP_COUNT];

static void picked_forward(const struct op_attrs *attrs, void *const *arg, const struct cpu_stream *stream)
{
    picked[OP_ATTN_FWD](attrs, arg, (void *)(uintptr_t)stream);
}

static void picked_backward(const struct op_attrs *attrs, void *const *arg, const struct cpu_stream *stream)
{
    picked[OP_ATTN_BWD](attrs, arg, (void *)(uintptr_t)stream);
}

/* Head sizes that no vector divides are right, as in models with 3200 dimensions and 32 heads. */
static void head_dims_of_any_size(void **state)
{
    static const int32_t dims[][2] = {{1, 0},  {2, 0},   {6, 0},   {10, 0},  {14, 0}, {20, 0},
                                      {36, 0}, {100, 0}, {511, 0}, {64, 36}, {36, 64}};
    (void)state;
    const struct kernels first = implementation[0];
    const int all = implementations;
    attention_cpu_kernels(picked);
    implementation[0] = (struct kernels){"picked", picked_forward, picked_backward, attention_workspace_bytes, 0};
    implementations = 1;
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (int t = F32; t <= BF16; t++)
            check_shape(&(struct shape){101, 101, 0, 0, 2, 1, dims[i][0], CAUSAL, (enum dtype)t, 1, .w = dims[i][1]});
    implementation[0] = first;
    implementations = all;
}

/* Values may be narrower or wider than queries and keys, as in latent attention; also with a single query. */
static void value_widths(void **state)
{
    static const int32_t widths[][2] = {{192, 128}, {128, 192}, {64, 72}, {40, 32}, {32, 256}};
    (void)state;
    for (int i = 0; i < 5; i++)
        for (int t = F32; t <= BF16; t++) {
            struct shape s = {211, 211, 0, 0, 4, 2, widths[i][0], CAUSAL, (enum dtype)t, 1, .w = widths[i][1]};
            check_shape(&s);
            s.mask = EMPTY_ROWS;
            check_shape(&s);
            s.sq = 1, s.q0 = 210, s.mask = CAUSAL;
            check_shape(&s);
        }
}

/* Inputs and results of sinks. As in programs, they are merged after attention, and their gradient is computed separately from
 * attention's backward pass. */
struct sinks {
    double value[4], gradient[4];
    op_kernel *table[OP_COUNT];
    struct op_attrs attrs;
    struct step_record record;
};

static void sinks_start(struct sinks *x, struct problem *p, double spread)
{
    const struct op_attrs *a = &p->attrs;
    memset(x, 0, sizeof *x);
    assert_int_equal(ops_cpu_kernels(x->table), OK);
    x->attrs.sink.rows = a->attn.sq;
    x->attrs.sink.heads = x->attrs.sink.share = a->attn.hq;
    x->attrs.sink.head_dim = a->attn.head_dim;
    for (int h = 0; h < a->attn.hq; h++)
        x->value[h] = (float)(spread * (h - 1.3));
    p->x.sinks = x->value;
    p->x.dsinks = x->gradient;
}

static void check_sinks_forward(struct sinks *x, const struct shape *s, const struct problem *p, const struct kernels *k)
{
    float sinks[4];
    struct problem part = *p; /* o is in fp32 until the sink is merged */
    part.attrs.attn.o_fp32 = 1;
    struct call c = forward_call(&part, k, 4);
    call_run(&c, k->forward, &part);
    for (int h = 0; h < p->attrs.attn.hq; h++)
        sinks[h] = (float)x->value[h];
    assert_int_equal(x->table[OP_ATTN_SINK](&x->attrs, (void *[]){c.b[0].data, c.b[1].data, sinks, &x->record}, NULL), OK);
    check_error("o with sinks", k->name, s, error_of(c.b[0].data, F32, p->x.o, p->nq),
                k->bf16_only ? TOLERANCE_O_ROUNDED : 1.5 * TOLERANCE_O);
    check_error("lse with sinks", k->name, s, error_of(c.b[1].data, F32, p->x.lse, p->nl), TOLERANCE_LSE);
    call_free(&c);
}

static void check_sinks_backward(struct sinks *x, const struct shape *s, const struct problem *p, const struct kernels *k)
{
    float sinks[4], gradient[4] = {0};
    struct call c = backward_call(p, k, 8);
    call_run(&c, k->backward, p);
    for (int h = 0; h < p->attrs.attn.hq; h++)
        sinks[h] = (float)x->value[h];
    void *arg[] = {gradient, sinks, c.b[7].data, c.b[6].data, &x->record};
    assert_int_equal(x->table[OP_ATTN_SINK_GRAD](&x->attrs, arg, NULL), OK);
    check_error("dq", k->name, s, error_above(p->x.dq_terms, c.b[0].data, F32, p->x.dq, p->nq), gradient_tolerance(k, 1));
    check_error("dk", k->name, s, error_above(p->x.dk_terms, c.b[1].data, F32, p->x.dk, p->nk), gradient_tolerance(k, 1));
    check_error("dv", k->name, s, error_of(c.b[2].data, F32, p->x.dv, p->nk), gradient_tolerance(k, 1));
    check_error("dsinks", k->name, s, error_of(gradient, F32, p->x.dsinks, p->attrs.attn.hq), TOLERANCE_GRAD);
    call_free(&c);
}

static void check_sinks(const struct shape *s, double spread)
{
    struct problem p = problem_make(s);
    struct sinks x;
    sinks_start(&x, &p, spread);
    oracle_forward(&p.attrs, &p.x);
    for (int i = 0; i < implementations; i++)
        if (takes(&implementation[i], s->dtype))
            check_sinks_forward(&x, s, &p, &implementation[i]);
    round_oracle(&p);
    oracle_backward(&p.attrs, &p.x);
    for (int i = 0; i < implementations; i++)
        if (takes(&implementation[i], s->dtype))
            check_sinks_backward(&x, s, &p, &implementation[i]);
    problem_free(&p);
}

/* Sinks are right with soft caps, windows and documents; sinks lie among the scores, far above or far below. */
static void sinks(void **state)
{
    (void)state;
    for (int cap = 0; cap <= 4; cap += 4)
        for (int m = CAUSAL; m <= EMPTY_ROWS; m++)
            for (int t = F32; t <= BF16 && !is_left_out(); t++)
                check_sinks(&(struct shape){230, 230, 0, 0, 4, 2, 32, (enum mask_kind)m, (enum dtype)t, 3, (float)cap},
                            m == WINDOW ? 12 : 2);
}

/* Soft caps below, at and above the scores' size are right under every mask. */
static void soft_caps(void **state)
{
    (void)state;
    static const float caps[] = {0.5f, 4, 50};
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++)
        for (int m = FULL; m <= EMPTY_ALL; m++)
            for (int t = F32; t <= BF16 && !is_left_out(); t++)
                check_shape(&(struct shape){300, 300, 0, 0, 2, 1, 40, (enum mask_kind)m, (enum dtype)t, 3, caps[i]});
    check_shape(&(struct shape){700, 700, 0, 0, 1, 1, 256, CAUSAL, F32, 30, 50});
    check_shape(&(struct shape){700, 700, 0, 0, 1, 1, 256, CAUSAL, BF16, 30, 50});
}

static void grouped_heads(void **state)
{
    (void)state;
    const int32_t heads[][2] = {{1, 1}, {3, 3}, {4, 1}, {8, 2}, {7, 1}, {14, 2}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        for (int t = F32; t <= BF16; t++)
            check_shape(&(struct shape){220, 220, 0, 0, heads[i][0], heads[i][1], 32, CAUSAL, (enum dtype)t, 1});
}

/* Chunks of queries attend blocks of keys that lie before, across and behind the diagonal. */
static void offsets(void **state)
{
    (void)state;
    const int64_t at[][4] = {{100, 300, 200, 0}, {300, 100, 0, 200},    {64, 64, 0, 64},
                             {64, 64, 63, 126},  {200, 256, 1000, 800}, {193, 200, 3000000, 2999900},
                             {1, 500, 499, 0},   {500, 1, 0, 250},      {256, 192, 300, 430}};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        for (int m = FULL; m <= EMPTY_ALL; m++)
            for (int t = F32; t <= BF16 && (m != DOCUMENTS || at[i][2] < 2000) && !is_left_out(); t++)
                check_shape(
                    &(struct shape){at[i][0], at[i][1], at[i][2], at[i][3], 2, 1, 32, (enum mask_kind)m, (enum dtype)t, 1});
}

static void masks(void **state)
{
    (void)state;
    const int64_t n[] = {40, 300, 650};
    for (size_t i = 0; i < sizeof n / sizeof *n - SANITIZED; i++)
        for (int m = FULL; m <= EMPTY_ALL; m++)
            for (int t = F32; t <= BF16 && !is_left_out(); t++)
                check_shape(&(struct shape){n[i], n[i], 0, 0, 4, 2, 40, (enum mask_kind)m, (enum dtype)t, 1});
}

/* With more query rows than the backward pass takes at a time, later segments add to dk and dv. */
static void many_queries(void **state)
{
    (void)state;
    check_shape(&(struct shape){65536 + 301, 437, 0, 65400, 2, 1, 32, CAUSAL, F32, 1});
    check_shape(&(struct shape){65536 + 1, 300, 0, 65250, 2, 1, 32, WINDOW, BF16, 1});
}

/* More keys are right than the forward pass packs at a time for two heads. */
static void many_keys(void **state)
{
    (void)state;
    check_shape(&(struct shape){33, 4100, 4067, 0, 2, 2, 32, CAUSAL, BF16, 1});
}

static void large_scores(void **state)
{
    (void)state;
    check_shape(&(struct shape){400, 400, 0, 0, 1, 1, 64, CAUSAL, F32, 30});
    check_shape(&(struct shape){400, 400, 0, 0, 1, 1, 64, FULL, F32, 1000});
    check_shape(&(struct shape){400, 400, 0, 0, 1, 1, 64, WINDOW, BF16, 300});
}

/* Scores may keep growing along the keys, so that every running maximum is too small. */
static void growing_scores_in(enum dtype t)
{
    struct shape s = {64, 1000, 0, 0, 1, 1, 32, FULL, t, 1};
    struct problem p = problem_make(&s);
    for (int64_t i = 0; i < p.nq; i++)
        p.x.q[i] = fabs(p.x.q[i]);
    for (int64_t i = 0; i < p.nk; i++)
        p.x.k[i] = stored((double)(i / 32) * 0.05, t);
    oracle_forward(&p.attrs, &p.x);
    for (int i = 0; i < implementations; i++) {
        const struct kernels *k = &implementation[i];
        if (!takes(k, t))
            continue;
        struct call c = forward_call(&p, k, 0);
        call_run(&c, k->forward, &p);
        check_error("o", k->name, &s, error_of(c.b[0].data, t, p.x.o, p.nq),
                    t == F32 ? 4e-5 /* scores reach 280 and are rounded */ : o_tolerance(k, t, 1));
        check_error("lse", k->name, &s, error_of(c.b[1].data, F32, p.x.lse, p.nl), TOLERANCE_LSE);
        call_free(&c);
    }
    problem_free(&p);
}

static void growing_scores(void **state)
{
    (void)state;
    growing_scores_in(F32);
    growing_scores_in(BF16);
}

static void accumulates_in(enum dtype t)
{
    struct shape s = {300, 410, 200, 90, 4, 2, 48, CAUSAL, t, 1};
    struct problem p = problem_make(&s);
    p.attrs.attn.accumulate = 1;
    round_oracle(&p);
    oracle_backward(&p.attrs, &p.x);
    for (int64_t i = 0; i < p.nk; i++)
        p.x.dk[i] = 1 + 2 * p.x.dk[i], p.x.dv[i] = 1 + 2 * p.x.dv[i];
    for (int i = 0; i < implementations; i++) {
        const struct kernels *k = &implementation[i];
        if (!takes(k, t))
            continue;
        struct call c = backward_call(&p, k, 0);
        call_run(&c, k->backward, &p);
        call_run(&c, k->backward, &p);
        check_error("dq", k->name, &s, error_of(c.b[0].data, F32, p.x.dq, p.nq), gradient_tolerance(k, 1));
        check_error("dk", k->name, &s, error_of(c.b[1].data, F32, p.x.dk, p.nk), gradient_tolerance(k, 1));
        check_error("dv", k->name, &s, error_of(c.b[2].data, F32, p.x.dv, p.nk), gradient_tolerance(k, 1));
        call_free(&c);
    }
    problem_free(&p);
}

static void accumulates(void **state)
{
    (void)state;
    accumulates_in(F32);
    accumulates_in(BF16);
}

/* Runs a call with several numbers of threads and addresses; every run must give the first run's bits. The calling thread's own
 * number of threads differs, since scratch is sized for the call's threads. */
static void same_bits(struct problem *p, const struct kernels *k, int backward)
{
    const int before = omp_get_max_threads();
    struct call first = {0};
    omp_set_num_threads(8);
    for (int threads = 1; threads <= 4; threads += SANITIZED ? 3 : 1)
        for (int repeat = 0; repeat < 2 - SANITIZED; repeat++) {
            p->threads = threads;
            int offset = 4 * ((threads * 7 + repeat * 3) % 16);
            struct call c = backward ? backward_call(p, k, offset) : forward_call(p, k, offset);
            call_run(&c, backward ? k->backward : k->forward, p);
            for (int i = 0; i < c.outputs && first.n; i++)
                assert_memory_equal(c.b[i].data, first.b[i].data, c.b[i].bytes);
            if (first.n)
                call_free(&c);
            else
                first = c;
        }
    call_free(&first);
    omp_set_num_threads(before);
}

static void threads_and_addresses(void **state)
{
    (void)state;
    const struct shape shapes[] = {{1000, 1000, 0, 0, 4, 2, 32, CAUSAL, F32, 1},
                                   {700, 700, 0, 0, 3, 1, 64, DOCUMENTS, BF16, 1},
                                   {900, 900, 0, 0, 2, 2, 40, WINDOW, F32, 1},
                                   {400, 800, 100, 300, 7, 1, 32, FULL, F32, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct problem p = problem_make(&shapes[i]);
        round_oracle(&p);
        for (int j = first_implementation(); j < implementations; j++)
            for (int backward = 0; backward < 2 && takes(&implementation[j], shapes[i].dtype); backward++)
                same_bits(&p, &implementation[j], backward);
        problem_free(&p);
    }
}

static int is_untouched(const void *data, int64_t bytes)
{
    const unsigned char *x = data;
    int64_t i = 0;
    while (i < bytes && x[i] == 0xff)
        i++;
    return i == bytes;
}

/* Returns the word that the first task of a call writes: the log-sum-exp of head 0's last query, or dk of the first key. */
static atomic_int *first_result(struct call *c, int backward, int64_t sq)
{
    int32_t *word = (int32_t *)(void *)c->b[1].data + (backward ? 0 : sq - 1);
    *word = 0;
    return (atomic_int *)(void *)word;
}

/* Checks that a call which is stopped before it begins writes nothing. A call that is stopped at its first result ends with the
 * results of the tasks in progress: with a single thread these are the results of one task; with several threads, which wait for
 * each other's turns, those of any number of tasks. */
static void ends_early(const struct shape *s, struct problem *p, const struct kernels *k, int backward, int threads)
{
    const atomic_int now = 1;
    const int64_t row = s->d * s->hk * 4, last = 96;
    p->threads = threads;
    p->stop = &now;
    struct call c = backward ? backward_call(p, k, 0) : forward_call(p, k, 0);
    call_run(&c, backward ? k->backward : k->forward, p);
    for (int i = 0; i < c.outputs; i++)
        assert_true(is_untouched(c.b[i].data, c.b[i].bytes));
    p->stop = first_result(&c, backward, s->sq);
    call_run(&c, backward ? k->backward : k->forward, p);
    assert_int_not_equal(*p->stop, 0);
    if (threads == 1 && backward) /* one thread reaches neither the last keys' gradients nor the first queries' outputs */
        assert_true(is_untouched(c.b[1].data + (s->sk - last) * row, last * row));
    else if (threads == 1)
        assert_true(is_untouched(c.b[0].data, last * s->hq * s->d * dtype_size(s->dtype)));
    p->stop = NULL;
    call_free(&c);
}

static void calls_end_early(void **state)
{
    (void)state;
    const struct shape shapes[] = {{1700, 1700, 0, 0, 2, 1, 32, CAUSAL, F32, 1}, {1700, 1700, 0, 0, 2, 1, 32, CAUSAL, BF16, 1}};
    /* skipped with sanitizers, since the same word is a result and the flag that stops the call */
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && !SANITIZED; i++) {
        struct problem p = problem_make(&shapes[i]);
        round_oracle(&p);
        for (int j = first_implementation(); j < implementations; j++)
            for (int threads = 1; threads <= 3 && takes(&implementation[j], shapes[i].dtype); threads++) {
                ends_early(&shapes[i], &p, &implementation[j], 0, threads);
                ends_early(&shapes[i], &p, &implementation[j], 1, threads);
            }
        problem_free(&p);
    }
}

/* The oracle's own gradients agree with central differences of sum(go * o): error h^2 ~ 1e-10, rounding 1e-16 / h ~ 1e-11. */
static void check_oracle(const struct shape *s, struct problem *p)
{
    const double h = 1e-5;
    oracle_forward(&p->attrs, &p->x);
    oracle_backward(&p->attrs, &p->x);
    double *const input_of[] = {p->x.q, p->x.k, p->x.v, p->x.sinks}, *const grad[] = {p->x.dq, p->x.dk, p->x.dv, p->x.dsinks};
    for (int which = 0; which < 4; which++)
        for (int64_t i = 0; i < (int64_t[]){p->nq, p->nk, p->nk, s->hq}[which]; i++) {
            double keep = input_of[which][i], loss[2];
            for (int side = 0; side < 2; side++) {
                input_of[which][i] = keep + (side ? h : -h);
                oracle_forward(&p->attrs, &p->x);
                loss[side] = oracle_dot(p->x.go, p->x.o, p->nq);
            }
            input_of[which][i] = keep;
            assert_true(fabs((loss[1] - loss[0]) / (2 * h) - grad[which][i]) < 1e-8);
        }
}

/* The oracle's gradients are right with sinks, without a soft cap and with one of the scores' size. */
static void oracle_differences(void **state)
{
    (void)state;
    struct shape s = {9, 11, 2, 0, 2, 1, 8, WINDOW, F32, 1};
    struct problem p = problem_make(&s);
    struct sinks x;
    sinks_start(&x, &p, 1);
    check_oracle(&s, &p);
    p.attrs.attn.cap = 1;
    check_oracle(&s, &p);
    problem_free(&p);
}

/* A call without keys gives o = 0, lse = -inf and dq = 0, and changes no gradient. */
static void empty_call(void **state)
{
    (void)state;
    check_shape(&(struct shape){50, 60, 0, 1000, 2, 1, 32, CAUSAL, F32, 1});
    check_shape(&(struct shape){50, 60, 5000, 0, 2, 1, 32, WINDOW, BF16, 1});
}

/* A NaN in one query appears in that query's o and lse, and nowhere else. */
static void nan_is_shown_in(enum dtype t)
{
    const int64_t d = 32, bad = 70, row = d * dtype_size(t);
    struct shape s = {230, 230, 0, 0, 1, 1, (int32_t)d, CAUSAL, t, 1};
    struct problem p = problem_make(&s);
    for (int i = 0; i < implementations; i++) {
        if (!takes(&implementation[i], t))
            continue;
        struct call good = forward_call(&p, &implementation[i], 0), c;
        call_run(&good, implementation[i].forward, &p);
        c = forward_call(&p, &implementation[i], 0);
        memset(c.b[2].data + bad * row, 0xff, (size_t)dtype_size(t));
        call_run(&c, implementation[i].forward, &p);
        unsigned char *o = c.b[0].data;
        assert_true(isnan(((float *)(void *)c.b[1].data)[bad]));
        for (int64_t j = 0; j < d; j++)
            assert_true(
                isnan(t == F32 ? ((float *)(void *)(o + bad * row))[j] : bf16_to_float(((bf16 *)(void *)(o + bad * row))[j])));
        memcpy(o + bad * row, good.b[0].data + bad * row, (size_t)row);
        assert_memory_equal(o, good.b[0].data, 230 * row);
        call_free(&good);
        call_free(&c);
    }
    problem_free(&p);
}

static void nan_is_shown(void **state)
{
    (void)state;
    nan_is_shown_in(F32);
    nan_is_shown_in(BF16);
}

static void workspace_is_linear(void **state)
{
    (void)state;
    struct op_attrs a = {0};
    a.attn.hq = 32, a.attn.hk = 32, a.attn.head_dim = 128, a.attn.dtype = BF16;
    a.attn.sq = a.attn.sk = 1 << 20;
    for (int i = 0; i < implementations; i++)
        for (int kind = OP_ATTN_FWD; kind <= OP_ATTN_BWD; kind++) {
            const int64_t two = implementation[i].workspace((enum op_kind)kind, &a, 2);
            const int64_t many = implementation[i].workspace((enum op_kind)kind, &a, 64);
            assert_true(two < (int64_t)(1 << 20) * 128 * 4 * 4);
            assert_true(many - two < (int64_t)62 * (8 << 20)); /* the scratch memory of a thread does not grow with S */
        }
}

#ifdef __x86_64__
/* The AMX kernels compiled with amx_emulated.h. */
int64_t amx_emulated_workspace(enum op_kind kind, const struct op_attrs *attrs, int threads);
void amx_emulated_forward(const struct op_attrs *attrs, void *const *arg, const struct cpu_stream *stream);
void amx_emulated_backward(const struct op_attrs *attrs, void *const *arg, const struct cpu_stream *stream);
#endif

int main(void)
{
    for (enum isa isa = ISA_PORTABLE; isa <= isa_of_processor(); isa++) {
        const struct attention_kernels k = attention_kernels_for(isa);
        implementation[implementations++] = (struct kernels){isa_name(isa), k.forward, k.backward, k.workspace, 0};
    }
#ifdef __x86_64__
    if (isa_has_amx())
        implementation[implementations++] = (struct kernels){"amx", amx_forward, amx_backward, amx_workspace, 1};
    else if (isa_of_processor() == ISA_AVX512 && __builtin_cpu_supports("avx512bf16"))
        implementation[implementations++] =
            (struct kernels){"amx, emulated", amx_emulated_forward, amx_emulated_backward, amx_emulated_workspace, 1};
    else
        print_message("amx: not tried here: this processor has neither it nor AVX512-BF16, in which it is emulated\n");
#else
    print_message("amx: not tried here: it is for x86-64\n");
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle_differences),
        cmocka_unit_test(sizes_causal),
        cmocka_unit_test(sizes_full_rectangular),
        cmocka_unit_test(head_dims),
        cmocka_unit_test(head_dims_of_any_size),
        cmocka_unit_test(value_widths),
        cmocka_unit_test(soft_caps),
        cmocka_unit_test(sinks),
        cmocka_unit_test(grouped_heads),
        cmocka_unit_test(offsets),
        cmocka_unit_test(masks),
        cmocka_unit_test(many_queries),
        cmocka_unit_test(many_keys),
        cmocka_unit_test(large_scores),
        cmocka_unit_test(growing_scores),
        cmocka_unit_test(accumulates),
        cmocka_unit_test(threads_and_addresses),
        cmocka_unit_test(calls_end_early),
        cmocka_unit_test(empty_call),
        cmocka_unit_test(nan_is_shown),
        cmocka_unit_test(workspace_is_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
