/* Tests kernels that choose experts, sort pairs by them, gate and add them up. */
#include "ops_harness.h"

struct rule {
    int kind, normalise, groups, group_k, bias;
    float scale, eps, least, logit_factor;
    int factors; /* 1: weights are multiplied by factors of experts */
    int ranked;  /* scores whose sum ranks a group; 0: two */
};

/* Rows of families, and what else is possible (tests/ops/test_route.c). */
static const struct rule RULES[] = {{ROUTE_SOFTMAX, 0, 0, 0, 0, 0, 0, 0},
                                    {ROUTE_SOFTMAX, 1, 0, 0, 0, 0, 0, 0},
                                    {ROUTE_CHOSEN, 0, 0, 0, 0, 0, 0, 0},
                                    {ROUTE_SIGMOID, 1, 4, 2, 1, 2.5f, 1e-20f, 0},
                                    {ROUTE_SIGMOID, 1, 0, 0, 1, 0, 1e-20f, 0},
                                    {ROUTE_SIGMOID, 0, 0, 0, 1, 1.5f, 0, 0},
                                    {ROUTE_SOFTMAX, 1, 0, 0, 1, 0, 0, 0.25f},
                                    {ROUTE_CHOSEN, 0, 4, 3, 1, 0.5f, 0, 0},
                                    {ROUTE_SOFTMAX, 1, 0, 0, 0, 0, 0, 0, 0.6f, 1},
                                    {ROUTE_SIGMOID, 1, 0, 0, 1, 1.5f, 0, 0, 1.7f, 1},
                                    {ROUTE_SOFTMAX, 0, 4, 2, 0, 16.0f, 0, 0, 0, 0, 1}};
enum { N_RULES = sizeof RULES / sizeof *RULES };

/* Tokens, experts and experts of a token. */
struct shape {
    int64_t rows;
    int experts, k;
};

static void set_rule(struct twin_case *c, const struct rule *r, const struct shape *s)
{
    c->attrs.route.rows = s->rows;
    c->attrs.route.experts = s->experts;
    c->attrs.route.k = s->k;
    c->attrs.route.kind = r->kind;
    c->attrs.route.normalise = r->normalise;
    c->attrs.route.groups = s->experts % 4 == 0 && s->experts / 4 * r->group_k >= s->k ? r->groups : 0;
    c->attrs.route.group_k = r->group_k;
    c->attrs.route.ranked = r->ranked;
    c->attrs.route.scale = r->scale;
    c->attrs.route.eps = r->eps;
    c->attrs.route.least = r->least;
    c->attrs.route.logit_factor = r->logit_factor;
}

/* Makes logits of which some are equal, or not numbers. */
static float *make_logits(const struct shape *s, int odd)
{
    float *x = array_random(s->rows * s->experts, F32, 2.0);
    for (int64_t i = 0; i < s->rows; i++) {
        float *row = x + i * s->experts;
        if (i % 3 == 1)
            row[s->experts - 1] = row[i % s->experts];
        for (int e = 0; e < s->experts && i % 7 == 4; e++)
            row[e] = e % 16 == 4 ? 1.5f : e % 3 ? 0.0f : -0.0f; /* only two numbers */
        if (odd && i % 5 == 2)
            row[i % s->experts] = i % 2 ? NAN : INFINITY;
    }
    return x;
}

static int32_t *make_index(int64_t rows)
{
    int32_t *index = array_new(rows * 4);
    for (int64_t i = 0; i < rows; i++)
        index[i] = i % 5 == 3 ? -1 : (int32_t)i;
    return index;
}

static void add_factors(struct twin_case *c, const struct rule *r, const struct shape *s)
{
    if (r->factors)
        case_arg(c, array_random(s->experts, F32, 1.0), s->experts, F32, IN);
    else
        case_absent(c);
}

/* with: bits 0 to 2: counts, plain and sums are asked for; bit 3: they are added to; bit 4: some tokens do not count. Integers are
 * the CPU's, and so are all bits of numbers. */
