/* Tests layouts, row maps, masks and needs against definitions applied token by token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/sys.h"
#include "mixes.h"
#include "seqpar/layouts.h"

#include <stdlib.h>
#include <string.h>

enum { MASKS = 6 };

/* Fills the mask number `which`: one document; documents; documents that end at every multiple of n / 4; documents of one token;
 * windows; half padding. */
static void fill_mask(int which, int64_t n, int32_t *lo)
{
    memset(lo, 0, sizeof *lo * (size_t)n);
    if (which == 1)
        mix_pack(lo, 0, n, 1.0 + (double)n / 11, 1.0, 7);
    for (int64_t q = 0; q < n; q++) {
        if (which == 2)
            lo[q] = (int32_t)(q - q % max_i64(n / 4, 1));
        if (which == 3 || (which == 5 && q >= n / 2))
            lo[q] = (int32_t)q;
    }
    if (which == 4)
        mix_window(lo, n, 1 + n / 7);
}

/* ---- every row once ---- */

static void check_rows(const struct seq_layout *l, const struct seq_shape *s)
{
    uint8_t *seen = calloc((size_t)s->padded, 1);
    int32_t *full = calloc((size_t)s->padded, sizeof *full), *local = calloc((size_t)s->padded, sizeof *local);
    for (int64_t q = 0; q < s->padded; q++)
        full[q] = (int32_t)(3 * q + 1);
    for (int i = 0; i < s->ring; i++) {
        int64_t before = -1;
        for (int64_t r = 0; r < seq_member_rows(s); r++) {
            int64_t q = seq_token_of(l, i, r);
            assert_true(q > before && q < s->padded && !seen[q]); /* tokens ascend, and each occurs once */
            before = q;
            seen[q] = 1;
        }
        for (int j = 0; j < s->ulysses; j++)
            seq_gather(l, i, j, full, local + j * seq_rank_rows(s));
        for (int64_t r = 0; r < seq_member_rows(s); r++)
            assert_int_equal(local[r], 3 * seq_token_of(l, i, r) + 1);
    }
    assert_null(memchr(seen, 0, (size_t)s->padded));
    free(seen), free(full), free(local);
}

/* ---- masks, needs and loads, pair by pair ---- */

static void check_blocks(const struct seq_layout *l, const struct seq_shape *s, const int32_t *lo)
{
    int64_t n = seq_member_rows(s);
    int32_t *from = calloc((size_t)s->padded, sizeof *from), *to = calloc((size_t)s->padded, sizeof *to);
    uint8_t *needs = calloc((size_t)s->ring, (size_t)s->ring), *bits = calloc(2, (size_t)s->ring);
    seq_needs(l, lo, needs);
    for (int i = 0; i < s->ring; i++) {
        int64_t all = 0, told = seq_member_masks(l, lo, i, from, to);
        seq_predicates(s->ring, needs, i, bits);
        assert_int_equal(bits[0], 1);
        for (int step = 0; step < s->ring; step++) {
            int src = (i - step + s->ring) % s->ring, user = (i + step) % s->ring;
            const int32_t *a = from + step * n, *z = to + step * n;
            int64_t pairs = 0;
            for (int64_t r = 0; r < n; r++) {
                int64_t q = seq_token_of(l, i, r);
                for (int64_t k = 0; k < n; k++) {
                    int64_t key = seq_token_of(l, src, k);
                    int attended = lo[q] <= key && key <= q;
                    assert_int_equal(a[r] <= k && k <= z[r], attended);
                    pairs += attended;
                }
                assert_true(r == 0 || (a[r] >= a[r - 1] && z[r] >= z[r - 1]));
            }
            assert_int_equal(seq_block_mask(l, lo, i, src, NULL, NULL), pairs);
            assert_int_equal(needs[i * s->ring + src], pairs > 0);
            if (step > 0) {
                assert_int_equal(bits[2 * step - 1], pairs > 0);
                assert_int_equal(bits[2 * step], needs[user * s->ring + i]);
            }
            all += pairs;
        }
        assert_int_equal(told, all);
        assert_int_equal(l->load[i], all);
    }
    free(from), free(to), free(needs), free(bits);
}

