/* Tests of OP_SCAN and OP_SCAN_GRAD: against the definition in fp64, itself against finite differences; documents, rows without a
 * token, calls on parts of the rows, all sets of instructions. */
#include "base/rng.h"
#include "device/cpu_stream.h"
#include "oracle.h"
#include "recurrence/heads.h"

#include <stdio.h>

enum { MOST_ROWS = 400 };

/* A scan's tensors. Gradients are in place: dqkv, dg and dbeta are copies of qkv, g and beta before the call. */
struct scan_case {
    struct op_attrs a;
    int adds; /* 1: dskip is added to */
    int32_t links[MOST_ROWS];
    struct tensor *qkv, *g, *beta, *before, *skip, *o, *after, *dqkv, *dg, *dbeta, *dstate, *dskip, *d_out;
};

struct shape {
    const char *name;
    int rows, heads, groups, key, value, kind, dtype;
    float eps;
    int begins[6]; /* rows at which documents begin, up to the first that is -1 */
    int none[4];   /* rows without a token, likewise */
    int enters, skips;
    float decay; /* mean of -g */
};

/* clang-format off */
static const struct shape shapes[] = {
    {"a document", 150, 3, 3, 8, 5, SCAN_DELTA, F32, 1e-6f, {0, -1}, {-1}, 0, 0, 0.7f},
    {"a document that goes on", 150, 4, 2, 8, 5, SCAN_DELTA, F32, 1e-6f, {-1}, {-1}, 1, 0, 0.7f},
    {"documents of a token, and of more than a chunk", 200, 4, 2, 8, 16, SCAN_DELTA, F32, 1e-6f, {20, 21, 22, 64, 163, -1}, {-1}, 1, 0, 0.7f},
    {"rows without a token", 140, 2, 1, 16, 8, SCAN_DELTA, F32, 1e-6f, {3, 66, -1}, {0, 5, 64, 139}, 1, 0, 0.3f},
    {"heads of 128", 200, 4, 2, 128, 128, SCAN_DELTA, F32, 1e-6f, {70, -1}, {-1}, 1, 0, 0.05f},
    {"strong decay", 130, 2, 2, 24, 40, SCAN_DELTA, F32, 1e-6f, {100, -1}, {-1}, 1, 0, 30.0f},
    {"a token", 1, 2, 2, 8, 8, SCAN_DELTA, F32, 1e-6f, {-1}, {-1}, 1, 0, 0.7f},
    {"nothing but rows without a token", 3, 2, 2, 8, 8, SCAN_DELTA, F32, 1e-6f, {-1}, {0, 1, 2, -1}, 1, 0, 0.7f},
    {"delta with a skip, no norm", 90, 2, 1, 4, 8, SCAN_DELTA, F32, 0, {33, -1}, {-1}, 1, 1, 0.7f},
    {"bf16", 150, 4, 2, 32, 16, SCAN_DELTA, BF16, 1e-6f, {0, 80, -1}, {20, -1}, 1, 0, 0.3f},
    {"Mamba-2", 150, 6, 2, 16, 12, SCAN_SSD, F32, 0, {-1}, {-1}, 1, 1, 0.3f},
    {"Mamba-2, documents", 200, 6, 1, 24, 40, SCAN_SSD, F32, 0, {20, 21, 64, 130, -1}, {7, 199, -1}, 1, 1, 0.3f},
    {"Mamba-2, no skip", 70, 2, 2, 8, 8, SCAN_SSD, F32, 0, {0, -1}, {-1}, 0, 0, 0.3f},
    {"channels", 150, 3, 3, 8, 5, SCAN_CHANNELS, F32, 1e-6f, {0, -1}, {-1}, 0, 0, 0.7f},
    {"channels, documents", 200, 4, 2, 24, 16, SCAN_CHANNELS, F32, 1e-6f, {20, 21, 22, 64, 163, -1}, {5, 139, -1}, 1, 0, 0.3f},
    {"channels of 128", 100, 1, 1, 128, 128, SCAN_CHANNELS, F32, 1e-6f, {70, -1}, {-1}, 1, 0, 0.05f},
    {"channels, strong decay", 130, 2, 2, 24, 40, SCAN_CHANNELS, F32, 1e-6f, {100, -1}, {-1}, 1, 0, 30.0f},
    {"channels, a token", 1, 2, 2, 8, 8, SCAN_CHANNELS, F32, 1e-6f, {-1}, {-1}, 1, 0, 0.7f},
    {"channels, half a chunk and a row", 33, 2, 1, 8, 8, SCAN_CHANNELS, F32, 0, {-1}, {0, 32, -1}, 1, 1, 0.7f},
    {"channels, bf16", 150, 4, 2, 32, 16, SCAN_CHANNELS, BF16, 1e-6f, {0, 80, -1}, {20, -1}, 1, 0, 0.3f},
    {"Mamba-2, bf16", 100, 4, 1, 16, 16, SCAN_SSD, BF16, 0, {0, 40, -1}, {-1}, 1, 1, 0.3f},
};
/* clang-format on */
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Returns the numbers of g of a token and head. */
static int64_t decays_of(int kind, int key_dim)
{
    return kind == SCAN_CHANNELS ? key_dim : 1;
}

