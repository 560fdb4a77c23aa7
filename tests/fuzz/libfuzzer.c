/* The entry of libFuzzer, for tools/fuzz.sh: LTRAIN_FUZZ names the target. */
#include "fuzz/targets.h"

#include <stdio.h>
#include <stdlib.h>

static const struct fuzz_target *target;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *name = getenv("LTRAIN_FUZZ");
    (void)argc;
    (void)argv;
    target = fuzz_find(name ? name : "");
    if (!target) {
        fputs("LTRAIN_FUZZ names no target of tests/fuzz/targets.c\n", stderr);
        exit(2);
    }
    fuzz_begin();
    return atexit(fuzz_end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    (void)fuzz_once(target, data, n);
    return 0;
}