static void check_layout(const struct seq_shape *s)
{
    struct seq_layout *l;
    int32_t *lo = calloc((size_t)s->padded, sizeof *lo);
    assert_int_equal(seq_layout_create(s, &l), OK);
    check_rows(l, s);
    for (int mask = 0; mask < MASKS; mask++) {
        fill_mask(mask, s->padded, lo);
        assert_int_equal(seq_layout_assign(l, lo), OK);
        check_rows(l, s);
        check_blocks(l, s, lo);
        assert_true(seq_imbalance(l) <= seq_imbalance_zigzag(l) + 1e-12 && seq_imbalance(l) >= 1);
    }
    seq_layout_destroy(l);
    free(lo);
}

static void layouts_agree_with_definitions(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 7, 48, 100};
    for (int ulysses = 1; ulysses <= 4; ulysses++)
        for (int ring = 1; ring <= 5; ring++)
            for (int k = 0; k < 4; k++) {
                struct seq_shape s;
                assert_int_equal(seq_shape_create(lengths[k], ulysses, ring, SEQ_ZIGZAG, &s), OK);
                check_layout(&s);
                if (ring == 1)
                    continue;
                int per = 2 * (k + 1); /* finer chunks than seq_shape_create chooses for such a short sequence */
                s.kind = SEQ_BALANCED;
                s.chunks = per * ring;
                s.chunk = ceil_div(lengths[k], s.chunks);
                while (s.chunk * per % ulysses)
                    s.chunk++;
                s.padded = s.chunk * s.chunks;
                check_layout(&s);
            }
}

/* ---- shapes ---- */

static void shapes_pad_little_and_divide(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, 63, 64, 1000, 4096, 430080, 1 << 20, 1048577};
    for (int k = 0; k < 9; k++)
        for (int ulysses = 1; ulysses <= 8; ulysses++)
            for (int ring = 1; ring <= 64; ring += ring < 8 ? 1 : 7)
                for (int kind = SEQ_ZIGZAG; kind <= SEQ_AUTO; kind++) {
                    struct seq_shape s;
                    assert_int_equal(seq_shape_create(lengths[k], ulysses, ring, (enum seq_kind)kind, &s), OK);
                    assert_int_equal(s.chunk * s.chunks, s.padded);
                    assert_int_equal(s.padded % (ulysses * ring), 0);
                    int64_t per = s.chunks / ring, unit = per; /* lcm(per, ulysses) */
                    while (unit % ulysses)
                        unit += per;
                    assert_true(s.padded >= lengths[k] && s.padded - lengths[k] < unit * ring);
                    assert_true(ring == 1 ? per == 1 : per >= 2 && per <= 32);
                    assert_true(s.kind == SEQ_ZIGZAG || s.kind == SEQ_BALANCED);
                    assert_true(kind == SEQ_AUTO || ring == 1 || s.kind == (enum seq_kind)kind);
                    if (s.kind == SEQ_ZIGZAG)
                        assert_true(per <= 2);
                    else if (lengths[k] >= 1 << 20)
                        assert_int_equal(per, ring == 1 ? 1 : 32);
                }
    struct seq_shape s;
    assert_int_equal(seq_shape_create(1000, 2, 3, SEQ_ZIGZAG, &s), OK);
    assert_int_equal(s.padded, 1002); /* the next multiple of lcm(2 R, U R) = 6 */
    assert_int_equal(seq_shape_create(8 * 256, 1, 8, SEQ_AUTO, &s), OK);
    assert_int_equal(s.kind, SEQ_BALANCED); /* each member has four chunks of 64 */
    assert_int_equal(seq_shape_create(8 * 255, 1, 8, SEQ_AUTO, &s), OK);
    assert_int_equal(s.kind, SEQ_ZIGZAG);
}