static void case_of(const struct shape *s, struct scan_case *c)
{
    const int heads = s->heads, columns = 2 * s->groups * s->key + heads * s->value, is_ssd = s->kind == SCAN_SSD;
    memset(c, 0, sizeof *c);
    c->a.scan.rows = s->rows;
    c->a.scan.kind = s->kind;
    c->a.scan.heads = heads;
    c->a.scan.groups = s->groups;
    c->a.scan.key_dim = s->key;
    c->a.scan.value_dim = s->value;
    c->a.scan.v_first = is_ssd ? 1 : 2 * s->groups * s->key;
    c->a.scan.k_first = is_ssd ? 1 + heads * s->value : s->groups * s->key;
    c->a.scan.q_first = is_ssd ? 1 + heads * s->value + s->groups * s->key : 0;
    c->a.scan.ld = columns + (is_ssd ? 3 : 0);
    c->a.scan.dtype = s->dtype;
    c->a.scan.scale = s->eps > 0 ? 1 / sqrtf((float)s->key) : 1;
    c->a.scan.eps = s->eps;
    for (int i = 0; i < s->rows; i++)
        c->links[i] = ROW_FOLLOWS;
    for (int i = 0; i < 6 && s->begins[i] >= 0 && (i == 0 || s->begins[i] > 0); i++)
        c->links[s->begins[i]] = ROW_BEGINS;
    for (int i = 0; i < 4 && s->none[i] >= 0 && (i == 0 || s->none[i] > 0); i++)
        c->links[s->none[i]] = ROW_NONE;
    const int64_t of_rows = s->rows * (int64_t)heads, decays = of_rows * decays_of(s->kind, s->key),
                  state = heads * (int64_t)s->key * s->value;
    c->qkv = tensor_random(s->rows * (int64_t)c->a.scan.ld, (enum dtype)s->dtype, s->eps > 0 ? 1 : 0.3);
    c->g = tensor_random(decays, F32, 1);
    c->beta = tensor_random(of_rows, F32, 1);
    for (int64_t i = 0; i < decays; i++)
        tensor_set(c->g, i, (double)-s->decay * fabs(c->g->val[i]));
    for (int64_t i = 0; i < of_rows; i++)
        tensor_set(c->beta, i, 1 / (1 + exp(-c->beta->val[i])));
    c->before = s->enters ? tensor_random(state, F32, 0.5) : NULL;
    c->skip = s->skips ? tensor_random(heads, (enum dtype)s->dtype, 1) : NULL;
    c->o = tensor_new(of_rows * s->value, (enum dtype)s->dtype);
    c->after = tensor_new(state, F32);
    c->d_out = tensor_random(of_rows * s->value, (enum dtype)s->dtype, 1);
    c->dstate = tensor_random(state, F32, 1);
    c->dskip = s->skips ? tensor_new(heads, F32) : NULL;
}

