/* Opens OpenBLAS with the best kernels for this processor. */
#include "ops/blas.h"

#include "base/isa.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libopenblas.so.0"
#define CORETYPE "OPENBLAS_CORETYPE"

struct blas blas;

static enum isa isa_of_core(const char *name)
{
    static const char *const avx512[] = {"SkylakeX", "Cooperlake", "SapphireRapids"}, *const avx2[] = {"Haswell", "Zen"};
    for (size_t i = 0; i < sizeof avx512 / sizeof *avx512; i++)
        if (strcasecmp(name, avx512[i]) == 0)
            return ISA_AVX512;
    for (size_t i = 0; i < sizeof avx2 / sizeof *avx2; i++)
        if (strcasecmp(name, avx2[i]) == 0)
            return ISA_AVX2;
    return ISA_PORTABLE;
}

static enum status load(void **library)
{
    *library = dlopen(LIBRARY, RTLD_LAZY | RTLD_LOCAL);
    if (!*library)
        return status_fail(
            ERR_IO, "OpenBLAS cannot be loaded (%s): install libopenblas0, or add its directory to LD_LIBRARY_PATH", dlerror());
    *(void **)&blas.sgemm = dlsym(*library, "cblas_sgemm");
    *(void **)&blas.set_num_threads = dlsym(*library, "openblas_set_num_threads");
    *(void **)&blas.corename = dlsym(*library, "openblas_get_corename");
    if (!blas.sgemm || !blas.set_num_threads || !blas.corename) {
        blas.sgemm = NULL;
        return status_fail(ERR_INVALID, LIBRARY " is not OpenBLAS (%s): install libopenblas0", dlerror());
    }
    return OK;
}

enum status blas_open(void)
{
    static const char *const core[] = {[ISA_AVX2] = "Haswell", [ISA_AVX512] = "SkylakeX"};
    void *library;
    if (blas.sgemm)
        return OK;
    TRY(load(&library));
    enum isa isa = isa_of_processor();
    if (getenv(CORETYPE) || isa_of_core(blas.corename()) >= isa)
        return OK;
    blas.sgemm = NULL;
    dlclose(library);
    setenv(CORETYPE, core[isa], 1);
    enum status st = load(&library);
    unsetenv(CORETYPE);
    return st;
}