static void impossible_shapes_are_refused(void **state)
{
    (void)state;
    struct seq_shape s;
    struct seq_layout *l;
    assert_int_equal(seq_shape_create(0, 1, 1, SEQ_AUTO, &s), ERR_INVALID);
    assert_int_equal(seq_shape_create(10, 0, 1, SEQ_AUTO, &s), ERR_INVALID);
    assert_int_equal(seq_shape_create(10, 1, -1, SEQ_AUTO, &s), ERR_INVALID);
    assert_int_equal(seq_shape_create(INT32_MAX, 1, 2, SEQ_ZIGZAG, &s), ERR_INVALID);
    assert_non_null(strstr(status_message(), "2147483647"));
    assert_int_equal(seq_shape_create(96, 2, 3, SEQ_ZIGZAG, &s), OK);
    s.chunk++;
    assert_int_equal(seq_layout_create(&s, &l), ERR_INVALID);
}

static void masks_that_are_none_are_refused(void **state)
{
    (void)state;
    struct seq_shape s;
    struct seq_layout *l;
    int32_t lo[12] = {0, 0, 2, 2, 2, 5, 5, 5, 5, 5, 5, 11};
    assert_int_equal(seq_shape_create(12, 1, 3, SEQ_ZIGZAG, &s), OK);
    assert_int_equal(seq_layout_create(&s, &l), OK);
    assert_int_equal(seq_layout_assign(l, lo), OK);
    uint64_t digest = seq_layout_digest(l);
    lo[4] = 3; /* the lengths that another rank might see */
    assert_int_equal(seq_layout_assign(l, lo), OK);
    assert_true(seq_layout_digest(l) != digest);
    lo[4] = 1; /* not ascending */
    assert_int_equal(seq_layout_assign(l, lo), ERR_INVALID);
    lo[4] = 5; /* later than the token itself */
    assert_int_equal(seq_layout_assign(l, lo), ERR_INVALID);
    seq_layout_destroy(l);
}

/* ---- zigzag where it is natural ---- */

static void one_document_is_zigzag(void **state)
{
    (void)state;
    struct seq_shape s;
    struct seq_layout *l;
    assert_int_equal(seq_shape_create(8192, 1, 4, SEQ_BALANCED, &s), OK);
    assert_int_equal(s.chunks, 128);
    int32_t *lo = calloc((size_t)s.padded, sizeof *lo);
    assert_int_equal(seq_layout_create(&s, &l), OK);
    assert_int_equal(seq_layout_assign(l, lo), OK);
    assert_int_equal(l->kind, SEQ_ZIGZAG);
    assert_true(seq_imbalance(l) == 1.0);
    assert_int_equal(seq_token_of(l, 1, 0), 1024); /* member 1's rows are tokens [1024, 2048) and [6144, 7168) */
    assert_int_equal(seq_token_of(l, 1, 1023), 2047);
    assert_int_equal(seq_token_of(l, 1, 1024), 6144);
    for (int64_t q = 2048; q < 8192; q++) /* now the first quarter has more work than all the rest */
        lo[q] = (int32_t)q;
    assert_int_equal(seq_layout_assign(l, lo), OK);
    assert_int_equal(l->kind, SEQ_BALANCED);
    assert_true(seq_imbalance(l) < 1.01 && seq_imbalance_zigzag(l) > 2);
    seq_layout_destroy(l);
    free(lo);
}

static void padding_is_documents_of_one_token(void **state)
{
    (void)state;
    int32_t tokens[8], targets[8], positions[8], lo[8];
    struct seq_tokens t = {tokens, targets, positions, lo};
    struct seq_shape s;
    for (int q = 0; q < 8; q++)
        tokens[q] = targets[q] = positions[q] = 9, lo[q] = 0;
    assert_int_equal(seq_shape_create(5, 2, 2, SEQ_ZIGZAG, &s), OK);
    assert_int_equal(s.padded, 8);
    seq_pad(5, 8, &t);
    for (int q = 0; q < 8; q++) {
        assert_int_equal(tokens[q], q < 5 ? 9 : 0);
        assert_int_equal(targets[q], q < 5 ? 9 : -1);
        assert_int_equal(positions[q], q < 5 ? 9 : 0);
        assert_int_equal(lo[q], q < 5 ? 0 : q);
    }
    seq_pad(0, 8, &t); /* an empty micro-batch */
    assert_int_equal(targets[0], -1);
}