static double *doubles(int64_t n)
{
    struct tensor *t = tensor_new(n, F64);
    memset(t->store, 0, (size_t)n * sizeof(double));
    return t->store;
}

static struct oracle oracle_of(const struct scan_case *c)
{
    struct oracle x = {.a = c->a,
                       .links = c->links,
                       .qkv = c->qkv->val,
                       .g = c->g->val,
                       .beta = c->beta->val,
                       .before = c->before ? c->before->val : NULL,
                       .skip = c->skip ? c->skip->val : NULL,
                       .d_out = c->d_out->val};
    x.o = doubles(c->o->n);
    x.after = doubles(c->after->n);
    x.dstate = doubles(c->dstate->n);
    memcpy(x.dstate, c->dstate->val, (size_t)c->dstate->n * sizeof *x.dstate);
    x.dqkv = doubles(c->qkv->n);
    x.dg = doubles(c->g->n);
    x.dbeta = doubles(c->beta->n);
    x.dskip = doubles(c->a.scan.heads);
    return x;
}

static void *store_of(struct tensor *t)
{
    return t ? t->store : NULL;
}

/* Element i of a tensor's memory. */
static void *element(struct tensor *t, int64_t i)
{
    return t ? (char *)t->store + i * dtype_size(t->dtype) : NULL;
}

static void *work_of(int64_t bytes)
{
    return tensor_new(bytes / 4 + 1, F32)->store; /* NaN */
}

/* Runs rows [first, first + n) with a given set of instructions; before and after: states or NULL. */
static void run_forward(struct scan_case *c, enum isa isa, int threads, int64_t first, int64_t n, void *before, void *after)
{
    struct op_attrs a = c->a;
    const int64_t h = a.scan.heads;
    a.scan.rows = n;
    void *arg[] = {element(c->o, first * h * a.scan.value_dim),
                   after,
                   element(c->qkv, first * a.scan.ld),
                   element(c->g, first * h * decays_of(a.scan.kind, a.scan.key_dim)),
                   element(c->beta, first * h),
                   c->links + first,
                   before,
                   store_of(c->skip),
                   work_of(recurrence_workspace_bytes(OP_SCAN, &a, threads))};
    scan_run(gemm_tile_for(isa), &a, arg, &(struct cpu_stream){.threads = threads});
    tensor_load(c->o);
    tensor_load(c->after);
}

static void start_gradients(struct scan_case *c)
{
    c->dqkv = tensor_copy(c->qkv);
    c->dg = tensor_copy(c->g);
    c->dbeta = tensor_copy(c->beta);
}

static void run_backward(struct scan_case *c, enum isa isa, int threads, int64_t first, int64_t n, void *before, void *dstate)
{
    struct op_attrs a = c->a;
    const int64_t h = a.scan.heads;
    a.scan.rows = n;
    a.scan.accumulate = c->adds || first + n < c->a.scan.rows;
    void *arg[] = {element(c->dqkv, first * a.scan.ld),
                   element(c->dg, first * h * decays_of(a.scan.kind, a.scan.key_dim)),
                   element(c->dbeta, first * h),
                   dstate,
                   store_of(c->dskip),
                   element(c->d_out, first * h * a.scan.value_dim),
                   c->links + first,
                   before,
                   store_of(c->skip),
                   work_of(recurrence_workspace_bytes(OP_SCAN_GRAD, &a, threads))};
    scan_grad_run(gemm_tile_for(isa), &a, arg, &(struct cpu_stream){.threads = threads});
    struct tensor *results[] = {c->dqkv, c->dg, c->dbeta, c->dstate};
    for (int i = 0; i < 4; i++)
        tensor_load(results[i]);
    if (c->dskip)
        tensor_load(c->dskip);
}

static void check(const char *name, const char *what, const double *got, const double *want, int64_t n, double limit)
{
    char text[160];
    double scale = 0;
    snprintf(text, sizeof text, "%s: %s", name, what);
    for (int64_t i = 0; i < n; i++)
        scale = fmax(scale, fabs(want[i]));
    if (scale > 0)
        check_error(text, got, want, n, limit);
    for (int64_t i = 0; i < n && scale == 0; i++)
        assert_true(got[i] == 0);
}

