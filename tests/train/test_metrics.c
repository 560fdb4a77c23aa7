/* Tests the line of a step as people read it, and a log that cannot be written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/sys.h"
#include "train/metrics.h"
#include "train/run_log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* Rates of steps that take minutes or hours still have significant digits. */
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
    struct step_metrics m = {
        .step = 1, .steps = 2, .tokens = 4096, .model_flops = 2e9, .peak_flops = 1e12, .peak_reference = "a peak"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        m.seconds = cases[i].seconds;
        line_has(&m, cases[i].rates);
    }
}

static char path[] = "/tmp/ltrain-test-log-XXXXXX";

/* Returns the steps of the lines in the file, in order, as "1 2 3 ". */
static const char *steps_in_file(char text[64])
{
    char line[4096];
    FILE *f = fopen(path, "re");
    size_t n = 0;
    assert_non_null(f);
    text[0] = 0;
    while (fgets(line, sizeof line, f)) {
        int step;
        assert_int_equal(sscanf(line, "{\"step\":%d,", &step), 1);
        assert_int_equal(line[strlen(line) - 2], '}'); /* whole */
        n += (size_t)snprintf(text + n, 64 - n, "%d ", step);
    }
    fclose(f);
    return text;
}

static void add(struct run_log *l, int step, int error)
{
    struct step_metrics m = {
        .step = step, .steps = 9, .tokens = 1, .seconds = 1, .model_flops = 1, .peak_flops = 1, .peak_reference = "a peak"};
    sys_inject_clear();
    if (error)
        sys_inject(SYS_PWRITE, 1, error);
    assert_int_equal(run_log_add(l, &m), OK);
    sys_inject_clear();
}

/* Lines that cannot be written are written together with a later one; if they can never be written, the error says how many there
 * are. */
static void a_full_disk(void **state)
{
    (void)state;
    char text[64];
    struct run_log *l;
    close(mkstemp(path));
    assert_int_equal(run_log_open(path, 0, 1, &l), OK);
    add(l, 1, 0);
    add(l, 2, ENOSPC);
    add(l, 3, EDQUOT);
    assert_string_equal(steps_in_file(text), "1 ");
    add(l, 4, SYS_SHORT); /* the rest of it is written */
    assert_string_equal(steps_in_file(text), "1 2 3 4 ");
    add(l, 5, EIO);
    assert_int_equal(run_log_close(l), OK);
    assert_string_equal(steps_in_file(text), "1 2 3 4 5 ");
    assert_int_equal(run_log_open(path, 1, 1, &l), OK);
    add(l, 6, 0);
    add(l, 7, ENOSPC);
    sys_inject(SYS_PWRITE, 1, ENOSPC);
    assert_int_equal(run_log_close(l), ERR_IO);
    assert_non_null(strstr(status_message(), "the lines of 1 steps are missing in /tmp/ltrain-test-log-"));
    assert_string_equal(steps_in_file(text), "1 2 3 4 5 6 ");
    sys_inject_clear();
    assert_int_equal(unlink(path) | mkdir(path, 0777), 0);
    assert_int_equal(run_log_open(path, 1, 1, &l), ERR_IO);
    rmdir(path);
}

/* Returns the sum of a key over the file's lines. */
static int64_t summed(const char *key)
{
    char *line = NULL;
    size_t room = 0;
    int64_t sum = 0;
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (getline(&line, &room, f) > 0) {
        json_t *o = json_loads(line, 0, NULL);
        sum += json_integer_value(json_object_get(o, key));
        json_decref(o);
    }
    free(line);
    fclose(f);
    return sum;
}

/* With some steps to a line, each line has the sums since the one before; steps that are saved, skipped or the last have their own,
 * and a line that a full disk puts off has all that it stands for. */
static void several_steps_to_a_line(void **state)
{
    (void)state;
    char text[64];
    struct run_log *l;
    strcpy(path, "/tmp/ltrain-test-log-XXXXXX");
    close(mkstemp(path));
    assert_int_equal(run_log_open(path, 0, 4, &l), OK);
    for (int step = 1; step <= 6; step++)
        add(l, step, 0);
    assert_string_equal(steps_in_file(text), "4 ");
    assert_int_equal(summed("tokens"), 4);
    assert_int_equal(summed("steps"), 4);
    run_log_sync(l);
    assert_string_equal(steps_in_file(text), "4 6 ");
    assert_int_equal(summed("tokens"), 6);
    struct step_metrics skipped = {.step = 7, .steps = 9, .tokens = 1, .seconds = 1, .skipped = "its norm is nan"};
    assert_int_equal(run_log_add(l, &skipped), OK);
    add(l, 8, ENOSPC);
    assert_string_equal(steps_in_file(text), "4 6 7 ");
    add(l, 9, 0);
    assert_string_equal(steps_in_file(text), "4 6 7 8 9 ");
    add(l, 10, 0);
    assert_int_equal(run_log_close(l), OK);
    assert_string_equal(steps_in_file(text), "4 6 7 8 9 10 ");
    assert_int_equal(summed("tokens"), 10);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(slow_steps), cmocka_unit_test(a_full_disk),
                                       cmocka_unit_test(several_steps_to_a_line)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
