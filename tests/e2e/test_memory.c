/* Tests that a process uses the memory that its plan says, and not more. */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the number of bytes in a phrase like "458 MiB" that follows `words`. */
static double bytes_after(const char *text, const char *words)
{
    double x;
    char unit;
    const char *at = strstr(text, words);
    if (!at || sscanf(at + strlen(words), "%lf %c", &x, &unit) != 2)
        fail_msg("no bytes after \"%s\" in: %s", words, text);
    return x * (unit == 'G' ? 1024.0 * 1024 * 1024 : unit == 'M' ? 1024.0 * 1024 : unit == 'K' ? 1024.0 : 1);
}

static void resident_memory_is_what_was_planned(void **state)
{
    static const char *const settings[] = {"--offload none", "--offload cpu --device cpu:discrete",
                                           "--offload optim=nvme,params=cpu --dtype bf16"};
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct result r = e2e_succeeds(NULL, "--model 25m --data corpus.txt --seq-len 64 --steps 2 --threads 2 --out run%zu %s",
                                       i, settings[i]);
        double planned = bytes_after(r.out, "memory: planned "), outside = bytes_after(r.out, ") + "),
               peak = (double)r.peak_bytes;
        print_message("%s: planned %.0f MiB + %.0f MiB, resident %.0f MiB (%.1f%%)\n", settings[i], planned / 0x1p20,
                      outside / 0x1p20, peak / 0x1p20, 100 * peak / (planned + outside));
        assert_true(i == 2 || planned >= 200 * 0x1p20);
        assert_true(outside < 64 * 0x1p20); /* the memory outside the plan is small, so that it cannot hide a fault */
        assert_true(peak <= 1.03 * (planned + outside));
        assert_true(peak >= 0.9 * (planned + outside)); /* most of the planned memory is really used */
    }
}

int main(void)
{
    if (E2E_SANITIZED)
        return 77; /* plans do not include the sanitizer's shadow memory */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(resident_memory_is_what_was_planned, e2e_setup, e2e_teardown),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