/* Compares the columns of q, k and v; the others must be as they were. */
static void check_qkv(const struct scan_case *c, const char *name, const double *want, double limit)
{
    const int64_t ld = c->a.scan.ld, k = c->a.scan.groups * c->a.scan.key_dim, v = c->a.scan.heads * c->a.scan.value_dim;
    const int64_t first[] = {c->a.scan.q_first, c->a.scan.k_first, c->a.scan.v_first}, wide[] = {k, k, v};
    static const char *const names[] = {"dq", "dk", "dv"};
    double *a = doubles(c->qkv->n), *b = doubles(c->qkv->n);
    for (int part = 0; part < 3; part++) {
        int64_t n = 0;
        for (int64_t i = 0; i < c->a.scan.rows; i++)
            for (int64_t j = 0; j < wide[part]; j++, n++) {
                a[n] = c->dqkv->val[i * ld + first[part] + j];
                b[n] = want[i * ld + first[part] + j];
            }
        check(name, names[part], a, b, n, limit);
    }
    for (int64_t i = 0; i < c->a.scan.rows && c->a.scan.kind == SCAN_SSD; i++)
        assert_true(c->dqkv->val[i * ld] == c->qkv->val[i * ld] && c->dqkv->val[i * ld + ld - 1] == c->qkv->val[i * ld + ld - 1]);
}

static void check_backward(const struct scan_case *c, const char *name, const struct oracle *want, double limit, double stored)
{
    check_qkv(c, name, want->dqkv, stored);
    check(name, "dg", c->dg->val, want->dg, c->dg->n, limit);
    check(name, "dbeta", c->dbeta->val, want->dbeta, c->dbeta->n, limit);
    check(name, "gradient of the state before", c->dstate->val, want->dstate, c->dstate->n, limit);
    if (c->dskip)
        check(name, "dskip", c->dskip->val, want->dskip, c->dskip->n, limit);
}

static void scans_are_as_defined(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        for (enum isa isa = ISA_PORTABLE; isa <= isa_of_processor(); isa++) {
            const double limit = 2e-6, stored = shapes[i].dtype == BF16 ? TOL_BF16 : limit;
            struct scan_case c;
            case_of(&shapes[i], &c);
            struct oracle x = oracle_of(&c);
            run_forward(&c, isa, 2, 0, c.a.scan.rows, store_of(c.before), c.after->store);
            oracle_scan(&x);
            check(shapes[i].name, "o", c.o->val, x.o, c.o->n, stored);
            check(shapes[i].name, "state", c.after->val, x.after, c.after->n, limit);
            oracle_scan_grad(&x);
            start_gradients(&c);
            c.adds = 1;
            for (int h = 0; h < (c.dskip ? shapes[i].heads : 0); h++) {
                tensor_set(c.dskip, h, 10);
                x.dskip[h] += 10;
            }
            run_backward(&c, isa, 2, 0, c.a.scan.rows, store_of(c.before), c.dstate->store);
            check_backward(&c, shapes[i].name, &x, 4 * limit, stored == limit ? 4 * limit : stored);
            tensors_free(NULL);
        }
}

static void sums_give_equal_bits(struct scan_case *c)
{
    struct op_case run;
    case_start(&run, OP_SCAN_SUM);
    run.attrs = c->a;
    case_tensor(&run, tensor_new(c->a.scan.heads * (int64_t)c->a.scan.key_dim * c->a.scan.key_dim, F32), OUT);
    case_tensor(&run, tensor_copy(c->after), OUT);
    case_tensor(&run, c->qkv, IN);
    case_tensor(&run, c->g, IN);
    case_tensor(&run, c->beta, IN);
    case_bytes(&run, c->links, c->a.scan.rows * 4, 4, IN);
    case_work(&run);
    case_run(&run);
    case_start(&run, OP_SCAN_GRAD_SUM);
    run.attrs = c->a;
    case_tensor(&run, tensor_copy(c->dstate), INOUT);
    case_tensor(&run, c->qkv, IN);
    case_tensor(&run, c->g, IN);
    case_tensor(&run, c->beta, IN);
    case_tensor(&run, c->d_out, IN);
    case_bytes(&run, c->links, c->a.scan.rows * 4, 4, IN);
    case_work(&run);
    case_run(&run);
}

