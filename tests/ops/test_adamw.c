/* Tests gradient norm, clipping and the update. */
#include "ops_test.h"

#include "base/blocks8.h"
#include "base/rng.h"
#include "ops/adamw.h"

static double run_sumsq(struct tensor *x)
{
    struct tensor *sum = tensor_new(1, F64);
    struct op_case c;
    case_start(&c, OP_SUMSQ);
    c.attrs.vec.n = x->n;
    case_tensor(&c, sum, OUT);
    case_tensor(&c, x, IN);
    case_run(&c);
    return sum->val[0];
}

/* Sums squares in the documented order, in plain C, for a comparison bit for bit. */
static double ordered_sumsq(const double *x, int64_t n)
{
    double total = 0.0;
    for (int64_t b = 0; b < n; b += SUMSQ_BLOCK) {
        double lane[16] = {0};
        for (int64_t i = b; i < n && i < b + SUMSQ_BLOCK; i++)
            lane[(i - b) % 16] += x[i] * x[i];
        for (int half = 8; half > 0; half /= 2)
            for (int l = 0; l < half; l++)
                lane[l] += lane[l + half];
        total += lane[0];
    }
    return total;
}

static void test_sumsq(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 15, 16, 17, 4095, 4096, 4097, 8200, 3000001};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        struct tensor *x = tensor_random(sizes[s], F32, 1.0);
        assert_true(run_sumsq(x) == ordered_sumsq(x->val, x->n));
        tensors_free(NULL);
    }
    struct tensor *x = tensor_random(5000, F32, 1e30); /* squares overflow fp32, but not fp64 */
    assert_true(isfinite(run_sumsq(x)));
    tensor_set(x, 4999, NAN);
    assert_true(isnan(run_sumsq(x)));
}

static struct norm_result run_clip(const double *sums, int64_t n, float clip)
{
    struct tensor *t = tensor_new(n, F64);
    struct norm_result result;
    struct step_record record = {.clip = clip};
    for (int64_t i = 0; i < n; i++)
        tensor_set(t, i, sums[i]);
    struct op_case c;
    case_start(&c, OP_CLIP);
    c.attrs.vec.n = n;
    case_bytes(&c, &result, sizeof result, 8, OUT);
    case_tensor(&c, t, IN);
    case_bytes(&c, &record, sizeof record, 4, IN);
    case_run(&c);
    return result;
}

static void test_clip(void **state)
{
    (void)state;
    struct norm_result r = run_clip((double[]){1.0, 3.0, 12.0}, 3, 0.0f);
    assert_true(r.norm == 4.0 && r.factor == 1.0f && r.skip == 0);
    r = run_clip((double[]){16.0}, 1, 5.0f);
    assert_true(r.factor == 1.0f);
    r = run_clip((double[]){16.0}, 1, 1.0f);
    assert_true(r.factor == (float)(1.0 / (4.0 + 1e-6)) && r.skip == 0);
    r = run_clip((double[]){0.0}, 1, 1.0f);
    assert_true(r.norm == 0.0 && r.factor == 1.0f && r.skip == 0);
    r = run_clip((double[]){1.0, NAN}, 2, 1.0f);
    assert_true(isnan(r.norm) && r.factor == 0.0f && r.skip == 1);
    r = run_clip((double[]){INFINITY, 1.0}, 2, 0.0f);
    assert_true(isinf(r.norm) && r.factor == 0.0f && r.skip == 1);
}

struct update {
    struct tensor *p, *m, *v, *g, *param;
    struct norm_result norm;
    struct step_record record;
    int64_t n_decay, first;
};