static void check_route(const struct rule *r, const struct shape *s, int with)
{
    struct twin_case c;
    case_start(&c, OP_ROUTE, "route %lld tokens, %d of %d experts, kind %d, groups %d, with %d", (long long)s->rows, s->k,
               s->experts, r->kind, r->groups, with);
    set_rule(&c, r, s);
    c.attrs.route.accumulate = with >> 3 & 1;
    const enum arg_mode mode = with & 8 ? INOUT : OUT;
    case_arg(&c, array_new(s->rows * s->k * 4), s->rows * s->k, I32, OUT);
    case_arg(&c, array_new(s->rows * s->k * 4), s->rows * s->k, F32, OUT);
    for (int bit = 0; bit < 3; bit++)
        if (with >> bit & 1)
            case_arg(&c, bit < 2 ? (void *)array_indices(s->experts, 0, 1000) : array_random(s->experts, F32, 3.0), s->experts,
                     bit < 2 ? I32 : F32, mode);
        else
            case_absent(&c);
    case_arg(&c, make_logits(s, with & 1), s->rows * s->experts, F32, IN);
    if (r->bias)
        case_arg(&c, array_random(s->experts, F32, 0.3), s->experts, F32, IN);
    else
        case_absent(&c);
    if (with & 16)
        case_arg(&c, make_index(s->rows), s->rows, I32, IN);
    else
        case_absent(&c);
    add_factors(&c, r, s);
    case_work(&c);
    case_run(&c);
    arrays_free();
}

/* Makes ids, ascending by token. how: 0: spread; 1: all to the first experts; 2: to the last ones. */
static int32_t *make_ids(const struct shape *s, int how)
{
    int32_t *ids = array_new(s->rows * s->k * 4);
    for (int64_t i = 0; i < s->rows; i++)
        for (int j = 0; j < s->k; j++)
            ids[i * s->k + j] = j + (how == 1   ? 0
                                     : how == 2 ? s->experts - s->k
                                                : (int32_t)(i * i * 13 % (s->experts - s->k + 1)));
    return ids;
}

/* Makes each pair's row: a permutation of the pairs. */
static int32_t *make_places(const struct shape *s)
{
    const int64_t n = s->rows * s->k;
    int32_t *place = array_new(n * 4);
    for (int64_t i = 0; i < n; i++)
        place[i] = (int32_t)(n - 1 - (i + n / 3) % n);
    return place;
}

static void check_route_grad(const struct rule *r, const struct shape *s, int balances)
{
    struct twin_case c;
    const int64_t n = s->rows * s->k;
    case_start(&c, OP_ROUTE_GRAD, "route_grad %lld tokens, %d of %d experts, kind %d, balances %d", (long long)s->rows, s->k,
               s->experts, r->kind, balances);
    set_rule(&c, r, s);
    c.attrs.route.aux = 0.375f;
    case_arg(&c, make_logits(s, 0), s->rows * s->experts, F32, INOUT);
    case_arg(&c, make_ids(s, 0), n, I32, IN);
    case_arg(&c, array_random(n, F32, 0.5), n, F32, IN);
    case_arg(&c, array_random(n, F32, 1.0), n, F32, IN);
    case_arg(&c, make_places(s), n, I32, IN);
    const int parts = 1 + s->experts % 3;
    int32_t *plain = array_indices(parts * s->experts, 0, 50);
    c.attrs.route.parts = parts;
    for (int e = 0; e < parts * s->experts && balances == 2; e++)
        plain[e] = 0; /* no token counts */
    if (balances) {
        case_arg(&c, plain, parts * s->experts, I32, IN);
        case_arg(&c, make_index(s->rows), s->rows, I32, IN);
    } else {
        case_absent(&c);
        case_absent(&c);
    }
    add_factors(&c, r, s);
    if (r->factors)
        case_arg(&c, array_new(n * 4), n, F32, OUT);
    else
        case_absent(&c);
    case_run(&c);
    arrays_free();
}

static void check_permute(const struct shape *s, int how)
{
    struct twin_case c;
    const int64_t n = s->rows * s->k;
    case_start(&c, OP_PERMUTE, "permute %lld tokens, %d of %d experts, %d", (long long)s->rows, s->k, s->experts, how);
    set_rule(&c, &RULES[0], s);
    case_arg(&c, array_new(n * 4), n, I32, OUT);
    case_arg(&c, array_new(n * 4), n, I32, OUT);
    case_arg(&c, array_new((s->experts + 1) * 4), s->experts + 1, I32, OUT);
    case_arg(&c, make_ids(s, how), n, I32, IN);
    case_run(&c);
    arrays_free();
}