/* Threads, alignment and stray writes; the table's kernels. */
static void threads_give_equal_bits(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        struct op_case run;
        struct scan_case c;
        case_of(&shapes[i], &c);
        case_start(&run, OP_SCAN);
        run.attrs = c.a;
        case_tensor(&run, c.o, OUT);
        case_tensor(&run, c.after, OUT);
        case_tensor(&run, c.qkv, IN);
        case_tensor(&run, c.g, IN);
        case_tensor(&run, c.beta, IN);
        case_bytes(&run, c.links, c.a.scan.rows * 4, 4, IN);
        case_tensor(&run, c.before, IN);
        case_tensor(&run, c.skip, IN);
        case_work(&run);
        case_run(&run);
        sums_give_equal_bits(&c);
        case_start(&run, OP_SCAN_GRAD);
        start_gradients(&c);
        run.attrs = c.a;
        case_tensor(&run, c.dqkv, INOUT);
        case_tensor(&run, c.dg, INOUT);
        case_tensor(&run, c.dbeta, INOUT);
        case_tensor(&run, c.dstate, INOUT);
        case_tensor(&run, c.dskip, OUT);
        case_tensor(&run, c.d_out, IN);
        case_bytes(&run, c.links, c.a.scan.rows * 4, 4, IN);
        case_tensor(&run, c.before, IN);
        case_tensor(&run, c.skip, IN);
        case_work(&run);
        case_run(&run);
        tensors_free(NULL);
    }
}

/* Calls on parts of the rows give the whole's results: the state passes forwards, its gradient backwards. */
static void parts_make_the_whole(void **state)
{
    static const int sizes[] = {1, 7, 64, 100};
    (void)state;
    for (int i = 0; i < SHAPES; i++)
        for (int p = 0; p < 4; p++) {
            struct scan_case c;
            case_of(&shapes[i], &c);
            if (c.a.scan.dtype == BF16 || c.a.scan.key_dim > 64)
                continue;
            struct tensor *between[MOST_ROWS + 1] = {c.before};
            struct oracle x = oracle_of(&c);
            int parts = 0;
            for (int64_t at = 0; at < c.a.scan.rows; at += sizes[p], parts++) {
                between[parts + 1] = tensor_new(c.after->n, F32);
                run_forward(&c, isa_of_processor(), 1, at, min_i64(sizes[p], c.a.scan.rows - at), store_of(between[parts]),
                            between[parts + 1]->store);
            }
            tensor_load(between[parts]);
            oracle_scan(&x);
            check(shapes[i].name, "o in parts", c.o->val, x.o, c.o->n, 2e-6);
            check(shapes[i].name, "state in parts", between[parts]->val, x.after, c.after->n, 2e-6);
            oracle_scan_grad(&x);
            start_gradients(&c);
            for (int k = parts - 1; k >= 0; k--)
                run_backward(&c, isa_of_processor(), 1, k * (int64_t)sizes[p], min_i64(sizes[p], c.a.scan.rows - k * sizes[p]),
                             store_of(between[k]), c.dstate->store);
            check_backward(&c, shapes[i].name, &x, 8e-6, 8e-6);
            tensors_free(NULL);
        }
}

/* ---- pieces ---- */

/* A case cut into pieces, piece i at rows [cut[i], cut[i + 1]), whose summaries lie at place[i] of all arrays. */
struct pieces {
    int n, cut[MOST_ROWS + 1], place[MOST_ROWS];
    struct tensor *move, *own, *state, *dstate;
};

