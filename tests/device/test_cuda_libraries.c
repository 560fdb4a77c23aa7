/* Tests where CUDA's libraries are searched, in which order, and messages about missing or wrong libraries. For this program's
 * libraries.c, the toolkit is the folder `toolkit` of the working directory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "device/cuda/libraries.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "libltrain-test.so.13"

static const struct foreign_library library = {NAME, {"nvidia/cu13/lib", "nvidia/cublas/lib"}, "nvidia-cublas"};

/* in the order of the search */
static const char *const places[] = {
    "toolkit/lib64",
    "toolkit/lib",
    "toolkit/targets/x86_64-linux/lib",
    "home/lib64",
    "home/lib",
    "venv/lib/python3.11/site-packages/nvidia/cu13/lib",
    "venv/lib/python3.11/site-packages/nvidia/cublas/lib",
    "conda/lib/python3.12/site-packages/nvidia/cu13/lib",
    "list two/nvidia/cu13/lib",
    "bin/../lib/python3.9/site-packages/nvidia/cublas/lib",
    "elsewhere/bin/../lib/python3.13/site-packages/nvidia/cu13/lib",
    "user/.local/lib/python3.11/site-packages/nvidia/cu13/lib",
};
enum { PLACES = sizeof places / sizeof *places };

static char real[512]; /* cuBLASLt of this machine's toolkit; "": there is none */
static char root[] = "/tmp/ltrain-libraries-XXXXXX";

static void run(const char *command)
{
    assert_int_equal(system(command), 0);
}

static void set(const char *name, const char *value)
{
    char text[512];
    snprintf(text, sizeof text, value, root, root);
    setenv(name, text, 1);
}

static int start(void **state)
{
    (void)state;
    const char *toolkit = getenv("CUDA_HOME");
    snprintf(real, sizeof real, "%s/lib64/libcublasLt.so.13", toolkit && toolkit[0] ? toolkit : "/usr/local/cuda");
    if (access(real, R_OK) != 0)
        real[0] = 0;
    setenv("LTRAIN_TEST_TOOLKIT", toolkit && toolkit[0] ? toolkit : "/usr/local/cuda", 1);
    assert_non_null(mkdtemp(root));
    assert_int_equal(chdir(root), 0);
    run("mkdir -p bin elsewhere/bin && touch elsewhere/bin/python3.13 && chmod +x elsewhere/bin/python3.13 && "
        "ln -s ../elsewhere/bin/python3.13 bin/python3");
    set("CUDA_HOME", "%s/home");
    set("VIRTUAL_ENV", "%s/venv");
    set("CONDA_PREFIX", "%s/conda");
    set("PYTHONPATH", "%s/list one:%s/list two");
    set("PATH", "/nowhere:/usr/bin:/bin:%s/bin");
    set("HOME", "%s/user");
    return 0;
}

static int end(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return chdir("/") || system(command);
}

static void put(const char *place, const char *file)
{
    char command[1024];
    snprintf(command, sizeof command, "mkdir -p '%s' && ln -sf '%s' '%s/%s'", place, file, place, NAME);
    run(command);
}

static void take(const char *place)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", place, NAME);
    assert_int_equal(unlink(path), 0);
}

static int ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

struct seen {
    int n, wrong;
};

static int see(void *user, const char *path)
{
    struct seen *s = user;
    char want[512];
    if (s->n < PLACES) {
        snprintf(want, sizeof want, "%s/%s", places[s->n], NAME);
        if (!ends_with(path, want)) {
            print_error("%d: %s, not %s\n", s->n, path, want);
            s->wrong++;
        }
    }
    s->n++;
    return 0;
}

static void order(void **state)
{
    (void)state;
    struct seen s = {0};
    for (int i = 0; i < PLACES; i++)
        put(places[i], "/dev/null");
    assert_int_equal(foreign_search(&library, CUDA_TOOLKIT, see, &s), 0);
    assert_int_equal(s.n, PLACES);
    assert_int_equal(s.wrong, 0);
    for (int i = 0; i < PLACES; i++)
        take(places[i]);
    s.n = 0;
    assert_int_equal(foreign_search(&library, CUDA_TOOLKIT, see, &s), 0);
    assert_int_equal(s.n, 0);
}

/* Without variables only the toolkit is searched, and no empty path becomes a directory at the root. */
static void empty_places(void **state)
{
    (void)state;
    static const char *const names[] = {"CUDA_HOME", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "PATH", "HOME"};
    char *old[6];
    for (int empty = 0; empty < 2; empty++) {
        struct seen s = {0};
        for (int i = 0; i < 6; i++) {
            old[i] = strdup(getenv(names[i]));
            if (empty)
                setenv(names[i], "", 1);
            else
                unsetenv(names[i]);
        }
        assert_int_equal(foreign_search(&library, CUDA_TOOLKIT, see, &s), 0);
        for (int i = 0; i < 6; i++) {
            setenv(names[i], old[i], 1);
            free(old[i]);
        }
        assert_int_equal(s.n, 0);
    }
}

