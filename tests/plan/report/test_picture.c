/* Tests the picture of a step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "plan/cells.h"
#include "plan/report/svg.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Checks that tags nest and close, attributes are quoted, and no character needs escaping. Returns the number of elements. */
static int check_xml(const char *text)
{
    char open[16][32];
    int depth = 0, elements = 0;
    while (*text) {
        if (*text == '&')
            assert_true(strncmp(text, "&lt;", 4) == 0 || strncmp(text, "&amp;", 5) == 0);
        if (*text++ != '<')
            continue;
        const char *end = strchr(text, '>');
        assert_non_null(end);
        int quotes = 0, name = 0;
        for (const char *c = text; c < end; c++) {
            quotes += *c == '"';
            assert_true(*c != '<');
        }
        assert_int_equal(quotes % 2, 0);
        int closing = *text == '/';
        text += closing;
        while (isalpha((unsigned char)text[name]))
            name++;
        assert_true(name > 0 && name < 32);
        if (closing) {
            assert_true(depth > 0);
            depth--;
            assert_true((int)strlen(open[depth]) == name && strncmp(open[depth], text, (size_t)name) == 0);
        } else {
            elements++;
            if (end[-1] != '/') {
                assert_true(depth < 16);
                snprintf(open[depth++], sizeof open[0], "%.*s", name, text);
            }
        }
        text = end + 1;
    }
    assert_int_equal(depth, 0);
    return elements;
}

static void check_picture(const struct plan *plan, const struct model *m, const char *title, const char *tick)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    assert_int_equal(plan_write_svg(plan, m, f), OK);
    assert_int_equal(fclose(f), 0);
    print_message("%d instructions: %zu bytes\n", plan->programs[PLAN_UPDATE_STEP]->n_instrs, size);
    assert_true(check_xml(text) > 30 && size < 300000);
    for (int t = 0; t < TIERS; t++)
        assert_non_null(strstr(text, tier_name((enum tier)t)));
    for (int l = LANE_COMPUTE; l <= LANE_HOST; l++)
        assert_non_null(strstr(text, lane_name((enum lane)l)));
    assert_true(strstr(text, title) && strstr(text, tick));
    free(text);
}

/* The picture is well-formed, as large for many thousand instructions as for few, and its times are in readable units. */
static void picture(void **state)
{
    (void)state;
    static const int layers[] = {1, 16};
    const int64_t ample[TIERS] = {1 << 30, 1 << 30, 1 << 30};
    for (int i = 0; i < 2; i++) {
        struct plan_request s;
        struct model *m;
        struct plan *plan;
        assert_int_equal(cell_model(FAMILY_LLAMA, layers[i], &m), OK);
        strcpy(m->config.name, "a<b&c");
        cell_settings(&s, i ? 1600 : 100, F32);
        cell_apply(&(struct cell){EVERYTHING(ON_DRIVES), .alpha = KEEP_HALF, .host_update = 1, .discrete = 1}, &s);
        s.link_gbps = 1e-3;
        assert_int_equal(plan_create(m, &s, ample, &plan), OK);
        assert_true(plan->fits);
        check_picture(plan, m, "a&lt;b&amp;c, ", "s</text>");
        plan->programs[PLAN_UPDATE_STEP]->seconds = 10 * 3600;
        check_picture(plan, m, ": a step of 10 h</text>", ">6 h</text>");
        plan_destroy(plan);
        model_destroy(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(picture)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