/* Pieces are consecutive tokens in consecutive rows, and the order lists those of all ranks by their tokens. */
static void check_pieces(const struct seq_shape *s, const struct seq_layout *l)
{
    const int64_t piece = seq_piece(s), rows = seq_rank_rows(s), n = rows / piece, all = s->padded / piece;
    const int64_t P = (int64_t)s->ring * s->ulysses;
    int32_t *order = calloc((size_t)(all + 2 * n), sizeof *order);
    for (int64_t p = 0; p < P; p++) {
        const int i = (int)(p / s->ulysses), j = (int)(p % s->ulysses);
        seq_piece_order(l, i, j, order);
        for (int64_t at = 0; at < all; at++) {
            const int64_t member = order[at] % P, place = order[at] / P;
            for (int64_t row = 0; row < piece; row++)
                assert_int_equal(seq_token_of(l, (int)(member / s->ulysses), member % s->ulysses * rows + place * piece + row),
                                 at * piece + row);
            if (member != p)
                continue;
            for (int next = 0; next < 2; next++) {
                const int32_t other = order[(at + (next ? 1 : all - 1)) % all];
                assert_int_equal(order[all + next * n + place], other % P * n + other / P);
            }
        }
    }
    free(order);
}

static void pieces_are_in_the_order_of_tokens(void **state)
{
    (void)state;
    static const int64_t lengths[] = {5, 100, 1000, 40000};
    for (int k = 0; k < 4; k++)
        for (int ulysses = 1; ulysses <= 4; ulysses++)
            for (int ring = 1; ring <= 4; ring++) {
                struct seq_shape s;
                struct seq_layout *l;
                assert_int_equal(seq_shape_create_pieces(lengths[k], ulysses, ring, SEQ_AUTO, 3, 1, &s), OK);
                assert_int_equal(seq_layout_create(&s, &l), OK);
                const int64_t piece = seq_piece(&s);
                assert_true(ulysses * ring == 1 || (piece % 4 == 0 && piece >= (lengths[k] == 40000 ? 256 : 4)));
                assert_true(lengths[k] < 1000 || 8 * s.padded <= 9 * (lengths[k] + ulysses * ring));
                int32_t *lo = calloc((size_t)s.padded, sizeof *lo);
                check_pieces(&s, l);
                for (int64_t q = s.padded / 4; q < s.padded; q++)
                    lo[q] = (int32_t)q;
                assert_int_equal(seq_layout_assign(l, lo), OK);
                check_pieces(&s, l);
                seq_layout_destroy(l);
                free(lo);
            }
}

static void out_of_memory_is_told(void **state)
{
    (void)state;
    struct seq_shape s;
    struct seq_layout *l = NULL;
    assert_int_equal(seq_shape_create(64, 1, 2, SEQ_ZIGZAG, &s), OK);
    for (int nth = 1; nth <= 5; nth++) {
        sys_inject(SYS_MALLOC, nth, 12);
        assert_int_equal(seq_layout_create(&s, &l), ERR_NOMEM);
        sys_inject_clear();
    }
    assert_null(l);
    seq_layout_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_agree_with_definitions),
        cmocka_unit_test(shapes_pad_little_and_divide),
        cmocka_unit_test(impossible_shapes_are_refused),
        cmocka_unit_test(masks_that_are_none_are_refused),
        cmocka_unit_test(one_document_is_zigzag),
        cmocka_unit_test(padding_is_documents_of_one_token),
        cmocka_unit_test(pieces_are_in_the_order_of_tokens),
        cmocka_unit_test(out_of_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
