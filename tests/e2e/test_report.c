/* ltrain report: the file has what the run recorded, in bounded space; what is no run is refused. */
#include "harness.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Reads the data in a report; the caller frees them. */
static json_t *data_of(const char *path)
{
    static const char begin[] = "<script type=\"application/json\" id=\"data\">", end[] = "</script>";
    char *text = e2e_read(path, NULL), *from = strstr(text, begin), *to = from ? strstr(from, end) : NULL;
    json_error_t error;
    assert_non_null(to);
    json_t *root = json_loadb(from + strlen(begin), (size_t)(to - from) - strlen(begin), 0, &error);
    if (!root)
        fail_msg("%s: %s", path, error.text);
    free(text);
    return root;
}

static json_t *run_of(const json_t *data, size_t i)
{
    json_t *run = json_array_get(json_object_get(data, "runs"), i);
    assert_non_null(run);
    return run;
}

static double sum_of(const json_t *list)
{
    double sum = 0;
    json_t *x;
    size_t i;
    json_array_foreach(list, i, x) sum += json_number_value(x);
    return sum;
}

static const json_t *curve(const json_t *run, const char *name)
{
    const json_t *c = json_object_get(json_object_get(json_object_get(run, "history"), "curves"), name);
    assert_non_null(c);
    return c;
}

static int64_t history(const json_t *run, const char *name)
{
    return json_integer_value(json_object_get(json_object_get(run, "history"), name));
}

