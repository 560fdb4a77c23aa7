/* Tests Ulysses, ring and 2D attention on many meshes, in fp64, against attention by definition on one rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "layouts.h"
#include "mesh.h"
#include "mixes.h"
#include "volumes.h"

enum mask { ONE, DOCUMENTS, ONE_TOKEN, ON_BORDERS, WINDOW, WINDOWED_DOCUMENTS, HALF_PADDING, ALL_PADDING, MASKS };

static const int head_counts[][2] = {{4, 4}, {4, 2}, {4, 1}, {6, 2}, {7, 1}, {8, 2}, {3, 3}, {12, 4}};

/* Fills lo: the mask for the real tokens, whose number it chooses, and padding after them. */
static void fill_mask(enum mask mask, const struct seq_shape *s, struct problem *x)
{
    int32_t *ignored = calloc((size_t)s->padded, sizeof *ignored);
    struct seq_tokens t = {ignored, ignored, ignored, x->lo};
    int64_t used = mask == HALF_PADDING ? s->padded / 2 : mask == ALL_PADDING ? 0 : s->seq_len, border = seq_rank_rows(s);
    for (int64_t q = 0; q < used; q++)
        x->lo[q] = (int32_t)(mask == ONE_TOKEN ? q : mask == ON_BORDERS ? q - q % border : 0);
    if (mask == DOCUMENTS || mask == WINDOWED_DOCUMENTS)
        mix_pack(x->lo, 0, used, 9, 1.2, (uint64_t)(s->padded * s->ring));
    if (mask == WINDOW || mask == WINDOWED_DOCUMENTS)
        mix_window(x->lo, used, 5);
    seq_pad(used, s->padded, &t);
    for (int64_t i = used * x->H * x->D; i < s->padded * x->H * x->D; i++)
        x->g[i] = 0; /* padding has no loss, so o's gradient is 0 there */
    free(ignored);
}

/* ---- comparing ---- */

/* Returns the largest difference, relative to the reference's largest element or to 1 if that is larger (with documents of one
 * token dq = dk = 0). */
static double error_of(const struct mesh *m, size_t field, const double *reference, int64_t width)
{
    double worst = 0, largest = 1;
    for (int64_t i = 0; i < m->x->n * width; i++)
        largest = fmax(largest, fabs(reference[i]));
    for (int r = 0; r < m->U * m->R; r++) {
        const double *have = *(double *const *)((const char *)&m->rank[r] + field);
        for (int64_t row = 0; row < m->n; row++)
            for (int64_t c = 0; c < width; c++) {
                double d = fabs(have[row * width + c] - reference[m->rank[r].token[row] * width + c]);
                worst = d <= worst ? worst : d; /* NaN stays */
            }
    }
    return worst / largest;
}

/* Rounding errors of fp64 sums of some hundred terms are 1e-15 to 1e-14; the exponential of scores of about 100 multiplies them
 * by 100. */
static const double TOLERANCE = 1e-12;
static double worst_error;

static void compare(const struct mesh *m)
{
    const struct problem *x = m->x;
    int64_t q = (int64_t)x->H * x->D, k = (int64_t)x->K * x->D;
    const double error[] = {error_of(m, FIELD(o), x->o, q), error_of(m, FIELD(lse), x->lse, x->H),
                            error_of(m, FIELD(dq), x->dq, q), error_of(m, FIELD(dk), x->dk, k), error_of(m, FIELD(dv), x->dv, k)};
    static const char *const names[] = {"o", "lse", "dq", "dk", "dv"};
    for (int t = 0; t < 5; t++) {
        if (!(error[t] <= TOLERANCE))
            fail_msg("%s: error %g at ulysses=%d ring=%d heads %d/%d", names[t], error[t], m->U, m->R, x->H, x->K);
        worst_error = fmax(worst_error, error[t]);
    }
}

static void compare_bytes(const struct mesh *m, const uint8_t *needs)
{
    const struct seq_shape *s = m->shape;
    struct seq_heads h = {m->x->H, m->x->K, m->x->D, STORAGE};
    struct seq_volume all = seq_volume(s, &h, SEQ_RESEND_QKV);
    int64_t forward = 0, backward = 0, needed = 0;
    for (int i = 0; i < m->R; i++) {
        struct seq_volume v = seq_volume_pruned(s, &h, SEQ_RESEND_QKV, needs, i);
        for (int j = 0; j < m->U; j++) {
            const int64_t *sent = m->rank[i * m->U + j].sent;
            assert_int_equal(sent[A2A_FORWARD], v.all_to_all_forward);
            assert_int_equal(sent[A2A_BACKWARD], v.all_to_all_backward);
            assert_int_equal(sent[RING_FORWARD], v.ring_forward);
            assert_int_equal(sent[RING_BACKWARD], v.ring_backward);
            forward += sent[RING_FORWARD];
            backward += sent[RING_BACKWARD];
        }
        for (int src = 0; src < m->R; src++)
            needed += src != i && needs[i * m->R + src];
        assert_int_equal(v.all_to_all_forward, all.all_to_all_forward);
    }
    if (m->R > 1) { /* with pruning, only the needed share of the blocks is sent */
        assert_int_equal(forward * (m->R - 1), needed * all.ring_forward * m->U);
        assert_int_equal(backward * (m->R - 1), needed * all.ring_backward * m->U);
    }
}