static void cut_pieces(struct scan_case *c, struct pieces *p, uint64_t seed)
{
    const int64_t k = c->a.scan.key_dim, v = c->a.scan.value_dim, heads = c->a.scan.heads;
    p->n = 0;
    for (int64_t at = 0; at < c->a.scan.rows; at += 1 + (int64_t)rng_below(seed, 0, (uint64_t)at, 120))
        p->cut[p->n++] = (int)at;
    p->cut[p->n] = (int)c->a.scan.rows;
    for (int i = 0; i < p->n; i++)
        p->place[i] = i;
    for (int i = p->n - 1; i > 0; i--) {
        const int j = (int)rng_below(seed, 1, (uint64_t)i, (uint64_t)i + 1), at = p->place[i];
        p->place[i] = p->place[j];
        p->place[j] = at;
    }
    p->move = tensor_new(p->n * heads * k * k, F32);
    p->own = tensor_new(p->n * heads * k * v, F32);
    p->state = tensor_new(p->n * heads * k * v, F32);
    p->dstate = tensor_new(p->n * heads * k * v, F32);
}

/* Summarises a piece by two calls, or by one if it has a single row. */
static void sum_piece(struct scan_case *c, const struct pieces *p, int i)
{
    const int64_t k = c->a.scan.key_dim, v = c->a.scan.value_dim, h = c->a.scan.heads, end = p->cut[i + 1];
    const int64_t cuts[] = {p->cut[i], (p->cut[i] + end) / 2, end};
    struct op_attrs a = c->a;
    for (int part = 0; part < 2; part++) {
        a.scan.rows = cuts[part + 1] - cuts[part];
        if (a.scan.rows == 0)
            continue;
        a.scan.accumulate = cuts[part] > cuts[0];
        void *arg[] = {element(p->move, p->place[i] * h * k * k),
                       element(p->own, p->place[i] * h * k * v),
                       element(c->qkv, cuts[part] * a.scan.ld),
                       element(c->g, cuts[part] * h * decays_of(a.scan.kind, a.scan.key_dim)),
                       element(c->beta, cuts[part] * h),
                       c->links + cuts[part],
                       work_of(recurrence_workspace_bytes(OP_SCAN_SUM, &a, 2))};
        scan_sum_run(gemm_tile_for(isa_of_processor()), &a, arg, &(struct cpu_stream){.threads = 2});
    }
}

/* Makes `own` the gradients of the states before the pieces that do not come through the states after them. */
static void sum_gradient(struct scan_case *c, const struct pieces *p, int i)
{
    const int64_t state = c->a.scan.key_dim * c->a.scan.value_dim, h = c->a.scan.heads;
    struct op_attrs a = c->a;
    a.scan.rows = p->cut[i + 1] - p->cut[i];
    void *arg[] = {element(p->own, p->place[i] * h * state),
                   element(c->qkv, p->cut[i] * (int64_t)a.scan.ld),
                   element(c->g, p->cut[i] * h * decays_of(a.scan.kind, a.scan.key_dim)),
                   element(c->beta, p->cut[i] * h),
                   element(c->d_out, p->cut[i] * h * a.scan.value_dim),
                   c->links + p->cut[i],
                   work_of(recurrence_workspace_bytes(OP_SCAN_GRAD_SUM, &a, 2))};
    memset(arg[0], 0, (size_t)(h * state) * sizeof(float));
    scan_grad_sum_run(gemm_tile_for(isa_of_processor()), &a, arg, &(struct cpu_stream){.threads = 2});
}

static void fold(const struct scan_case *c, struct pieces *p, struct tensor *to, int transposed)
{
    int32_t order[MOST_ROWS];
    struct op_attrs a = {.fold = {.pieces = p->n,
                                  .heads = c->a.scan.heads,
                                  .key_dim = c->a.scan.key_dim,
                                  .value_dim = c->a.scan.value_dim,
                                  .transposed = transposed}};
    for (int i = 0; i < p->n; i++)
        order[i] = p->place[i];
    void *arg[] = {to->store, p->move->store, p->own->store, order};
    assert_int_equal(recurrence_scan_fold(&a, arg, &(struct cpu_stream){.threads = 2}), OK);
}

