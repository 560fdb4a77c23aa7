/* Precision at length: outputs, state and gradients of a document of 2^14 tokens against fp64, visited in parts; with
 * LTRAIN_LONG of 2^20 tokens, with each set of instructions. */
#include "base/rng.h"
#include "extent.h"
#include "oracle.h"
#include "recurrence/heads.h"

#include <stdio.h>

enum { PART = 2048, HEADS = 1, DIM = 32, LD = (2 + HEADS) * DIM, STATE = HEADS * DIM * DIM };
enum { SHORT = 1 << 14, LONG = 1 << 20 };

static int64_t tokens = SHORT;

/* One part's numbers, with as many decays as SCAN_CHANNELS has, made anew whenever it is visited; with gradients, copies that become them. */
struct part {
    float qkv[PART * LD], g[PART * HEADS * DIM], beta[PART * HEADS], o[PART * HEADS * DIM], d_out[PART * HEADS * DIM];
    double wide_qkv[PART * LD], wide_g[PART * HEADS * DIM], wide_beta[PART * HEADS], wide_o[PART * HEADS * DIM],
        wide_d_out[PART * HEADS * DIM], dqkv[PART * LD], dg[PART * HEADS * DIM], dbeta[PART * HEADS];
};

static int32_t links[PART];

/* Returns the numbers of g of a token. */
static int64_t decays_of(int kind)
{
    return kind == SCAN_CHANNELS ? HEADS * DIM : HEADS;
}

/* Numbers of part p. Decays are such that some 10^4 tokens are remembered; delta's keys have a common direction. */
static void fill(struct part *x, int64_t p, int kind)
{
    rng_normals(11, 1, p * PART * LD, PART * LD, x->qkv);
    rng_normals(11, 2, (uint64_t)(p * PART * decays_of(kind)), PART * decays_of(kind), x->g);
    rng_normals(11, 3, p * PART * HEADS, PART * HEADS, x->beta);
    rng_normals(11, 4, p * PART * HEADS * DIM, PART * HEADS * DIM, x->d_out);
    for (int i = 0; i < PART * LD; i++) {
        if (kind != SCAN_SSD && i % LD >= DIM && i % LD < 2 * DIM)
            x->qkv[i] += 1;
        x->wide_qkv[i] = (double)x->qkv[i];
    }
    for (int64_t i = 0; i < PART * decays_of(kind); i++) {
        x->g[i] = -1e-4f * fabsf(x->g[i]);
        x->wide_g[i] = (double)x->g[i];
    }
    for (int i = 0; i < PART * HEADS; i++) {
        x->beta[i] = 1 / (1 + expf(-x->beta[i]));
        x->wide_beta[i] = (double)x->beta[i];
    }
    for (int i = 0; i < PART * HEADS * DIM; i++)
        x->wide_d_out[i] = (double)x->d_out[i];
}

static struct op_attrs attrs_of(int kind)
{
    struct op_attrs a = {0};
    a.scan.rows = PART;
    a.scan.kind = kind;
    a.scan.heads = HEADS;
    a.scan.groups = 1;
    a.scan.key_dim = a.scan.value_dim = DIM;
    a.scan.k_first = DIM;
    a.scan.v_first = 2 * DIM;
    a.scan.ld = LD;
    a.scan.dtype = F32;
    a.scan.scale = 1;
    a.scan.eps = kind != SCAN_SSD ? 1e-6f : 0;
    return a;
}

/* Returns the error of n floats. */
static double error_of(const float *got, const double *want, int64_t n)
{
    double *wide = malloc((size_t)n * sizeof *wide);
    for (int64_t i = 0; i < n; i++)
        wide[i] = (double)got[i];
    const double e = norm_error(wide, want, n);
    free(wide);
    return e;
}