static void check_combine(const struct shape *s, int64_t dim, enum dtype y, enum dtype t, int adds, int biased)
{
    struct twin_case c;
    const int64_t n = s->rows * s->k;
    case_start(&c, OP_COMBINE, "combine %lld x %lld of %d %s adds %d bias %d", (long long)s->rows, (long long)dim, s->k,
               dtype_name(y), adds, biased);
    c.attrs.combine.rows = s->rows;
    c.attrs.combine.dim = dim;
    c.attrs.combine.k = s->k;
    c.attrs.combine.experts = s->experts;
    c.attrs.combine.y_type = (int32_t)y;
    c.attrs.combine.dtype = (int32_t)t;
    c.attrs.combine.accumulate = adds;
    case_arg(&c, array_random(s->rows * dim, F32, 1.0), s->rows * dim, F32, adds ? INOUT : OUT);
    case_arg(&c, array_random(n * dim, y, 1.0), n * dim, y, IN);
    case_arg(&c, make_places(s), n, I32, IN);
    if (biased) {
        case_arg(&c, array_random(n, F32, 1.0), n, F32, IN);
        case_arg(&c, array_random(s->experts * dim, t, 1.0), s->experts * dim, t, IN);
        case_arg(&c, make_ids(s, 0), n, I32, IN);
    } else {
        for (int i = 0; i < 3; i++)
            case_absent(&c);
    }
    case_run(&c);
    arrays_free();
}

static void set_gated(struct twin_case *c, const struct shape *s, int64_t dim, int64_t width, enum dtype t, int kind,
                      int interleaved)
{
    c->attrs.gated.rows = s->rows;
    c->attrs.gated.dim = dim;
    c->attrs.gated.width = width;
    c->attrs.gated.k = s->k;
    c->attrs.gated.experts = s->experts;
    c->attrs.gated.dtype = (int32_t)t;
    c->attrs.gated.kind = kind;
    c->attrs.gated.interleaved = interleaved;
    c->attrs.gated.limit = 1.5f;
    c->attrs.gated.alpha = 1.702f;
}

/* Errors are those of OP_SWIGLU (ops_elements.c), times a weight; dp adds up `dim` products of them. */
static void check_gated(const struct shape *s, int64_t dim, enum dtype t, int kind, int interleaved, int biased)
{
    struct twin_case c;
    enum { ULPS = 20, WIDTH = 24 };
    const int64_t n = s->rows * s->k, columns = (kind == GATE_ALONE ? 1 : 2) * dim;
    int32_t *place = make_places(s);
    void *gate_up = array_random(n * columns, t, 1.5), *g = array_random(n * dim, t, 1.0), *p = array_random(n, F32, 0.5);
    case_start(&c, OP_GATED, "gated %lld x %lld %s kind %d interleaved %d", (long long)n, (long long)dim, dtype_name(t), kind,
               interleaved);
    set_gated(&c, s, dim, WIDTH, t, kind, interleaved);
    close_to(case_arg(&c, array_new(n * dim * dtype_size(t)), n * dim, t, OUT), ULPS, 12e-7);
    case_arg(&c, gate_up, n * columns, t, IN);
    case_arg(&c, p, n, F32, IN);
    case_arg(&c, place, n, I32, IN);
    case_run(&c);
    case_start(&c, OP_GATED_GRAD, "gated_grad %lld x %lld %s kind %d interleaved %d bias %d", (long long)n, (long long)dim,
               dtype_name(t), kind, interleaved, biased);
    set_gated(&c, s, dim, WIDTH, t, kind, interleaved);
    close_to(case_arg(&c, gate_up, n * columns, t, INOUT), ULPS, 6e-5);
    close_to(case_arg(&c, g, n * dim, t, INOUT), ULPS, 12e-7);
    close_to(case_arg(&c, array_new(n * 4), n, F32, OUT), ULPS, 2e-5 + 1e-6 * (double)dim);
    case_arg(&c, p, n, F32, IN);
    case_arg(&c, place, n, I32, IN);
    if (biased) {
        case_arg(&c, array_random(s->rows * WIDTH, t, 1.0), s->rows * WIDTH, t, IN);
        case_arg(&c, array_random(s->experts * WIDTH, t, 1.0), s->experts * WIDTH, t, IN);
        case_arg(&c, make_ids(s, 0), n, I32, IN);
    } else {
        for (int i = 0; i < 3; i++)
            case_absent(&c);
    }
    case_run(&c);
    arrays_free();
}

