/* Compares the tokens that may be drawn with transformers' processors (tests/golden/make_generate.py); also tests draws, and
 * logits from which nothing can be drawn. */
#include "sample/sampler.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 64 };

static double number(const json_t *o, const char *name, double none)
{
    const json_t *x = json_object_get(o, name);
    return x ? json_number_value(x) : none;
}

static struct sampler_settings settings_of(const json_t *o)
{
    return (struct sampler_settings){.temperature = number(o, "temperature", 1),
                                     .top_k = (int64_t)number(o, "top_k", 0),
                                     .top_p = number(o, "top_p", 1),
                                     .min_p = number(o, "min_p", 0),
                                     .repetition_penalty = number(o, "repetition_penalty", 1)};
}

static void check_case(const json_t *o, size_t index)
{
    const json_t *logits = json_object_get(o, "logits"), *tokens = json_object_get(o, "tokens"), *ids = json_object_get(o, "ids"),
                 *p = json_object_get(o, "p");
    float x[MOST];
    int32_t text[MOST];
    int64_t vocab = (int64_t)json_array_size(logits), n_text = (int64_t)json_array_size(tokens), n;
    const struct sampler_choice *c;
    struct sampler *s;
    struct sampler_settings set = settings_of(json_object_get(o, "settings"));
    for (int64_t i = 0; i < vocab; i++)
        x[i] = (float)json_number_value(json_array_get(logits, (size_t)i));
    for (int64_t i = 0; i < n_text; i++)
        text[i] = (int32_t)json_integer_value(json_array_get(tokens, (size_t)i));
    assert_int_equal(sampler_create(&set, vocab, &s), OK);
    assert_int_equal(sampler_choices(s, x, text, n_text, &c, &n), OK);
    if (n != (int64_t)json_array_size(ids))
        fail_msg("case %zu: %lld tokens are left, and transformers leaves %zu", index, (long long)n, json_array_size(ids));
    for (int64_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < (size_t)n && json_integer_value(json_array_get(ids, k)) != c[i].id)
            k++;
        if (k == (size_t)n || fabs(json_number_value(json_array_get(p, k)) - (double)c[i].p) > 1e-6)
            fail_msg("case %zu: token %d has probability %g", index, c[i].id, (double)c[i].p);
    }
    sampler_destroy(s);
}

static void test_processors(void **state)
{
    char path[600];
    const char *root = getenv("LTRAIN_SOURCE_ROOT");
    (void)state;
    snprintf(path, sizeof path, "%s/tests/golden/sampling.json", root ? root : ".");
    json_t *all = json_load_file(path, 0, NULL);
    assert_true(json_array_size(all) > 10);
    for (size_t i = 0; i < json_array_size(all); i++)
        check_case(json_array_get(all, i), i);
    json_decref(all);
}

/* Shares of many draws are the probabilities; the same seed and index give the same token. */
static void test_draws(void **state)
{
    enum { DRAWS = 20000 };
    static const double p[4] = {0.5, 0.3, 0.15, 0.05};
    int count[4] = {0}, differ = 0;
    struct sampler *a, *b;
    (void)state;
    struct sampler_settings set = {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 3}, other = set;
    other.seed = 4;
    assert_int_equal(sampler_create(&set, 4, &a), OK);
    assert_int_equal(sampler_create(&other, 4, &b), OK);
    for (int i = 0; i < DRAWS; i++) {
        int32_t x, y, z;
        float logits[4], again[4], others[4];
        for (int k = 0; k < 4; k++)
            logits[k] = again[k] = others[k] = (float)log(p[k]);
        assert_int_equal(sampler_next(a, logits, NULL, 0, i, &x), OK);
        assert_int_equal(sampler_next(a, again, NULL, 0, i, &y), OK);
        assert_int_equal(sampler_next(b, others, NULL, 0, i, &z), OK);
        assert_int_equal(x, y);
        differ += x != z;
        count[x]++;
    }
    for (int k = 0; k < 4; k++) /* five standard deviations */
        assert_true(fabs((double)count[k] / DRAWS - p[k]) < 5 * sqrt(p[k] * (1 - p[k]) / DRAWS));
    assert_true(differ > DRAWS / 4);
    sampler_destroy(a);
    sampler_destroy(b);
}

static void test_greedy(void **state)
{
    struct sampler *s;
    int32_t id;
    float logits[5] = {1, 3, 3, -INFINITY, 2};
    static const int32_t text[] = {1, 1, 2};
    (void)state;
    assert_int_equal(sampler_create(&(struct sampler_settings){.repetition_penalty = 1}, 5, &s), OK);
    assert_int_equal(sampler_next(s, logits, text, 3, 0, &id), OK);
    assert_int_equal(id, 1); /* the first of equal logits counts */
    logits[2] = NAN;
    assert_int_equal(sampler_next(s, logits, text, 3, 0, &id), ERR_DIVERGED);
    for (int i = 0; i < 5; i++)
        logits[i] = -INFINITY;
    assert_int_equal(sampler_next(s, logits, text, 3, 0, &id), ERR_DIVERGED);
    sampler_destroy(s);
    assert_int_equal(sampler_create(&(struct sampler_settings){.repetition_penalty = 2}, 5, &s), OK);
    float penalized[5] = {1, 3, 3, -1, 2};
    assert_int_equal(sampler_next(s, penalized, text, 3, 0, &id), OK); /* the repetition penalty changes 3 to 1.5, only once */
    assert_int_equal(id, 4);
    sampler_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_processors), cmocka_unit_test(test_draws),
                                       cmocka_unit_test(test_greedy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