static struct update update_new(int64_t n, int64_t n_decay, int t, int low_precision, enum dtype moments)
{
    struct update u = {.n_decay = n_decay, .first = (1LL << 32) - n / 2, .norm = {.norm = 1.0, .factor = 0.75f}};
    u.record = (struct step_record){.lr = 3e-3f,
                                    .weight_decay = 0.1f,
                                    .beta1 = 0.9f,
                                    .beta2 = 0.999f,
                                    .eps = 1e-8f,
                                    .bias1 = (float)(1.0 - pow((double)0.9f, t)),
                                    .bias2 = (float)(1.0 - pow((double)0.999f, t)),
                                    .rounding = 0x12345678u * (uint32_t)t};
    u.p = tensor_random(n, F32, 1.0);
    u.m = tensor_random(n, moments, 0.1);
    u.v = tensor_random(n, moments, 0.1);
    u.g = tensor_random(n, F32, 0.1);
    for (int64_t i = 0; i < n; i++)
        tensor_set(u.v, i, u.v->val[i] * u.v->val[i]);
    u.param = low_precision ? tensor_new(n, BF16) : NULL;
    return u;
}

static void update_run(struct update *u)
{
    struct op_case c;
    case_start(&c, OP_ADAMW);
    c.attrs.vec.n = u->p->n;
    c.attrs.vec.n_decay = u->n_decay;
    c.attrs.vec.first = u->first;
    c.attrs.vec.low_precision = u->param != NULL;
    c.attrs.vec.moments = (int32_t)u->m->dtype;
    case_tensor(&c, u->p, INOUT);
    case_tensor(&c, u->m, INOUT);
    case_tensor(&c, u->v, INOUT);
    case_tensor(&c, u->g, IN);
    case_bytes(&c, &u->norm, sizeof u->norm, 8, IN);
    case_bytes(&c, &u->record, sizeof u->record, 4, IN);
    case_tensor(&c, u->param, OUT);
    case_run(&c);
}

static void check_param(const struct update *u)
{
    for (int64_t i = 0; u->param && i < u->p->n; i++)
        assert_int_equal(((bf16 *)u->param->store)[i], bf16_from_float(((float *)u->p->store)[i]));
}

/* The update agrees with torch.optim.AdamW in fp64, and bit for bit with the header's formula in plain C. */
static void check_update(int64_t n, int64_t n_decay, int t, int low_precision)
{
    struct update u = update_new(n, n_decay, t, low_precision, F32);
    struct tensor *p = tensor_copy(u.p), *m = tensor_copy(u.m), *v = tensor_copy(u.v);
    struct tensor *wp = tensor_new(n, F64), *wm = tensor_new(n, F64), *wv = tensor_new(n, F64);
    const struct step_record *r = &u.record;
    for (int64_t i = 0; i < n; i++) {
        double g = u.g->val[i] * (double)u.norm.factor, b1 = r->beta1, b2 = r->beta2;
        tensor_set(wm, i, b1 * m->val[i] + (1.0 - b1) * g);
        tensor_set(wv, i, b2 * v->val[i] + (1.0 - b2) * g * g);
        double decayed = p->val[i] * (i < n_decay ? 1.0 - (double)r->lr * r->weight_decay : 1.0);
        tensor_set(wp, i, decayed - r->lr / (double)r->bias1 * wm->val[i] / (sqrt(wv->val[i]) / sqrt((double)r->bias2) + r->eps));
    }
    update_run(&u);
    check_error("m", u.m->val, wm->val, n, 2e-7);
    check_error("v", u.v->val, wv->val, n, 2e-7);
    check_error("p", u.p->val, wp->val, n, 2e-7);
    check_param(&u);
    float scale = 1.0f / sqrtf(r->bias2), step = r->lr / r->bias1;
    for (int64_t i = 0; i < n; i++) {
        float g = ((float *)u.g->store)[i] * u.norm.factor, old_m = ((float *)m->store)[i];
        float decay = i < n_decay ? fmaf(-r->lr, r->weight_decay, 1.0f) : 1.0f;
        float new_m = fmaf(1.0f - r->beta1, g - old_m, old_m);
        float new_v = fmaf((1.0f - r->beta2) * g, g, r->beta2 * ((float *)v->store)[i]);
        float new_p = fmaf(-step, new_m / fmaf(sqrtf(new_v), scale, r->eps), ((float *)p->store)[i] * decay);
        assert_true(((float *)u.m->store)[i] == new_m && ((float *)u.v->store)[i] == new_v && ((float *)u.p->store)[i] == new_p);
    }
}

