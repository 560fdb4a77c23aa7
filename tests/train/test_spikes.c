/* Tests how far values lie above those before, and that a log gives them back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "train/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct spikes_series series;

static void begin(void)
{
    memset(&series, 0, sizeof series);
}

static void nothing_is_said_of_few_values(void **state)
{
    (void)state;
    begin();
    for (int i = 0; i < SPIKES_LEAST; i++)
        assert_true(isnan(spikes_add(&series, i % 2)));
    assert_true(isnan(spikes_add(&series, NAN)) && isnan(spikes_add(&series, INFINITY)));
    assert_int_equal(series.n, SPIKES_LEAST);
    /* half of them 0, half 1: mean 0.5, standard deviation 0.5 */
    assert_true(fabs(spikes_add(&series, 4.0) - 7.0) < 1e-12);
    assert_int_equal(series.judged, 1);
    assert_int_equal(series.spikes, 1);
}

static void equal_values_have_no_deviation(void **state)
{
    (void)state;
    begin();
    for (int i = 0; i < 2 * SPIKES_LEAST; i++)
        assert_true(isnan(spikes_add(&series, 3)));
    assert_int_equal(series.judged, 0);
}

/* Values older than the window do not count: after a window of other values the mean is theirs. */
static void old_values_are_forgotten(void **state)
{
    (void)state;
    begin();
    for (int i = 0; i < 100; i++)
        (void)spikes_add(&series, 1e6);
    for (int i = 0; i < SPIKES_WINDOW; i++)
        (void)spikes_add(&series, i % 2);
    assert_true(fabs(spikes_add(&series, 2.5) - 4.0) < 1e-12);
    assert_int_equal(series.spikes, 0);
}

/* A log that is cut gives back the values of the lines that stay, except those that were not finite. */
static void a_log_gives_them_back(void **state)
{
    (void)state;
    char path[] = "/tmp/ltrain-test-spikes-XXXXXX";
    struct spikes kept;
    int64_t last;
    memset(&kept, 0, sizeof kept);
    const int fd = mkstemp(path);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    assert_non_null(f);
    fputs("{\"step\":0,\"eval_loss\":5.5}\n", f);
    for (int i = 1; i <= 6; i++) {
        struct step_metrics m = {
            .step = i, .loss = i == 2 ? NAN : 10 + i, .grad_norm = 20 + i, .seconds = 1, .peak_flops = 1, .peak_reference = ""};
        assert_int_equal(metrics_append(&m, f), OK);
    }
    assert_int_equal(fclose(f), 0);
    assert_int_equal(metrics_cut(path, 4, &kept, &last), OK);
    assert_int_equal(last, 6);
    assert_int_equal(kept.loss.n, 3);
    assert_int_equal(kept.norm.n, 4);
    assert_true(kept.loss.value[0] == 11 && kept.loss.value[1] == 13 && kept.loss.value[2] == 14 && kept.norm.value[3] == 24);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_said_of_few_values),
        cmocka_unit_test(equal_values_have_no_deviation),
        cmocka_unit_test(old_values_are_forgotten),
        cmocka_unit_test(a_log_gives_them_back),
    };
    return cmocka_run_group_tests_name("spikes", tests, NULL, NULL);
}