/* ---- the predicates ---- */

static void check_schedule(const struct mesh *m, const uint8_t *needs)
{
    for (int i = 0; i < m->R; i++)
        for (int s = 0; s < m->R; s++) {
            int src = (i - s + m->R) % m->R;
            int64_t pairs = 0;
            for (int64_t r = 0; r < m->rows; r++)
                for (int64_t k = 0; k < m->rows; k++) {
                    int64_t q = seq_token_of(m->layout, i, r), key = seq_token_of(m->layout, src, k);
                    pairs += m->x->lo[q] <= key && key <= q;
                }
            assert_int_equal(needs[i * m->R + src], pairs > 0); /* exactly the blocks without attended pairs are skipped */
            if (s > 0) {
                assert_int_equal(m->bits[i][2 * s - 1], pairs > 0);
                assert_int_equal(m->bits[src][2 * s], pairs > 0); /* the sender agrees with the receiver */
            }
        }
}

static int all_padding_ranks(const struct mesh *m, int64_t used)
{
    int count = 0;
    for (int r = 0; r < m->U * m->R; r++)
        count += m->rank[r].token[0] >= used; /* ascending */
    return count;
}

/* ---- every mesh ---- */

static int runs, skipped_blocks, empty_ranks;

static void run(const struct seq_shape *s, int H, int K, enum mask mask, double gain)
{
    struct problem x;
    struct seq_layout *l;
    struct mesh m;
    uint8_t needs[MAX_RING * MAX_RING];
    problem_create(&x, s->padded, H, K, 3, gain);
    fill_mask(mask, s, &x);
    problem_solve(&x);
    assert_int_equal(seq_layout_create(s, &l), OK);
    assert_int_equal(seq_layout_assign(l, x.lo), OK);
    seq_needs(l, x.lo, needs);
    mesh_create(&m, &x, s, l, needs);
    check_schedule(&m, needs);
    mesh_run(&m);
    compare(&m);
    compare_bytes(&m, needs);
    runs++;
    for (int b = 0; b < s->ring * s->ring; b++)
        skipped_blocks += !needs[b];
    empty_ranks += mask == HALF_PADDING && all_padding_ranks(&m, s->padded / 2) > 0;
    mesh_destroy(&m);
    seq_layout_destroy(l);
    problem_destroy(&x);
}

static void run_masks(const struct seq_shape *s, int heads)
{
    int H = head_counts[heads][0], K = head_counts[heads][1];
    struct seq_heads h = {H, K, 3, STORAGE};
    if (seq_degrees_check(s->ulysses * s->ring, s->ulysses, s->ring, &h, 1) != OK)
        return;
    for (int mask = 0; mask < MASKS; mask++)
        run(s, H, K, (enum mask)mask, mask % 2 ? 1 : 60); /* gain for scores of about +-1 or +-100 */
}

static void meshes_agree_with_one_rank(void **state)
{
    (void)state;
    for (int U = 1; U <= 4; U++)
        for (int R = 1; R <= MAX_RING; R++)
            for (int heads = 0; heads < (int)(sizeof head_counts / sizeof *head_counts); heads++) {
                struct seq_shape s;
                int64_t seq_len = (U + R + heads) % 2 ? 48 : 37; /* 48 is divisible by most degrees, 37 by none */
                assert_int_equal(seq_shape_create(seq_len, U, R, SEQ_ZIGZAG, &s), OK);
                run_masks(&s, heads);
                if (R == 1)
                    continue;
                s.kind = SEQ_BALANCED; /* six chunks per member, finer than seq_shape_create chooses for such a short sequence */
                s.chunks = 6 * R;
                s.chunk = U == 4 ? 2 : 1 + (heads & 1);
                s.padded = s.chunk * s.chunks;
                s.seq_len = s.padded - (s.padded > 9 ? heads % 4 : 0);
                run_masks(&s, heads);
            }
    print_message("%d runs, worst error %.1e, %d blocks left out, %d runs with a rank of padding only\n", runs, worst_error,
                  skipped_blocks, empty_ranks);
    assert_true(runs > 500 && skipped_blocks > 1000 && empty_ranks > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(meshes_agree_with_one_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