/* Pieces in any places: summaries of all, the states before them by their order, then each piece by itself. */
static void scans_are_as_defined_in_pieces(void **state)
{
    (void)state;
    for (int i = 0; i < SHAPES; i++) {
        struct scan_case c;
        struct pieces p;
        case_of(&shapes[i], &c);
        const int64_t size = c.after->n;
        c.before = NULL;
        memset(c.dstate->val, 0, (size_t)size * sizeof *c.dstate->val);
        struct oracle x = oracle_of(&c);
        cut_pieces(&c, &p, (uint64_t)i);
        const double limit = 4e-6, stored = shapes[i].dtype == BF16 ? TOL_BF16 : limit;
        for (int k = 0; k < p.n; k++)
            sum_piece(&c, &p, k);
        fold(&c, &p, p.state, 0);
        for (int k = 0; k < p.n; k++)
            run_forward(&c, isa_of_processor(), 2, p.cut[k], p.cut[k + 1] - p.cut[k], element(p.state, p.place[k] * size),
                        c.after->store);
        oracle_scan(&x);
        check(shapes[i].name, "o by pieces", c.o->val, x.o, c.o->n, stored);
        check(shapes[i].name, "state by pieces", c.after->val, x.after, size, limit);
        for (int k = 0; k < p.n; k++)
            sum_gradient(&c, &p, k);
        fold(&c, &p, p.dstate, 1);
        start_gradients(&c);
        oracle_scan_grad(&x);
        for (int k = p.n - 1; k >= 0; k--) {
            memcpy(c.dstate->store, element(p.dstate, p.place[k] * size), (size_t)size * sizeof(float));
            run_backward(&c, isa_of_processor(), 2, p.cut[k], p.cut[k + 1] - p.cut[k], element(p.state, p.place[k] * size),
                         c.dstate->store);
        }
        check_backward(&c, shapes[i].name, &x, 4 * limit, stored == limit ? 4 * limit : stored);
        tensors_free(NULL);
    }
}

/* ---- documents ---- */

/* A document's results have the same bits whatever stands before it, and whatever rows without a token contain. */
static void documents_are_apart(void **state)
{
    (void)state;
    for (int kind = SCAN_DELTA; kind <= SCAN_CHANNELS; kind++) {
        const struct shape s = {"apart",       140,          2, 1, 16,  8, kind, F32, kind != SCAN_SSD ? 1e-6f : 0,
                                {37, 100, -1}, {50, 70, -1}, 1, 1, 0.3f};
        struct scan_case c;
        case_of(&s, &c);
        const int64_t decays = decays_of(kind, s.key);
        struct tensor *out[2], *dqkv[2], *dg[2], *dstate = tensor_copy(c.dstate);
        for (int run = 0; run < 2; run++) {
            const int64_t ld = c.a.scan.ld;
            for (int64_t j = 0; j < 37 * ld && run; j++)
                tensor_set(c.qkv, j, -c.qkv->val[j] + 0.5);
            for (int64_t j = 0; j < c.before->n && run; j++)
                tensor_set(c.before, j, 3);
            for (int row = 50; row <= 70; row += 20)
                for (int64_t j = 0; j < ld; j++)
                    tensor_set(c.qkv, row * ld + j, run ? NAN : 1);
            for (int row = 50; row <= 70; row += 20)
                for (int h = 0; h < 2; h++) {
                    for (int64_t j = 0; j < decays; j++)
                        tensor_set(c.g, (row * 2 + h) * decays + j, run ? NAN : -1);
                    tensor_set(c.beta, row * 2 + h, run ? NAN : 1);
                    for (int j = 0; j < 8; j++)
                        tensor_set(c.d_out, (row * 2 + h) * 8 + j, run ? NAN : 1);
                }
            c.o = out[run] = tensor_new(c.o->n, F32);
            c.dstate = tensor_copy(dstate);
            run_forward(&c, isa_of_processor(), 2, 0, 140, c.before->store, c.after->store);
            start_gradients(&c);
            run_backward(&c, isa_of_processor(), 2, 0, 140, c.before->store, c.dstate->store);
            dqkv[run] = c.dqkv, dg[run] = c.dg;
            for (int64_t j = 0; j < c.dstate->n; j++)
                assert_false(isnan(c.dstate->val[j]));
        }
        const int64_t ld = c.a.scan.ld;
        for (int64_t row = 37; row < 140; row++) {
            const int none = row == 50 || row == 70;
            assert_memory_equal((float *)out[0]->store + row * 16, (float *)out[1]->store + row * 16, 16 * 4);
            assert_memory_equal((float *)dg[0]->store + row * 2 * decays, (float *)dg[1]->store + row * 2 * decays,
                                (size_t)(2 * decays) * 4);
            for (int64_t j = c.a.scan.kind == SCAN_SSD; j < ld - 3 * (c.a.scan.kind == SCAN_SSD); j++) {
                assert_true(dqkv[0]->val[row * ld + j] == dqkv[1]->val[row * ld + j]);
                assert_true(!none || dqkv[1]->val[row * ld + j] == 0);
            }
            assert_true(!none || out[1]->val[row * 16] == 0);
        }
        tensors_free(NULL);
    }
}