static void test_update(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 7, 8, 9, 17, 1023, 1024, 1025, 40003};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t n = sizes[s];
        check_update(n, 0, 1, 0);
        check_update(n, n, 2, 1);
        check_update(n, n / 2, 1000, 1);
        check_update(n, n * 2 / 3 + 1, 1, 1);
        tensors_free(NULL);
    }
}

/* Rounds as adamw.h says, in plain C. */
static bf16 stochastic(float x, uint32_t number, uint32_t key, int half)
{
    uint32_t u, w = number * 0x9e3779b9u + key;
    w ^= w >> 14;
    w *= 2 * w + 0x7feb352du;
    memcpy(&u, &x, 4);
    return (bf16)((u + (half ? w >> 16 : (w ^ w >> 16) & 0xffff)) >> 16);
}

/* Parameters are the same as with fp32 moments of the same values; the new moments are those fp32 moments, rounded. */
static void check_bf16_update(int64_t n)
{
    struct update u = update_new(n, n / 2, 7, 1, BF16), f = u;
    f.p = tensor_copy(u.p);
    f.m = tensor_new(n, F32);
    f.v = tensor_new(n, F32);
    f.param = tensor_new(n, BF16);
    for (int64_t i = 0; i < n; i++) {
        tensor_set(f.m, i, u.m->val[i]);
        tensor_set(f.v, i, u.v->val[i]);
    }
    update_run(&u);
    update_run(&f);
    assert_memory_equal(u.p->store, f.p->store, n * 4);
    assert_memory_equal(u.param->store, f.param->store, n * 2);
    for (int64_t i = 0; i < n; i++) {
        uint32_t number = (uint32_t)(u.first + i);
        assert_int_equal(((bf16 *)u.m->store)[i], stochastic(((float *)f.m->store)[i], number, u.record.rounding, 0));
        assert_int_equal(((bf16 *)u.v->store)[i], stochastic(((float *)f.v->store)[i], number, u.record.rounding, 1));
    }
}

static void test_bf16_moments(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 31, 32, 33, 1023, 1024, 1025, 40003};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        check_bf16_update(sizes[s]);
        tensors_free(NULL);
    }
}

/* Four ranks that update shards get the bits that one rank gets for everything. */
static void test_bf16_shards(void **state)
{
    (void)state;
    enum { N = 5003, SHARE = 1251 };
    struct update u = update_new(N, 0, 3, 0, BF16);
    struct tensor *p = tensor_copy(u.p), *m = tensor_copy(u.m), *v = tensor_copy(u.v);
    update_run(&u);
    for (int r = 0; r < 4; r++) {
        int64_t at = (int64_t)r * SHARE;
        struct adamw_shape s = {.n = min_i64(SHARE, N - at), .first = u.first, .share = SHARE, .moments = BF16};
        u.record.member[0] = r;
        ops_adamw(&s, (float *)p->store + at, (bf16 *)m->store + at, (bf16 *)v->store + at, (float *)u.g->store + at, &u.norm,
                  &u.record, NULL);
    }
    assert_memory_equal(p->store, u.p->store, N * 4);
    assert_memory_equal(m->store, u.m->store, N * 2);
    assert_memory_equal(v->store, u.v->store, N * 2);
}

/* Packs moments, each rounded to the nearest value. */
static void *packed(enum blocks8_kind kind, const struct tensor *t)
{
    void *x = calloc(1, (size_t)blocks8_bytes(t->n));
    blocks8_pack(kind, (const float *)t->store, t->n, x);
    return x;
}

static struct adamw_shape shape_of(const struct update *u, enum dtype moments)
{
    return (struct adamw_shape){.n = u->p->n, .n_decay = u->n_decay, .first = u->first, .moments = moments};
}

