/* The line of a step, as people read it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "train/metrics.h"

#include <stdlib.h>
#include <string.h>

static void line_has(const struct step_metrics *m, const char *part)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    metrics_print(m, f, 0);
    assert_int_equal(fclose(f), 0);
    if (!strstr(text, part))
        fail_msg("'%s' is not in: %s", part, text);
    free(text);
}

/* Steps may take minutes and hours: what they make a second still has digits. */
static void slow_steps(void **state)
{
    (void)state;
    static const struct {
        double seconds;
        const char *rates;
    } cases[] = {{0.01, "  409600 tok/s  200 GF 20%  "},
                 {2.5, "  1638 tok/s  0.8 GF 0%  "},
                 {100, "  41 tok/s  0.02 GF 0%  "},
                 {36000, "  0.114 tok/s  5.56e-05 GF 0%  "}};
    struct step_metrics m = {.step = 1, .steps = 2, .tokens = 4096, .model_flops = 2e9, .peak_flops = 1e12};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        m.seconds = cases[i].seconds;
        line_has(&m, cases[i].rates);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(slow_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