static enum status call_cuda(void *const *arg, void *stream, void *context)
{
    const struct twin_case *c = context;
    op_kernel *table[OP_COUNT] = {0};
    ops_cuda_kernels(table);
    return table[c->kind](&c->attrs, arg, stream);
}

/* Places that do not exist are read nowhere: the token's sum becomes NaN, and others are as without it. */
static void check_bad_places(void)
{
    enum { ROWS = 9, K = 2, DIM = 40, EXPERTS = 6 };
    const struct shape s = {ROWS, EXPERTS, K};
    for (int bad = 0; bad < 2; bad++) {
        struct twin_case c;
        int32_t *place = make_places(&s);
        float *y = array_random(ROWS * K * DIM, F32, 1.0), *want = array_new(ROWS * DIM * 4);
        for (int64_t i = 0; i < ROWS * DIM; i++)
            want[i] = y[place[i / DIM * K] * DIM + i % DIM] + y[place[i / DIM * K + 1] * DIM + i % DIM];
        place[4 * K + bad] = bad ? -1 : ROWS * K;
        for (int64_t j = 0; j < DIM; j++)
            want[4 * DIM + j] = NAN;
        case_start(&c, OP_COMBINE, "combine with a place that does not exist");
        c.attrs.combine.rows = ROWS;
        c.attrs.combine.dim = DIM;
        c.attrs.combine.k = K;
        c.attrs.combine.experts = EXPERTS;
        case_arg(&c, array_new(ROWS * DIM * 4), ROWS * DIM, F32, OUT);
        case_arg(&c, y, ROWS * K * DIM, F32, IN);
        case_arg(&c, place, ROWS * K, I32, IN);
        for (int i = 0; i < 3; i++)
            case_absent(&c);
        case_run_call(&c, call_cuda, &c, 0, want);
        arrays_free();
    }
}

/* The gradient of a token whose expert, or whose pair's row, does not exist is NaN, and others are as without it. */
static void check_bad_choice(void)
{
    enum { ROWS = 5, K = 2, EXPERTS = 6, N = ROWS * K, ALL = ROWS * EXPERTS };
    const struct shape s = {ROWS, EXPERTS, K};
    for (int bad = 0; bad < 2; bad++) {
        struct twin_case c;
        int32_t *ids = make_ids(&s, 0), *place = make_places(&s);
        float *logits = array_random(ALL, F32, 1.0), *p = array_random(N, F32, 1.0), *dp = array_random(N, F32, 1.0);
        float *want = memcpy(array_new(ALL * 4), logits, ALL * 4);
        op_kernel *table[OP_COUNT] = {0};
        case_start(&c, OP_ROUTE_GRAD, "route_grad with %s that does not exist", bad ? "an expert" : "a row");
        set_rule(&c, &RULES[0], &s);
        void *arg[] = {want, ids, p, dp, place, NULL, NULL, NULL, NULL};
        if (ops_cpu_kernels(table) != OK || table[OP_ROUTE_GRAD](&c.attrs, arg, NULL) != OK)
            fail("%s", status_message());
        for (int e = 0; e < EXPERTS; e++)
            want[3 * EXPERTS + e] = NAN;
        (bad ? ids : place)[3 * K + 1] = bad ? EXPERTS : -1;
        case_arg(&c, logits, ALL, F32, INOUT);
        case_arg(&c, ids, N, I32, IN);
        case_arg(&c, p, N, F32, IN);
        case_arg(&c, dp, N, F32, IN);
        case_arg(&c, place, N, I32, IN);
        for (int absent = 0; absent < 4; absent++)
            case_absent(&c);
        case_run_call(&c, call_cuda, &c, 0, want);
        arrays_free();
    }
}