/* Every step, evaluation and stall of the log is in the report, and every key of the log is in the documented table. */
static void a_run_with_all_that_happens(void **state)
{
    (void)state;
    double tokens = 0, stalled = 0;
    int lines = 0, evaluations = 0;
    e2e_succeeds(NULL, "--out run --steps 6 --save-every 3 --eval-fraction 0.2 --eval-every 2 --trace 2" TINY DISCRETE);
    e2e_succeeds(NULL, "--resume run --steps 8");
    e2e_succeeds(NULL, "report run");
    json_t *data = data_of("run/report.html"), *run = run_of(data, 0);
    char *log = e2e_read("run/metrics.jsonl", NULL), *keys = strdup(e2e_succeeds(NULL, "report --keys").out);
    for (char *line = strtok(log, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        json_t *o = json_loads(line, 0, NULL), *x;
        const char *key;
        json_object_foreach(o, key, x)
        {
            char row[64];
            snprintf(row, sizeof row, "| `%s` |", key);
            e2e_contains(keys, row);
        }
        tokens += json_number_value(json_object_get(o, "tokens"));
        stalled += json_number_value(json_object_get(o, "stall_seconds"));
        evaluations += json_object_get(o, "eval_loss") != NULL;
        assert_int_equal(json_object_get(o, "resumed") != NULL, lines == 6);
        if (lines == 7)
            assert_true(fabs(json_number_value(json_object_get(json_object_get(run, "history"), "last_loss")) -
                             json_number_value(json_object_get(o, "loss"))) < 1e-6);
        json_decref(o);
    }
    assert_int_equal(lines, 8);
    assert_int_equal(history(run, "steps"), 8);
    assert_int_equal(history(run, "resumed"), 1);
    assert_int_equal(json_array_size(curve(run, "loss")), 8);
    assert_true(sum_of(curve(run, "tokens")) == tokens);
    assert_true(fabs(sum_of(curve(run, "stall_seconds")) - stalled) <= 1e-5 * stalled); /* seven digits */
    assert_int_equal(json_array_size(json_object_get(json_object_get(run, "history"), "evaluations")), evaluations);
    assert_true(evaluations == 4 && json_array_size(json_object_get(run, "traces")) == 1);
    assert_true(json_array_size(json_object_get(run, "settings")) > 50);
    assert_int_equal(json_array_size(json_object_get(run, "notes")), 0);
    free(log);
    free(keys);
    json_decref(data);
}

/* docs/metrics.md has the table that the program prints. */
static void the_documented_keys(void **state)
{
    (void)state;
    char path[4096];
    snprintf(path, sizeof path, "%s/docs/metrics.md", getenv("LTRAIN_SOURCE_ROOT"));
    char *page = e2e_read(path, NULL);
    e2e_contains(page, e2e_succeeds(NULL, "report --keys").out);
    free(page);
}

static void write_log(const char *path, int first, int last)
{
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    for (int s = first; s <= last; s++)
        fprintf(
            f,
            "{\"step\":%d,\"loss\":%d.5e0,\"seconds\":0.25,\"tokens\":1024,\"stalls\":{\"h2d\":{\"parameters\":0.125},\"?\":{}},"
            "\"skipped\":%s%s}\n",
            s, s % 4, s % 1000 == 0 ? "true" : "false",
            s % 50 == 0 ? ",\"eval_loss\":2.5,\"eval_loss_by_position\":{\"1\":3,\"64\":2}" : "");
    assert_int_equal(fclose(f), 0);
}

/* A long log becomes at most 1,024 points, whose sums, bounds and counts are those of its lines; damaged lines are counted. */
static void a_long_and_damaged_log(void **state)
{
    (void)state;
    struct stat s;
    assert_int_equal(mkdir("long", 0777), 0);
    write_log("long/metrics.jsonl", 1, 30000);
    FILE *f = fopen("long/metrics.jsonl", "a");
    fputs(
        "no object\n{\"step\":30001,\"mfu_reference\":\"\xff\"}\n{\"step\":30002,\"loss\":\n{\"step\":\"x\"}\n{}\n\n{\"step\":7,\"tokens\":1}\n",
        f);
    assert_int_equal(fclose(f), 0);
    write_log("long/metrics.jsonl", 30002, 30002);
    e2e_succeeds(NULL, "report long/");
    json_t *data = data_of("long/report.html"), *run = run_of(data, 0);
    const size_t points = json_array_size(curve(run, "step"));
    assert_true(points > 512 && points <= 1024);
    assert_int_equal(history(run, "steps"), 30002);
    assert_int_equal(history(run, "steps_per_point"), 32);
    assert_int_equal(history(run, "skipped"), 30);
    assert_int_equal(history(run, "damaged"), 5);
    assert_int_equal(history(run, "repeated"), 1);
    assert_true(sum_of(curve(run, "tokens")) == 30001 * 1024.);
    for (size_t i = 0; i + 1 < points; i++) {
        assert_true(json_number_value(json_array_get(curve(run, "loss"), i)) == 2.0); /* 0.5, 1.5, 2.5, 3.5 in turn */
        assert_true(json_number_value(json_array_get(curve(run, "loss_low"), i)) == 0.5);
        assert_true(json_number_value(json_array_get(curve(run, "loss_high"), i)) == 3.5);
    }
    const json_t *h = json_object_get(run, "history"), *evaluations = json_object_get(h, "evaluations");
    assert_int_equal(json_array_size(evaluations), 300); /* every second one of 600 */
    assert_true(sum_of(json_object_get(json_object_get(json_object_get(h, "stalls"), "h2d"), "curve")) == 30001 * 0.125);
    assert_int_equal(stat("long/report.html", &s), 0);
    assert_true(s.st_size < 400 * 1024);
    json_decref(data);
}

/* Texts of a run can neither end the script that holds them nor be left out silently. */
static void names_that_look_like_markup(void **state)
{
    (void)state;
    assert_int_equal(mkdir("<b>x", 0777), 0);
    write_log("<b>x/metrics.jsonl", 1, 2);
    e2e_write("<b>x/card.json", "{\"commands\": [\"</script><script>alert(1)</script>\"]}");
    e2e_write("<b>x/plan.json", "{\"peak\": ");
    e2e_succeeds(NULL, "report <b>x --to page.html");
    char *page = e2e_read("page.html", NULL);
    assert_null(strstr(page, "<b>x"));
    assert_null(strstr(page, "alert(1)</script>"));
    free(page);
    json_t *data = data_of("page.html"), *run = run_of(data, 0);
    assert_string_equal(json_string_value(json_object_get(run, "name")), "<b>x");
    assert_string_equal(json_string_value(json_array_get(json_object_get(json_object_get(run, "card"), "commands"), 0)),
                        "</script><script>alert(1)</script>");
    char *notes = json_dumps(json_object_get(run, "notes"), 0);
    e2e_contains(notes, "plan.json: damaged");
    e2e_contains(notes, "config.yaml cannot be read");
    free(notes);
    json_decref(data);
}

static void several_runs_and_scores(void **state)
{
    (void)state;
    e2e_write("scores.json",
              "{\"model\": \"m\", \"results\": [{\"task\": \"needle\", \"length\": 512, \"depth\": 25.0, \"score\": 0.5, "
              "\"answers\": [{}, {}]}]}");
    e2e_succeeds(NULL, "report long run scores.json");
    json_t *data = data_of("report.html");
    assert_int_equal(json_array_size(json_object_get(data, "runs")), 2);
    const json_t *first = json_array_get(json_object_get(json_array_get(json_object_get(data, "scores"), 0), "results"), 0);
    assert_int_equal(json_integer_value(json_object_get(first, "answers")), 2);
    json_decref(data);
}

static void what_is_refused(void **state)
{
    (void)state;
    e2e_refuses(2, "which run?", NULL, "report");
    e2e_refuses(2, "nowhere|No such file", NULL, "report nowhere");
    e2e_refuses(2, "no run's directory|metrics.jsonl|--out", NULL, "report .");
    e2e_refuses(2, "corpus.txt is neither", NULL, "report corpus.txt");
    e2e_refuses(2, "corpus.txt is there and is no report|--to", NULL, "report long --to corpus.txt");
    e2e_refuses(2, "'--steps' is not known|--to FILE and --keys", NULL, "report long --steps 3");
    e2e_refuses(2, "--keys prints a list|long", NULL, "report --keys long");
    e2e_refuses(1, "cannot write|--to FILE", NULL, "report long --to nowhere/x.html");
    e2e_refuses(1, "cannot write|No space left", &(struct launch){.fault = "open:6:ENOSPC"}, "report long --to new.html");
    assert_false(e2e_exists("new.html") || e2e_exists("new.html.partial"));
    e2e_succeeds(NULL, "report long --to report.html"); /* an older report is replaced */
    e2e_contains(e2e_succeeds(NULL, "report --help").out, "SCORES.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_with_all_that_happens), cmocka_unit_test(the_documented_keys),
        cmocka_unit_test(a_long_and_damaged_log),      cmocka_unit_test(names_that_look_like_markup),
        cmocka_unit_test(several_runs_and_scores),     cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, e2e_setup, e2e_teardown);
}