/* The first file that can be opened is used: an empty one is skipped. */
static void opening(void **state)
{
    (void)state;
    void *handle = NULL;
    assert_int_equal(cuda_library_open(&library, &handle), ERR_INVALID);
    assert_non_null(strstr(status_message(), "there is no " NAME));
    assert_non_null(strstr(status_message(), "CUDA_HOME"));
    put(places[0], "/dev/null");
    assert_int_equal(cuda_library_open(&library, &handle), ERR_INVALID);
    assert_non_null(strstr(status_message(), NAME " cannot be opened: toolkit/lib64/" NAME));
    assert_null(handle);
    put(places[5], getenv("LTRAIN_CUDA_TWIN")); /* any library */
    assert_int_equal(cuda_library_open(&library, &handle), OK);
    assert_non_null(handle);
    dlclose(handle);
}

/* Another library under the name of cuBLASLt is refused. */
static void cublaslt(void **state)
{
    (void)state;
    const struct cublaslt *lt = NULL;
    if (dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_NOLOAD | RTLD_LOCAL))
        skip(); /* preloaded */
    char command[1024];
    snprintf(command, sizeof command, "ln -sf '%s' toolkit/lib64/libcublasLt.so.13", getenv("LTRAIN_CUDA_TWIN"));
    run(command);
    const enum status st = cuda_libraries_cublaslt(&lt);
    if (st != OK)
        assert_non_null(strstr(status_message(), "has no cublasLtCreate"));
    else
        assert_non_null(lt->cublasLtMatmul); /* the loader finds a real cuBLASLt */
}

/* The toolkit's own cuBLASLt, if there is one. Without a GPU it makes no handle, but its descriptors accept the attributes that
 * ltrain uses, with the sizes that ltrain passes. */
static void real_one(void **state)
{
    (void)state;
    static const cublasLtMatmulPreferenceAttributes_t words[] = {
        CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const struct cublaslt *lt;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t layout;
    cublasLtMatmulPreference_t preference;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const uint64_t scratch = 8 << 20;
    const uint32_t two = 2;
    char command[1024];
    if (!real[0])
        skip();
    snprintf(command, sizeof command, "ln -sf '%s' toolkit/lib64/libcublasLt.so.13", real);
    run(command);
    if (cuda_libraries_cublaslt(&lt) != OK)
        fail_msg("%s", status_message());
    assert_int_equal(lt->cublasLtGetVersion() / 10000, 13);
    assert_true(strlen(lt->cublasLtGetStatusString(CUBLAS_STATUS_NOT_SUPPORTED)) > 0);
    assert_int_equal(lt->cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(lt->cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
                     CUBLAS_STATUS_SUCCESS);
    assert_int_equal(lt->cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSB, &transposed, sizeof transposed),
                     CUBLAS_STATUS_SUCCESS);
    assert_int_equal(lt->cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, 50257, 1 << 20, 50257), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(lt->cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
    assert_int_equal(
        lt->cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &scratch, sizeof scratch),
        CUBLAS_STATUS_SUCCESS);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        assert_int_equal(lt->cublasLtMatmulPreferenceSetAttribute(preference, words[i], &two, sizeof two), CUBLAS_STATUS_SUCCESS);
    assert_int_not_equal(
        lt->cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &two, sizeof two),
        CUBLAS_STATUS_SUCCESS);
    lt->cublasLtMatmulPreferenceDestroy(preference);
    lt->cublasLtMatrixLayoutDestroy(layout);
    lt->cublasLtMatmulDescDestroy(operation);
}

/* Another library under the name of NCCL is refused; then the toolkit's own NCCL is opened. */
static void nccl(void **state)
{
    (void)state;
    const struct nccl *n = NULL;
    int version = 0;
    char command[1024], there[512];
    const char *toolkit = getenv("LTRAIN_TEST_TOOLKIT");
    snprintf(there, sizeof there, "%s/lib64/libnccl.so.2", toolkit);
    const int loaded = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL) != NULL; /* the loader finds a real NCCL */
    if (!loaded) {
        assert_int_equal(cuda_libraries_nccl(&n), ERR_INVALID);
        assert_non_null(strstr(status_message(), "there is no libnccl.so.2"));
        assert_non_null(strstr(status_message(), "pip install nvidia-nccl-cu13"));
        snprintf(command, sizeof command, "mkdir -p toolkit/lib64 && ln -sf '%s' toolkit/lib64/libnccl.so.2",
                 getenv("LTRAIN_CUDA_TWIN"));
        run(command);
        assert_int_equal(cuda_libraries_nccl(&n), ERR_INVALID);
        assert_non_null(strstr(status_message(), "libnccl.so.2 has no ncclGetVersion: it is another library"));
        snprintf(command, sizeof command, "ln -sf '%s' toolkit/lib64/libnccl.so.2", there);
        run(command);
    }
    if (!loaded && access(there, R_OK) != 0)
        skip();
    if (cuda_libraries_nccl(&n) != OK)
        fail_msg("%s", status_message());
    assert_int_equal(n->ncclGetVersion(&version), ncclSuccess);
    assert_true(version >= 21900);
    assert_true(strlen(n->ncclGetErrorString(ncclRemoteError)) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(order),    cmocka_unit_test(empty_places), cmocka_unit_test(opening),
                                       cmocka_unit_test(cublaslt), cmocka_unit_test(real_one),     cmocka_unit_test(nccl)};
    return cmocka_run_group_tests(tests, start, end);
}