/* ---- finite differences of the definition ---- */

struct point {
    struct oracle *x;
    int64_t qkv, g, beta, before; /* sizes */
};

static double loss_at(const double *at, void *context)
{
    const struct point *p = context;
    struct oracle x = *p->x;
    double loss = 0;
    x.qkv = (double *)(uintptr_t)at;
    x.g = x.qkv + p->qkv;
    x.beta = x.g + p->g;
    x.before = x.beta + p->beta;
    x.skip = x.before + p->before;
    oracle_scan(&x);
    for (int64_t i = 0; i < x.a.scan.rows * x.a.scan.heads * x.a.scan.value_dim; i++)
        loss += x.o[i] * x.d_out[i];
    for (int64_t i = 0; i < p->before; i++)
        loss += x.after[i] * p->x->dstate[i];
    return loss;
}

static void the_definition_has_its_gradient(void **state)
{
    (void)state;
    for (int kind = SCAN_DELTA; kind <= SCAN_CHANNELS; kind++) {
        const struct shape s = {"differences", 7,       2, 1, 3,   2, kind, F32, kind != SCAN_SSD ? 1e-6f : 0,
                                {4, -1},       {2, -1}, 1, 1, 0.3f};
        struct scan_case c;
        case_of(&s, &c);
        struct oracle x = oracle_of(&c);
        const struct point p = {&x, c.qkv->n, c.g->n, c.beta->n, c.before->n};
        const int64_t n = c.qkv->n + c.g->n + c.beta->n + c.before->n + 2;
        double *at = doubles(n), *want = doubles(n), *got = doubles(n), *to = at;
        const struct tensor *in[] = {c.qkv, c.g, c.beta, c.before, c.skip};
        for (int i = 0; i < 5; i++, to += in[i - 1]->n)
            memcpy(to, in[i]->val, (size_t)in[i]->n * sizeof *to);
        finite_difference(loss_at, (void *)(uintptr_t)&p, at, n, want);
        oracle_scan_grad(&x);
        to = got;
        const double *gradient[] = {x.dqkv, x.dg, x.dbeta, x.dstate, x.dskip};
        for (int i = 0; i < 5; i++, to += in[i - 1]->n)
            memcpy(to, gradient[i], (size_t)in[i]->n * sizeof *to);
        check("differences", "gradient", got, want, n, 1e-8);
        tensors_free(NULL);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_definition_has_its_gradient, tensors_free),
        cmocka_unit_test_teardown(scans_are_as_defined, tensors_free),
        cmocka_unit_test_teardown(scans_are_as_defined_in_pieces, tensors_free),
        cmocka_unit_test_teardown(threads_give_equal_bits, tensors_free),
        cmocka_unit_test_teardown(parts_make_the_whole, tensors_free),
        cmocka_unit_test_teardown(documents_are_apart, tensors_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