/* A pair of an expert that does not exist gets no row, and the others' rows are as without it. */
static void check_bad_ids(void)
{
    enum { ROWS = 70, K = 2, EXPERTS = 6, N = ROWS * K };
    const struct shape s = {ROWS, EXPERTS, K};
    struct twin_case c;
    int32_t *ids = make_ids(&s, 0), *place = array_new(N * 4), row = 0;
    ids[11] = -1;
    ids[70] = EXPERTS;
    for (int i = 0; i < N; i++)
        place[i] = -1;
    for (int e = 0; e < EXPERTS; e++)
        for (int i = 0; i < N; i++)
            if (ids[i] == e)
                place[i] = row++;
    case_start(&c, OP_PERMUTE, "permute with experts that do not exist");
    set_rule(&c, &RULES[0], &s);
    case_arg(&c, array_new(N * 4), N, I32, OUT)->compare = SKIP;
    case_arg(&c, array_new(N * 4), N, I32, OUT);
    case_arg(&c, array_new((EXPERTS + 1) * 4), EXPERTS + 1, I32, OUT)->compare = SKIP;
    case_arg(&c, ids, N, I32, IN);
    case_run_call(&c, call_cuda, &c, 1, place);
    arrays_free();
}

/* ---- rows that travel ---- */

/* Members' offsets of their pairs. how: 0: spread; 1: all for the first member's experts; 2: for the last one's; 3: some members have
 * no pair. */
static int32_t *make_offsets(int members, int experts, int64_t pairs, int how)
{
    int32_t *all = array_new((int64_t)members * (experts + 1) * 4);
    const int each = experts / members;
    memset(all, 0, (size_t)members * (size_t)(experts + 1) * 4);
    for (int m = 0; m < members; m++) {
        int32_t *of = all + m * (experts + 1);
        const int64_t n = how == 3 && m % 2 == 0 ? 0 : pairs;
        for (int64_t i = 0; i < n; i++) {
            const int64_t any = (i * i * 13 + m * 5) % experts;
            of[1 + (how == 1 ? any % each : how == 2 ? experts - each + any % each : any)]++;
        }
        for (int e = 0; e < experts; e++)
            of[e + 1] += of[e];
    }
    return all;
}

static struct step_record *make_record(int member)
{
    struct step_record *record = array_new(sizeof *record);
    memset(record, 0, sizeof *record);
    record->member[1] = (uint16_t)member;
    return record;
}

static void start_arrive(struct twin_case *c, int64_t rows, int experts, int members)
{
    c->attrs.arrive.rows = rows;
    c->attrs.arrive.experts = experts;
    c->attrs.arrive.members = members;
    c->attrs.arrive.group = 1;
}

/* with_ids: 1: the rows' experts are asked for. */
static void check_arrive(int members, int experts, int64_t pairs, int how, int me, int with_ids)
{
    struct twin_case c;
    const int64_t rows = members * pairs;
    case_start(&c, OP_ARRIVE, "arrive %lld pairs of each of %d, %d experts, %d, at %d", (long long)pairs, members, experts, how,
               me);
    start_arrive(&c, rows, experts, members);
    case_arg(&c, array_new(rows * 4), rows, I32, OUT);
    case_arg(&c, array_new(rows * 4), rows, I32, OUT);
    case_arg(&c, array_new((experts / members + 1) * 4), experts / members + 1, I32, OUT);
    case_arg(&c, make_offsets(members, experts, pairs, how), (int64_t)members * (experts + 1), I32, IN);
    case_arg(&c, make_record(me), sizeof(struct step_record) / 4, F32, IN);
    if (with_ids)
        case_arg(&c, array_new(rows * 4), rows, I32, OUT);
    else
        case_absent(&c);
    case_run(&c);
    arrays_free();
}

/* Rows beyond the room for them get no place; offsets say how many there are. */
static void check_crowd(void)
{
    enum { PAIRS = 40, ROOM = 50 };
    struct twin_case c;
    int32_t *offsets = array_new(2 * 4);
    offsets[0] = 0;
    offsets[1] = 2 * PAIRS;
    case_start(&c, OP_ARRIVE, "arrive with more rows than room");
    start_arrive(&c, ROOM, 2, 2);
    case_arg(&c, array_new(ROOM * 4), ROOM, I32, OUT)->compare = SKIP;
    case_arg(&c, array_new(ROOM * 4), ROOM, I32, OUT)->compare = SKIP;
    case_arg(&c, array_new(2 * 4), 2, I32, OUT);
    case_arg(&c, make_offsets(2, 2, PAIRS, 1), 2 * 3, I32, IN);
    case_arg(&c, make_record(0), sizeof(struct step_record) / 4, F32, IN);
    case_absent(&c);
    case_run_call(&c, call_cuda, &c, 2, offsets);
    arrays_free();
}

