/* A run leaves what its steps took, and later plans use that when they are asked to. */
#include "harness.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int own_cache(void)
{
    return setenv("XDG_CACHE_HOME", "/proc/self/cwd/cache", 1);
}

static const struct launch cached = {.prepare = own_cache};

/* Returns the mean of a number of metrics.jsonl over the steps that began with an update. */
static double mean_of(const char *run, const char *key)
{
    char path[256], *text;
    double sum = 0;
    int n = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    text = e2e_read(path, NULL);
    for (char *rest = text, *line = strsep(&rest, "\n"); line && *line; line = strsep(&rest, "\n")) {
        json_t *o = json_loads(line, 0, NULL);
        if (json_integer_value(json_object_get(o, "step")) > 1) {
            sum += json_number_value(json_object_get(o, key));
            n++;
        }
        json_decref(o);
    }
    free(text);
    assert_true(n > 0);
    return sum / n;
}

static double planned_seconds(const char *options)
{
    json_t *o = json_loads(e2e_succeeds(&cached, "plan --model tiny --seq-len 256 --json" TILES "%s", options).out, 0, NULL);
    const double seconds = json_number_value(json_object_get(json_object_get(o, "step"), "seconds"));
    json_decref(o);
    return seconds;
}

static void a_run_and_later_plans(void **state)
{
    (void)state;
    const double assumed = planned_seconds("--observed no");
    assert_true(planned_seconds("") == assumed);
    assert_true(planned_seconds("--observed auto") == assumed); /* there is nothing yet */
    e2e_succeeds(&cached, "--out run --steps 6" TINY);
    const double with = planned_seconds("--observed run/observed.yaml"); /* bench/planner/observed.py measures how near that is */
    assert_true(with != assumed && planned_seconds("--observed auto") == with && planned_seconds("") == assumed);
    e2e_contains(e2e_succeeds(&cached, "plan --model tiny --seq-len 512 --observed auto" TILES).out, "observed in run (256");
    e2e_succeeds(&cached, "--out second --steps 2 --observed auto" TINY);
    assert_true(fabs(mean_of("second", "planned_seconds") / with - 1) < 1e-9); /* printed digits */
    struct result r = e2e_succeeds(&cached, "--out third --steps 2 --observed run/observed.yaml" TINY);
    assert_null(strstr(r.out, "assumed"));
}

static void what_is_refused(void **state)
{
    (void)state;
    e2e_refuses(2, "--observed: cannot read |nowhere.yaml|auto, no, or a run's observed.yaml", &cached,
                "--observed nowhere.yaml" TINY);
    e2e_refuses(2, "--observed auto and --profile: give one of them", &cached,
                "plan --model tiny --seq-len 256 --observed auto --profile");
    e2e_write("gpu.yaml", "like: h100\n");
    e2e_refuses(2, "gpu.yaml is of a run on a GPU, and this one is for processors", &cached,
                "--device cpu --observed gpu.yaml" TINY);
    e2e_write("broken.yaml", "like: cpu\nread: fast\n");
    e2e_refuses(2, "broken.yaml:2: read", &cached, "--observed broken.yaml" TINY);
}

/* Kept times that somebody has changed count as none; a run that cannot keep its own says so, and ends well. */
static void damaged_and_denied(void **state)
{
    (void)state;
    const double assumed = planned_seconds("--observed no");
    assert_int_equal(system("for f in cache/ltrain/*observed*; do echo '# x' >>$f; done"), 0);
    assert_true(planned_seconds("--observed auto") == assumed);
    e2e_remove("cache");
    e2e_write("cache", "no directory");
    e2e_contains(e2e_succeeds(&cached, "--out fourth --steps 2" TINY).out, "what the steps took is not left for later plans: ");
    assert_true(e2e_exists("fourth/observed.yaml") && e2e_exists("fourth/hf/config.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_run_and_later_plans), cmocka_unit_test(what_is_refused),
                                       cmocka_unit_test(damaged_and_denied)};
    return cmocka_run_group_tests(tests, e2e_setup, e2e_teardown);
}