/* Returns the greatest error of the outputs and states of all parts; keeps the state before each part. */
static double forward(struct part *x, int kind, enum isa isa, float *states, double *wide_states, void *work)
{
    const struct op_attrs a = attrs_of(kind);
    double worst = 0;
    for (int64_t p = 0; p < tokens / PART; p++) {
        float *before = states + p * STATE;
        fill(x, p, kind);
        void *arg[] = {x->o, before + STATE, x->qkv, x->g, x->beta, links, before, NULL, work};
        struct oracle o = {.a = a,
                           .links = links,
                           .qkv = x->wide_qkv,
                           .g = x->wide_g,
                           .beta = x->wide_beta,
                           .before = wide_states + p * STATE,
                           .after = wide_states + (p + 1) * STATE,
                           .o = x->wide_o};
        scan_run(gemm_tile_for(isa), &a, arg, &(struct cpu_stream){.threads = 2});
        oracle_scan(&o);
        worst = fmax(worst, error_of(x->o, x->wide_o, PART * HEADS * DIM));
        worst = fmax(worst, error_of(before + STATE, o.after, STATE));
    }
    return worst;
}

/* Returns the greatest error of the gradients of all parts. */
static double backward(struct part *x, int kind, enum isa isa, const float *states, double *wide_states, void *work)
{
    struct op_attrs a = attrs_of(kind);
    double worst = 0, wide_dstate[STATE] = {0};
    float dstate[STATE] = {0};
    for (int64_t p = tokens / PART - 1; p >= 0; p--) {
        fill(x, p, kind);
        struct oracle o = {.a = a,
                           .links = links,
                           .qkv = x->wide_qkv,
                           .g = x->wide_g,
                           .beta = x->wide_beta,
                           .before = wide_states + p * STATE,
                           .d_out = x->wide_d_out,
                           .dstate = wide_dstate,
                           .dqkv = x->dqkv,
                           .dg = x->dg,
                           .dbeta = x->dbeta};
        void *arg[] = {x->qkv, x->g, x->beta, dstate, NULL, x->d_out, links, (void *)(uintptr_t)(states + p * STATE), NULL, work};
        oracle_scan_grad(&o);
        scan_grad_run(gemm_tile_for(isa), &a, arg, &(struct cpu_stream){.threads = 2});
        worst = fmax(worst, error_of(x->qkv, x->dqkv, PART * LD));
        worst = fmax(worst, error_of(x->g, x->dg, PART * decays_of(kind)));
        worst = fmax(worst, error_of(x->beta, x->dbeta, PART * HEADS));
        worst = fmax(worst, error_of(dstate, wide_dstate, STATE));
    }
    return worst;
}

/* Compares a document with fp64. */
static void check_document(int kind, enum isa isa)
{
    static const char *const names[] = {"delta", "ssd", "channels"};
    const struct op_attrs a = attrs_of(kind);
    const int64_t n = (tokens / PART + 1) * STATE;
    struct part *x = malloc(sizeof *x);
    float *states = calloc((size_t)n, sizeof *states);
    double *wide_states = calloc((size_t)n, sizeof *wide_states);
    void *work = malloc((size_t)recurrence_workspace_bytes(OP_SCAN_GRAD, &a, 2));
    const double there = forward(x, kind, isa, states, wide_states, work),
                 back = backward(x, kind, isa, states, wide_states, work);
    printf("%s, %s, %lld tokens: outputs and states within %.1e, gradients within %.1e\n", names[kind], isa_name(isa),
           (long long)tokens, there, back);
    assert_true(there < 3e-6 && back < 3e-5); /* measured at 2^20 tokens: 6e-7 and 1.0e-5 */
    free(x);
    free(states);
    free(wide_states);
    free(work);
}

static void long_documents_are_exact(void **state)
{
    (void)state;
    for (int kind = SCAN_DELTA; kind <= SCAN_CHANNELS; kind++)
        for (enum isa isa = extent_is_long() ? ISA_PORTABLE : isa_of_processor(); isa <= isa_of_processor(); isa++)
            check_document(kind, isa);
}

int main(void)
{
    if (extent_is_long())
        tokens = LONG;
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(long_documents_are_exact, tensors_free)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
