/* Parsing and printing of counts and bytes. */
#include "base/units.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void counts_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"0", 0},       {"4096", 4096},     {"420k", 430080},    {"420K", 430080},      {"1m", 1048576},
                {"1.5k", 1536}, {"2g", 2147483648}, {"430,080", 430080}, {"1,048,576", 1048576}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int64_t v = -1;
        assert_int_equal(units_parse_count("seq-len", good[i].text, &v), OK);
        assert_true(v == good[i].value);
    }
}

static void bytes_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"4096", 4096},    {"512b", 512}, {"256M", 256LL << 20}, {"1.5GiB", 3LL << 29},  {"80G", 80LL << 30},
                {"2T", 2LL << 40}, {"1kb", 1024}, {"0.5k", 512},         {"1.9T", 2089072092774}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int64_t v = -1;
        assert_int_equal(units_parse_bytes("host-mem", good[i].text, &v), OK);
        assert_true(v == good[i].value);
    }
}

static void nonsense_is_refused_naming_the_key(void **state)
{
    (void)state;
    static const char *const bad[] = {"",    "-1", "k",    "12x", "1.5",      "1 G",       "1kk",    "nan",
                                      "inf", ",1", ",123", "1,5", "1234,567", "12,34,567", "1,024k", "1,024,"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t v = 7;
        assert_int_equal(units_parse_bytes("host-mem", bad[i], &v), ERR_INVALID);
        assert_non_null(strstr(status_message(), "host-mem"));
        assert_int_equal(v, 7);
        assert_int_equal(units_parse_count("seq-len", bad[i], &v), ERR_INVALID);
        assert_int_equal(v, 7);
    }
    int64_t v;
    assert_int_equal(units_parse_steps("steps", "20,000", &v), OK);
    assert_true(v == 20000);
    assert_int_equal(units_parse_steps("steps", "1k", &v), ERR_INVALID);
    assert_int_equal(units_parse_steps("steps", "1.5M", &v), ERR_INVALID);
    assert_int_equal(units_parse_steps("steps", "k", &v), ERR_INVALID);
    assert_int_equal(units_parse_bytes("host-mem", "99999999T", &v), OK);
    assert_true(v == INT64_MAX);
    assert_int_equal(units_parse_count("seq-len", "1e30", &v), OK);
    assert_true(v == INT64_MAX);
    assert_int_equal(units_parse_count("seq-len", "1t", &v), ERR_INVALID);
    assert_int_equal(units_parse_count("seq-len", "1kib", &v), ERR_INVALID);
    assert_int_equal(units_parse_count("seq-len", "1.0001k", &v), ERR_INVALID);
}

static void numbers_are_printed(void **state)
{
    (void)state;
    char buf[32];
    assert_string_equal(units_format_bytes(0, buf), "0 B");
    assert_string_equal(units_format_bytes(1023, buf), "1023 B");
    assert_string_equal(units_format_bytes(1536, buf), "1.5 KiB");
    assert_string_equal(units_format_bytes(212LL << 20, buf), "212 MiB");
    char other[32];
    units_format_apart(38LL << 30, 39LL << 30, buf, other);
    assert_true(strcmp(buf, "38 GiB") == 0 && strcmp(other, "39 GiB") == 0);
    units_format_apart(38LL << 30, 38LL << 30, buf, other);
    assert_true(strcmp(buf, "38 GiB") == 0 && strcmp(other, "38 GiB") == 0);
    units_format_apart((38LL << 30) + (20 << 20), 38LL << 30, buf, other);
    assert_true(strcmp(buf, "38.02 GiB") == 0 && strcmp(other, "38.00 GiB") == 0);
    units_format_apart((38LL << 30) + 1, 38LL << 30, buf, other);
    assert_string_not_equal(buf, other);
    assert_string_equal(units_format_short(212LL << 20, buf), "212M");
    assert_string_equal(units_format_short(1181116006, buf), "1.1G");
    assert_string_equal(units_format_count(7, buf), "7");
    assert_string_equal(units_format_count(430080, buf), "430,080");
    assert_string_equal(units_format_count(-123456, buf), "-123,456");
    assert_string_equal(units_format_count(1000000, buf), "1,000,000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_read),
        cmocka_unit_test(bytes_are_read),
        cmocka_unit_test(nonsense_is_refused_naming_the_key),
        cmocka_unit_test(numbers_are_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
