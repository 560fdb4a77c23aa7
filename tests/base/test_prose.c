/* Lines of paragraphs. */
#include "base/prose.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void prints(const char *text, int indent, const char *want)
{
    char *got = NULL;
    size_t n;
    FILE *f = open_memstream(&got, &n);
    assert_non_null(f);
    prose_print(f, indent, "%s", text);
    fclose(f);
    assert_string_equal(got, want);
    free(got);
}

#define TEN "abcdefghi "

static void lines_are_broken_at_blanks(void **state)
{
    (void)state;
    prints("", 2, "\n");
    prints("short", 2, "short\n");
    prints(TEN TEN TEN TEN TEN TEN TEN "0123456789", 2, TEN TEN TEN TEN TEN TEN TEN "0123456789\n"); /* 80 columns */
    prints(TEN TEN TEN TEN TEN TEN TEN "0123456789a", 2, TEN TEN TEN TEN TEN TEN "abcdefghi\n  0123456789a\n");
    prints(TEN TEN TEN TEN TEN " " TEN TEN TEN TEN "x", 1, TEN TEN TEN TEN "abcdefghi\n " TEN TEN TEN TEN "x\n");
    prints("  " TEN TEN TEN TEN TEN TEN TEN "  next of  two", 0, "  " TEN TEN TEN TEN TEN TEN "abcdefghi\nnext of  two\n");
}

/* Words that belong together stay together; a word that fits in no line is not cut. */
static void some_blanks_do_not_break(void **state)
{
    (void)state;
    prints(TEN TEN TEN TEN TEN TEN TEN "have 1234567 GiB", 1, TEN TEN TEN TEN TEN TEN TEN "have\n 1234567 GiB\n");
    prints(TEN TEN TEN TEN TEN TEN TEN "--opt value", 1, TEN TEN TEN TEN TEN TEN "abcdefghi\n --opt value\n");
    prints(TEN TEN TEN TEN TEN TEN TEN "--opt, value", 1, TEN TEN TEN TEN TEN TEN TEN "--opt,\n value\n");
    prints(TEN TEN TEN "--opt " TEN TEN TEN TEN "end", 1, TEN TEN TEN "--opt " TEN TEN TEN TEN "end\n");
    prints("a012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789 y", 1,
           "a012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789 y\n");
    prints("x.................................................................................x y", 1,
           "x.................................................................................x\n y\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lines_are_broken_at_blanks), cmocka_unit_test(some_blanks_do_not_break)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