/* Every fourth row has no index, and keeps what it has. */
static void check_spread(int64_t rows, int64_t cols, int per, enum dtype t)
{
    struct twin_case c;
    int32_t *index = array_indices(rows, 0, (int32_t)rows);
    for (int64_t i = 3; i < rows; i += 4)
        index[i] = -1;
    case_start(&c, OP_SPREAD, "spread %lld x %lld, %d of each %s", (long long)rows, (long long)cols, per, dtype_name(t));
    c.attrs.spread.rows = rows;
    c.attrs.spread.x_rows = ceil_div(rows, per);
    c.attrs.spread.cols = cols;
    c.attrs.spread.per = per;
    c.attrs.spread.dtype = (int32_t)t;
    case_arg(&c, array_random(rows * cols, t, 1.0), rows * cols, t, INOUT);
    case_arg(&c, array_random(ceil_div(rows, per) * cols, t, 1.0), ceil_div(rows, per) * cols, t, IN);
    case_arg(&c, index, rows, I32, IN);
    case_run(&c);
    arrays_free();
}

void test_travel(void)
{
    static const int sizes[][3] = {
        {1, 4, 7}, {2, 8, 130}, {4, 8, 65}, {8, 64, 33}, {3, 3, 1}}; /* members, experts, pairs of each */
    for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++)
        for (int how = 0; how < 4; how++)
            check_arrive(sizes[i][0], sizes[i][1], sizes[i][2], how, how % 2 ? 0 : sizes[i][0] - 1, how != 2);
    check_crowd();
    for (int t = F32; t <= BF16; t++) {
        check_spread(1, 1, 1, (enum dtype)t);
        check_spread(131, 24, 1, (enum dtype)t);
        check_spread(67, 33, 2, (enum dtype)t);
        check_spread(9, 520, 4, (enum dtype)t);
    }
}

void test_routes(void)
{
    static const struct shape shapes[] = {{1, 8, 1},    {3, 8, 4},    {66, 16, 3},  {9, 20, 20},
                                          {17, 128, 8}, {65, 160, 8}, {10, 520, 33}};
    static const int asked[] = {7, 0, 1 + 16, 15 + 16, 2, 4};
    for (int s = 0; s < (int)(sizeof shapes / sizeof *shapes); s++)
        for (int i = 0; i < 3; i++) {
            const struct rule *r = &RULES[(s * 3 + i) % N_RULES];
            check_route(r, &shapes[s], asked[(s + i * 2) % 6]);
            check_route_grad(r, &shapes[s], i);
        }
    for (int r = 0; r < N_RULES; r++)
        check_route(&RULES[r], &(struct shape){19, 32, 5}, 31);
    for (int i = 0; i < 4; i++) /* half of the logits are negative, and most experts of the groups are needed */
        check_route(&RULES[7], &(struct shape){8 + i, 8, 5}, 1);
    check_bad_choice();
}

void test_pairs(void)
{
    /* one segment, some, and more than 40, which the simulator has at most: segments of two steps */
    static const struct shape shapes[] = {{1, 8, 1},    {31, 5, 1},   {33, 6, 2},   {100, 128, 3},
                                          {300, 20, 4}, {400, 20, 4}, {40, 1024, 2}};
    for (int s = 0; s < (int)(sizeof shapes / sizeof *shapes); s++)
        for (int how = 0; how < 3; how++)
            check_permute(&shapes[s], how);
    check_bad_ids();
    for (int t = F32; t <= BF16; t++) {
        check_combine(&shapes[0], 1, (enum dtype)t, F32, 0, 1);
        check_combine(&shapes[2], 24, (enum dtype)t, BF16, 1, 1);
        check_combine(&shapes[3], 33, (enum dtype)t, F32, 1, 0);
        check_combine(&shapes[2], 520, (enum dtype)t, F32, 0, 0);
        check_combine(&shapes[2], 40, (enum dtype)t, (enum dtype)t, 0, 1);
    }
    check_bad_places();
    for (int t = F32; t <= BF16; t++)
        for (int kind = GATE_SILU; kind <= GATE_ALONE; kind++) {
            check_gated(&shapes[2], 40, (enum dtype)t, kind, kind % 2, kind != GATE_SILU);
            check_gated(&(struct shape){3, 4, 2}, kind % 2 ? 7 : 520, (enum dtype)t, kind, !(kind % 2), kind == GATE_SILU);
        }
}