/* Each number becomes one of the two neighbouring packed values, and its random bits decide which. */
static void check_packed(enum blocks8_kind kind, const struct tensor *want, const void *have, const struct update *u, int half)
{
    const float *map = blocks8_map(kind), *scale = have, *x = (const float *)want->store;
    const uint8_t *code = blocks8_codes(have, want->n);
    for (int64_t i = 0; i < want->n; i++) {
        uint32_t w = (uint32_t)(u->first + i) * 0x9e3779b9u + u->record.rounding;
        w ^= w >> 14;
        w *= 2 * w + 0x7feb352du;
        const float part = (kind == BLOCKS8_SQUARES ? sqrtf(x[i]) : x[i]) / scale[i / BLOCK8],
                    random = (float)(half ? w >> 16 : (w ^ w >> 16) & 0xffff);
        int below = 0;
        while (below < 255 && map[below + 1] <= part)
            below++;
        int up = below < 255 && part > map[below] && random * (map[below + 1] - map[below]) < (part - map[below]) * 65536.0f;
        if (kind == BLOCKS8_SQUARES && below == 0 && part > 0)
            up = 1;
        assert_int_equal(code[i], below + up);
    }
}

/* Parameters are the same as with fp32 moments of the same values; the new moments are those fp32 moments, rounded. */
static void check_int8_update(int64_t n)
{
    struct update u = update_new(n, n % 2 ? n : 0, 7, 1, F32), f;
    void *m = packed(BLOCKS8_SIGNED, u.m), *v = packed(BLOCKS8_SQUARES, u.v);
    blocks8_unpack(BLOCKS8_SIGNED, m, n, (float *)u.m->store);
    blocks8_unpack(BLOCKS8_SQUARES, v, n, (float *)u.v->store);
    f = u;
    f.p = tensor_copy(u.p);
    const struct adamw_shape eight = shape_of(&u, I8), whole = shape_of(&u, F32);
    ops_adamw(&eight, (float *)u.p->store, m, v, (float *)u.g->store, &u.norm, &u.record, (bf16 *)u.param->store);
    ops_adamw(&whole, (float *)f.p->store, f.m->store, f.v->store, (float *)f.g->store, &f.norm, &f.record, NULL);
    assert_memory_equal(u.p->store, f.p->store, n * 4);
    check_packed(BLOCKS8_SIGNED, f.m, m, &u, 0);
    check_packed(BLOCKS8_SQUARES, f.v, v, &u, 1);
    free(m);
    free(v);
}

static void test_int8_moments(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 255, 256, 257, 1023, 1025, 20003};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        check_int8_update(sizes[s]);
        tensors_free(NULL);
    }
}

/* Four ranks that update shards of whole blocks get the bits that one rank gets for everything. */
static void test_int8_shards(void **state)
{
    (void)state;
    enum { N = 5003, SHARE = 5 * BLOCK8 };
    static float parts[2][N], want[2][N];
    struct update u = update_new(N, 0, 3, 0, F32);
    struct tensor *p = tensor_copy(u.p), *const moments[2] = {u.m, u.v};
    void *all[2] = {packed(BLOCKS8_SIGNED, u.m), packed(BLOCKS8_SQUARES, u.v)};
    const struct adamw_shape whole = shape_of(&u, I8);
    for (int r = 0; r < 4; r++) {
        int64_t at = (int64_t)r * SHARE, n = min_i64(SHARE, N - at);
        struct adamw_shape s = {.n = n, .first = u.first, .share = SHARE, .moments = I8};
        void *own[2];
        for (int k = 0; k < 2; k++) {
            own[k] = calloc(1, (size_t)blocks8_bytes(n));
            blocks8_pack((enum blocks8_kind)k, (float *)moments[k]->store + at, n, own[k]);
        }
        u.record.member[0] = r;
        ops_adamw(&s, (float *)p->store + at, own[0], own[1], (float *)u.g->store + at, &u.norm, &u.record, NULL);
        for (int k = 0; k < 2; k++) {
            blocks8_unpack((enum blocks8_kind)k, own[k], n, parts[k] + at);
            free(own[k]);
        }
    }
    u.record.member[0] = 0;
    ops_adamw(&whole, (float *)u.p->store, all[0], all[1], (float *)u.g->store, &u.norm, &u.record, NULL);
    assert_memory_equal(p->store, u.p->store, N * 4);
    for (int k = 0; k < 2; k++) {
        blocks8_unpack((enum blocks8_kind)k, all[k], N, want[k]);
        assert_memory_equal(parts[k], want[k], sizeof want[k]);
        free(all[k]);
    }
}

enum { DRAWS = 40000 };

