/* OpenBLAS's kernels: the processor's, unless the user has chosen others; each case opens the library in a process of its own. */
#include "base/isa.h"
#include "ops/blas.h"
#include "ops_test.h"

#include <sys/wait.h>
#include <unistd.h>

/* 1 if the kernels in use are one of `names`. */
static int opens_as(const char *coretype, const char *const *names)
{
    int pipe_ends[2], status;
    char core[64] = "";
    assert_int_equal(pipe(pipe_ends), 0);
    pid_t child = fork();
    if (child == 0) {
        if (coretype)
            setenv("OPENBLAS_CORETYPE", coretype, 1);
        else
            unsetenv("OPENBLAS_CORETYPE");
        int ok = blas_open() == OK && blas_open() == OK && (getenv("OPENBLAS_CORETYPE") != NULL) == (coretype != NULL);
        float a[4] = {1, 2, 3, 4}, c[4];
        blas.sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, 2, 2, 2, 1, a, 2, a, 2, 0, c, 2);
        ok = ok && c[0] == 5 && c[1] == 11 && c[2] == 11 && c[3] == 25;
        snprintf(core, sizeof core, "%s", blas.corename());
        _exit(!ok || write(pipe_ends[1], core, sizeof core) != sizeof core);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(read(pipe_ends[0], core, sizeof core), sizeof core);
    close(pipe_ends[0]), close(pipe_ends[1]);
    for (; *names; names++)
        if (strcasecmp(core, *names) == 0)
            return 1;
    print_message("kernels: %s\n", core);
    return 0;
}

static void test_core(void **state)
{
    (void)state;
#ifdef __x86_64__
    const char *const avx512[] = {"SkylakeX", "Cooperlake", "SapphireRapids", NULL};
    const char *const avx2[] = {"Haswell", "Zen", "SkylakeX", "Cooperlake", "SapphireRapids", NULL};
    if (isa_of_processor() == ISA_AVX512)
        assert_true(opens_as(NULL, avx512));
    else if (isa_of_processor() == ISA_AVX2)
        assert_true(opens_as(NULL, avx2));
    assert_true(opens_as("Nehalem", (const char *const[]){"Nehalem", NULL}));
#else
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_core)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
