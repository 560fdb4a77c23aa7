/* Tests that a sentence holds nothing that a terminal obeys, whatever bytes a file has put into it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/status.h"

#include <string.h>

static void control_characters_are_spaces(void **state)
{
    (void)state;
    assert_int_equal(status_fail(ERR_INVALID, "key '%s'", "a\nb\tc\r\x1b[31md\x7f\xc2\x9b\xc3\xa9"), ERR_INVALID);
    assert_string_equal(status_message(), "key 'a\nb c  [31md   \xc3\xa9'");
}

/* The former sentence may be a part of the new one; a long one is cut. */
static void a_sentence_goes_on(void **state)
{
    char longer[3000];
    (void)state;
    status_fail(ERR_IO, "first");
    status_fail(ERR_IO, "second: %s", status_message());
    assert_string_equal(status_message(), "second: first");
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    status_fail(ERR_IO, "%s", longer);
    assert_true(strlen(status_message()) > 1000 && strlen(status_message()) < sizeof longer - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(control_characters_are_spaces), cmocka_unit_test(a_sentence_goes_on)};
    return cmocka_run_group_tests_name("status", tests, NULL, NULL);
}