/* Numbers of equal elements, of n, that were rounded up ([0] m, [1] v), and the share that should be. */
struct draws {
    uint8_t up[2][DRAWS];
    double share[2];
};

static void draw(struct draws *d, float grad, uint32_t rounding)
{
    static float p[DRAWS], g[DRAWS];
    static bf16 moment[2][DRAWS];
    struct step_record r = {.beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .bias1 = 1, .bias2 = 1, .rounding = rounding};
    struct norm_result norm = {.factor = 1};
    const float old = 0.25f;
    for (int i = 0; i < DRAWS; i++)
        g[i] = grad, moment[0][i] = moment[1][i] = bf16_from_float(old);
    ops_adamw(&(struct adamw_shape){.n = DRAWS, .moments = BF16}, p, moment[0], moment[1], g, &norm, &r, NULL);
    float exact[2] = {fmaf(1 - r.beta1, grad - old, old), fmaf((1 - r.beta2) * grad, grad, r.beta2 * old)};
    for (int k = 0; k < 2; k++) {
        uint32_t u;
        memcpy(&u, &exact[k], 4);
        d->share[k] = (double)(u & 0xffff) / 65536;
        for (int i = 0; i < DRAWS; i++) {
            d->up[k][i] = moment[k][i] == (u >> 16) + 1;
            assert_true(d->up[k][i] || moment[k][i] == u >> 16);
        }
    }
}

/* Returns the correlation of n draws of a and b, in standard deviations. */
static double correlation(const uint8_t *a, double share_a, const uint8_t *b, double share_b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (a[i] - share_a) * (b[i] - share_b);
    return fabs(sum) / sqrt(n * share_a * (1 - share_a) * share_b * (1 - share_b));
}

/* Equal elements are rounded up with such a probability that their mean is exact. Draws are independent: between m and v, between
 * elements up to 64 apart or as far apart as rows of a matrix, and between steps. Five standard deviations are allowed; six where
 * there are hundreds of draws. */
static void test_bf16_random(void **state)
{
    (void)state;
    static struct draws d, before;
    for (uint32_t key = 0; key < 16; key++) {
        before = d;
        draw(&d, 0.3f + 0.01f * (float)key, 0x12345678u + key * 0x2545f491u);
        for (int k = 0; k < 2; k++) {
            double ups = 0;
            for (int i = 0; i < DRAWS; i++)
                ups += d.up[k][i];
            assert_true(fabs(ups - DRAWS * d.share[k]) < 5 * sqrt(DRAWS * d.share[k] * (1 - d.share[k])));
            for (int other = 0; other < 2; other++) {
                for (int lag = 1; lag <= 4096; lag += lag < 64 ? 1 : lag)
                    assert_true(correlation(d.up[k], d.share[k], d.up[other] + lag, d.share[other], DRAWS - lag) < 6);
                if (key)
                    assert_true(correlation(d.up[k], d.share[k], before.up[other], before.share[other], DRAWS) < 5);
            }
        }
        assert_true(correlation(d.up[0], d.share[0], d.up[1], d.share[1], DRAWS) < 5);
    }
}

/* Runs of eight neighbours show all 256 patterns of roundings equally often, by a chi-squared test. */
static void test_bf16_patterns(void **state)
{
    (void)state;
    static struct draws d;
    draw(&d, 0.3033f, 0x2545f491u);
    for (int k = 0; k < 2; k++) {
        double chi2 = 0;
        int count[256] = {0};
        for (int i = 0; i < DRAWS; i += 8) {
            int pattern = 0;
            for (int j = 0; j < 8; j++)
                pattern |= d.up[k][i + j] << j;
            count[pattern]++;
        }
        for (int c = 0; c < 256; c++) {
            double expected = DRAWS / 8;
            for (int j = 0; j < 8; j++)
                expected *= c >> j & 1 ? d.share[k] : 1 - d.share[k];
            chi2 += (count[c] - expected) * (count[c] - expected) / expected;
        }
        print_message("patterns of eight: chi-squared %.0f of 255, shares of %.3f\n", chi2, d.share[k]);
        assert_true(fabs(chi2 - 255) < 5 * sqrt(2 * 255.0));
    }
}

/* Minimises the sum over elements of h (p - target)^2 / 2, with h from 0.01 to 1 and noisy gradients. Returns the loss after 2000
 * steps with a decaying learning rate. */
static double descend(enum dtype moments)
{
    enum { N = 512, STEPS = 2000 };
    static float p[N], g[N], noise[N], target[N];
    static float m[N], v[N]; /* large enough for moments of either type */
    struct norm_result norm = {.factor = 1};
    double loss = 0;
    memset(m, 0, sizeof m);
    memset(v, 0, sizeof v);
    memset(p, 0, sizeof p);
    rng_normals(3, 1, 0, N, target);
    for (int t = 1; t <= STEPS; t++) {
        rng_normals(3, 2, (uint64_t)t * N, N, noise);
        for (int i = 0; i < N; i++)
            g[i] = (0.01f + (float)i / N) * (p[i] - target[i]) + 0.1f * noise[i];
        uint32_t random[4];
        rng_block(3, 3, (uint64_t)t, random);
        struct step_record r = {.lr = 1e-2f * (1 - (float)(t - 1) / STEPS),
                                .beta1 = 0.9f,
                                .beta2 = 0.999f,
                                .eps = 1e-8f,
                                .bias1 = (float)(1 - pow(0.9, t)),
                                .bias2 = (float)(1 - pow(0.999, t)),
                                .rounding = random[0]};
        ops_adamw(&(struct adamw_shape){.n = N, .moments = moments}, p, m, v, g, &norm, &r, NULL);
    }
    for (int i = 0; i < N; i++)
        loss += 0.5 * (0.01 + (double)i / N) * pow((double)p[i] - target[i], 2);
    return loss;
}

/* The loss converges as with fp32 moments. Rounding changes a moment by at most 2^-8 of itself, without bias. m averages some
 * 10 steps and v some 1000, so a step's length changes by less than 1%, at random, and the loss by no more. */
static void test_bf16_converges(void **state)
{
    (void)state;
    double f32 = descend(F32), low = descend(BF16);
    print_message("loss after 2000 steps: fp32 moments %.6f, bf16 %.6f\n", f32, low);
    assert_true(fabs(low - f32) <= 0.01 * f32);
}

static void test_skip(void **state)
{
    (void)state;
    for (int low = 0; low < 2; low++) {
        struct update u = update_new(3001, 2000, 3, low, F32);
        struct tensor *p = tensor_copy(u.p), *m = tensor_copy(u.m), *v = tensor_copy(u.v);
        u.norm = (struct norm_result){.norm = NAN, .factor = 0.0f, .skip = 1};
        tensor_set(u.g, 5, NAN);
        update_run(&u);
        assert_memory_equal(u.p->store, p->store, 3001 * 4);
        assert_memory_equal(u.m->store, m->store, 3001 * 4);
        assert_memory_equal(u.v->store, v->store, 3001 * 4);
        check_param(&u);
    }
}

/* An element that never had a gradient does not move, apart from decay. */
static void test_zero_gradient(void **state)
{
    (void)state;
    struct update u = update_new(20, 0, 1, 1, F32);
    struct tensor *p = tensor_copy(u.p);
    memset(u.m->store, 0, 80);
    memset(u.v->store, 0, 80);
    memset(u.g->store, 0, 80);
    update_run(&u);
    assert_memory_equal(u.p->store, p->store, 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_sumsq, tensors_free),
        cmocka_unit_test_teardown(test_clip, tensors_free),
        cmocka_unit_test_teardown(test_update, tensors_free),
        cmocka_unit_test_teardown(test_skip, tensors_free),
        cmocka_unit_test_teardown(test_zero_gradient, tensors_free),
        cmocka_unit_test_teardown(test_bf16_moments, tensors_free),
        cmocka_unit_test_teardown(test_bf16_shards, tensors_free),
        cmocka_unit_test(test_bf16_random),
        cmocka_unit_test(test_int8_moments),
        cmocka_unit_test(test_int8_shards),
        cmocka_unit_test(test_bf16_patterns),
        cmocka_unit_test(test_bf16_converges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
