/* A cuBLASLt without a GPU: it reads the descriptors, refuses what the documentation does not list, and computes products in fp64
 * on the streams of the fake runtime (fake.h, whose functions it finds in the program). It is a library of its own, opened as the
 * real one is.
 *
 * It also reports errors that CUDA lets pass: an address not aligned as the heuristic was told, an algorithm of another product,
 * an algorithm whose results do not have the same bits every time, a workspace that is too small or ends beyond its allocation.
 * Its calls are counted like those of the runtime and fail when the configuration asks for it. */
#include "base/num.h"
#include "fake.h"

#include <cublasLt.h>

#include <stdlib.h>
#include <string.h>

#define OPEN __attribute__((visibility("default")))
#define UNKNOWN "unknown attribute %d, or not of %zu bytes"

enum { ALGORITHM = 7, WORKSPACE_ALIGN = 256, SPLIT_FROM = 32 /* k */, ALL_SPOILT = 4, PIECE = 4096, LINE = 64 };

struct cublasLtContext {
    int device;
    size_t products;
};

struct layout {
    int64_t type; /* 64 bits, so that the structure has no padding: products are hashed */
    uint64_t rows, cols;
    int64_t ld;
};

struct operation {
    int compute, scale, a, b; /* transposed */
};

struct preference {
    uint64_t workspace;
    uint32_t schemes, align[4]; /* align: alignment in bytes of A, B, C, D */
};

/* The fake's content of a cublasLtMatmulAlgo_t. */
struct algorithm {
    uint64_t product, workspace;
    uint32_t align[4], scheme, split;
};
_Static_assert(sizeof(struct algorithm) <= sizeof(cublasLtMatmulAlgo_t), "it fits");

static int alive; /* number of objects that have not been destroyed */

#define MISUSE(status, ...) (fake_misuse(cudaErrorInvalidValue, __VA_ARGS__), (status))

/* Runs `body` with the lock held, unless the configuration makes this call fail or the device is dead. */
#define CALL(body)                                                                                            \
    do {                                                                                                      \
        pthread_mutex_lock(&fake_lock);                                                                       \
        const cudaError_t error = fake_enter();                                                               \
        cublasStatus_t status =                                                                               \
            error == cudaErrorMemoryAllocation ? CUBLAS_STATUS_ALLOC_FAILED : CUBLAS_STATUS_EXECUTION_FAILED; \
        if (error == cudaSuccess)                                                                             \
            status = (body);                                                                                  \
        pthread_mutex_unlock(&fake_lock);                                                                     \
        return status;                                                                                        \
    } while (0)

/* Body of the functions that destroy something, which they do even when they fail. */
#define CALL_UNDOING(pointer)             \
    do {                                  \
        pthread_mutex_lock(&fake_lock);   \
        (void)fake_enter();               \
        alive--;                          \
        pthread_mutex_unlock(&fake_lock); \
        free(pointer);                    \
        return CUBLAS_STATUS_SUCCESS;     \
    } while (0)

static void *make(const void *value, size_t bytes)
{
    void *p = malloc(bytes);
    if (!p)
        abort();
    memcpy(p, value, bytes);
    alive++;
    return p;
}

OPEN int fake_cublaslt_refuses; /* set by tests: the heuristic finds no algorithm */

OPEN int fake_cublaslt_alive(void)
{
    return alive;
}

/* --- Objects --- */

static cublasStatus_t create(cublasLtHandle_t *handle)
{
    const int device = fake_current();
    if (device < 0)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = make(&(struct cublasLtContext){.device = device}, sizeof(struct cublasLtContext));
    return CUBLAS_STATUS_SUCCESS;
}

OPEN cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    CALL(create(handle));
}

OPEN cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    CALL_UNDOING(handle);
}

OPEN size_t cublasLtGetVersion(void)
{
    return 130100;
}

OPEN const char *cublasLtGetStatusString(cublasStatus_t status)
{
    (void)status;
    return cudaGetErrorString(cudaErrorInvalidValue); /* if the error is a misuse, the text of the misuse */
}

static cublasStatus_t create_operation(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute, cudaDataType scale)
{
    const struct operation o = {.compute = (int)compute, .scale = (int)scale};
    *desc = make(&o, sizeof o);
    return CUBLAS_STATUS_SUCCESS;
}

OPEN cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute, cudaDataType scale)
{
    CALL(create_operation(desc, compute, scale));
}

OPEN cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    CALL_UNDOING(desc);
}

static cublasStatus_t set_transposition(struct operation *o, int attribute, const void *value, size_t bytes)
{
    cublasOperation_t op;
    if ((attribute != CUBLASLT_MATMUL_DESC_TRANSA && attribute != CUBLASLT_MATMUL_DESC_TRANSB) || bytes != sizeof op)
        return MISUSE(CUBLAS_STATUS_INVALID_VALUE, "operation: " UNKNOWN, attribute, bytes);
    memcpy(&op, value, sizeof op);
    if (op != CUBLAS_OP_N && op != CUBLAS_OP_T)
        return MISUSE(CUBLAS_STATUS_INVALID_VALUE, "operation: %d is neither N nor T", (int)op);
    *(attribute == CUBLASLT_MATMUL_DESC_TRANSA ? &o->a : &o->b) = op == CUBLAS_OP_T;
    return CUBLAS_STATUS_SUCCESS;
}

OPEN cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                                   const void *value, size_t bytes)
{
    CALL(set_transposition((struct operation *)desc, (int)attribute, value, bytes));
}

static cublasStatus_t create_layout(cublasLtMatrixLayout_t *layout, const struct layout *l)
{
    *layout = make(l, sizeof *l);
    return CUBLAS_STATUS_SUCCESS;
}

OPEN cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows, uint64_t cols,
                                               int64_t ld)
{
    const struct layout l = {(int64_t)type, rows, cols, ld};
    CALL(create_layout(layout, &l));
}

OPEN cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    CALL_UNDOING(layout);
}

static cublasStatus_t create_preference(cublasLtMatmulPreference_t *preference)
{
    const struct preference p = {.schemes = CUBLASLT_REDUCTION_SCHEME_MASK, .align = {256, 256, 256, 256}}; /* cuBLASLt's own */
    *preference = make(&p, sizeof p);
    return CUBLAS_STATUS_SUCCESS;
}

OPEN cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    CALL(create_preference(preference));
}

OPEN cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    CALL_UNDOING(preference);
}

static cublasStatus_t set_preference(struct preference *p, int attribute, const void *value, size_t bytes)
{
    const int alignment = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && bytes == sizeof p->workspace)
        memcpy(&p->workspace, value, bytes);
    else if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK && bytes == sizeof p->schemes)
        memcpy(&p->schemes, value, bytes);
    else if (alignment >= 0 && alignment < 4 && bytes == sizeof *p->align)
        memcpy(&p->align[alignment], value, bytes);
    else
        return MISUSE(CUBLAS_STATUS_INVALID_VALUE, "preference: " UNKNOWN, attribute, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

OPEN cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                         cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                         size_t bytes)
{
    CALL(set_preference((struct preference *)preference, (int)attribute, value, bytes));
}

/* --- Products --- */

struct product {
    struct operation op;
    struct layout a, b, c, d;
};

static struct product product_of(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                 cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d)
{
    struct product p;
    memset(&p, 0, sizeof p);
    memcpy(&p.op, desc, sizeof p.op);
    memcpy(&p.a, a, sizeof p.a);
    memcpy(&p.b, b, sizeof p.b);
    memcpy(&p.c, c, sizeof p.c);
    memcpy(&p.d, d, sizeof p.d);
    return p;
}

static size_t element(const struct layout *l)
{
    return l->type == CUDA_R_32F ? 4 : 2;
}

static uint64_t inner(const struct product *p)
{
    return p->op.a ? p->a.rows : p->a.cols;
}

/* Checks types against the rows of cuBLASLt's table of "A, B, C and D" for COMPUTE_32F and scale 32F, without complex, eight-bit
 * and half types. */
static cublasStatus_t check_types(const struct product *p)
{
    static const int table[][3] = {
        {CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF}, {CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F}, {CUDA_R_32F, CUDA_R_32F, CUDA_R_32F}};
    if (p->op.compute != CUBLAS_COMPUTE_32F || p->op.scale != CUDA_R_32F)
        return MISUSE(CUBLAS_STATUS_NOT_SUPPORTED, "compute type %d, scale type %d", p->op.compute, p->op.scale);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (p->a.type == table[i][0] && p->b.type == table[i][1] && p->c.type == table[i][2] && p->d.type == table[i][2])
            return CUBLAS_STATUS_SUCCESS;
    return MISUSE(CUBLAS_STATUS_NOT_SUPPORTED, "there is no product of types %d and %d to %d", (int)p->a.type, (int)p->b.type,
                  (int)p->d.type);
}

static cublasStatus_t check_product(const struct product *p)
{
    const struct layout *const all[] = {&p->a, &p->b, &p->c, &p->d};
    for (int i = 0; i < 4; i++)
        if (all[i]->rows == 0 || all[i]->cols == 0 || all[i]->ld < (int64_t)all[i]->rows)
            return MISUSE(CUBLAS_STATUS_INVALID_VALUE, "matrix %c is %llu x %llu, its columns %lld apart", "ABCD"[i],
                          (unsigned long long)all[i] -> rows, (unsigned long long)all[i] -> cols, (long long)all[i] -> ld);
    if (p->d.rows != (p->op.a ? p->a.cols : p->a.rows) || p->d.cols != (p->op.b ? p->b.rows : p->b.cols) ||
        inner(p) != (p->op.b ? p->b.cols : p->b.rows) || memcmp(&p->c, &p->d, sizeof p->c) != 0)
        return MISUSE(CUBLAS_STATUS_INVALID_VALUE, "the matrices' shapes do not go together");
    return check_types(p);
}

static uint64_t hash(const void *bytes, size_t n)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
    return h;
}

/* Chooses the algorithm that is hardest to use correctly: it splits k where possible, needs all the allowed workspace, and has
 * the allowed scheme that repeats its bits the least. */
static cublasStatus_t choose(const struct product *p, const struct preference *wish, cublasLtMatmulHeuristicResult_t *result)
{
    const struct layout *const all[] = {&p->a, &p->b, &p->c, &p->d};
    struct algorithm a = {.product = hash(p, sizeof *p), .split = 1};
    cublasStatus_t status = check_product(p);
    for (int i = 0; i < 4 && status == CUBLAS_STATUS_SUCCESS; i++) {
        a.align[i] = wish->align[i];
        if (a.align[i] < element(all[i]) || a.align[i] > 256 || (a.align[i] & (a.align[i] - 1)) != 0)
            status = MISUSE(CUBLAS_STATUS_NOT_SUPPORTED, "matrix %c aligned to %u bytes", "ABCD"[i], a.align[i]);
    }
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    if (inner(p) >= SPLIT_FROM && wish->workspace > 0 && wish->schemes) {
        a.scheme = 1u << (31 - __builtin_clz(wish->schemes));
        a.split = 2;
        a.workspace = wish->workspace;
    }
    memset(result, 0, sizeof *result);
    memcpy(&result->algo, &a, sizeof a);
    result->workspaceSize = a.workspace;
    return CUBLAS_STATUS_SUCCESS;
}

OPEN cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                                   cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                   cublasLtMatmulPreference_t preference, int wanted,
                                                   cublasLtMatmulHeuristicResult_t results[], int *found)
{
    (void)handle;
    const struct product p = product_of(desc, a, b, c, d);
    *found = wanted > 0 && !fake_cublaslt_refuses;
    CALL(choose(&p, (const struct preference *)(const void *)preference, results));
}

static cublasStatus_t read_config(const struct algorithm *a, int attribute, void *value, size_t bytes, size_t *written)
{
    const uint32_t words[] = {ALGORITHM,           a->align[0] << 16 | a->align[1], a->split, a->scheme, 0, a->align[3],
                              (uint32_t)a->product};
    const int is_word = attribute >= 0 && attribute < (int)(sizeof words / sizeof *words);
    *written = is_word ? 4 : 2;
    if (attribute > CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID || bytes != *written)
        return MISUSE(CUBLAS_STATUS_INVALID_VALUE, "algorithm: " UNKNOWN, attribute, bytes);
    if (!is_word && a->split == 1) /* an algorithm of a generation that knew no clusters */
        return CUBLAS_STATUS_INVALID_VALUE;
    memset(value, 0, bytes);
    if (is_word)
        memcpy(value, &words[attribute], bytes);
    return CUBLAS_STATUS_SUCCESS;
}

OPEN cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                         cublasLtMatmulAlgoConfigAttributes_t attribute, void *value,
                                                         size_t bytes, size_t *written)
{
    CALL(read_config((const struct algorithm *)(const void *)algo, (int)attribute, value, bytes, written));
}

/* A product that a stream executes; addresses are those of the GPU's thread. */
struct launch {
    struct product p;
    const char *a, *b;
    char *d, *workspace;
    size_t workspace_bytes;
    struct cublasLtContext *handle;
    size_t number; /* number of earlier products of the handle */
    float alpha, beta;
};

static double value_at(const struct layout *l, const char *base, int transposed, uint64_t i, uint64_t j)
{
    const char *at = base + ((transposed ? i : j) * (uint64_t)l->ld + (transposed ? j : i)) * element(l);
    float f;
    bf16 x;
    if (l->type == CUDA_R_32F) {
        memcpy(&f, at, sizeof f);
        return (double)f;
    }
    memcpy(&x, at, sizeof x);
    return (double)bf16_to_float(x);
}

/* Overwrites workspace with NaN: a handle's first products all of it, which may be 32 MiB, later products a line of each piece, one
 * line after another. */
static void spoil_workspace(const struct launch *l)
{
    if (l->number < ALL_SPOILT)
        memset(l->workspace, 0xff, l->workspace_bytes);
    else
        for (size_t at = l->number * LINE % PIECE; at + LINE <= l->workspace_bytes; at += PIECE)
            memset(l->workspace + at, 0xff, LINE);
}

static void start_product(void *closure)
{
    const struct launch *l = closure;
    const size_t e = element(&l->p.d);
    if (l->workspace_bytes)
        spoil_workspace(l);
    for (uint64_t j = 0; l->beta == 0 && j < l->p.d.cols; j++)
        memset(l->d + j * (uint64_t)l->p.d.ld * e, 0xff, l->p.d.rows * e);
}

static cudaError_t end_product(void *closure)
{
    const struct launch *l = closure;
    const struct product *p = &l->p;
    for (uint64_t j = 0; j < p->d.cols; j++)
        for (uint64_t i = 0; i < p->d.rows; i++) {
            char *at = l->d + (j * (uint64_t)p->d.ld + i) * element(&p->d);
            double sum = 0;
            for (uint64_t k = 0; k < inner(p); k++)
                sum += value_at(&p->a, l->a, p->op.a, i, k) * value_at(&p->b, l->b, p->op.b, k, j);
            sum = (double)l->alpha * sum + (l->beta == 0 ? 0 : (double)l->beta * value_at(&p->d, l->d, 0, i, j));
            const float f = (float)sum;
            const bf16 rounded = bf16_from_float(f);
            if (p->d.type == CUDA_R_32F)
                memcpy(at, &f, sizeof f);
            else
                memcpy(at, &rounded, sizeof rounded);
        }
    return cudaSuccess;
}

static cublasStatus_t check_algorithm(const struct algorithm *a, const struct product *p, const void *workspace, size_t bytes)
{
    if (a->product != hash(p, sizeof *p))
        return MISUSE(CUBLAS_STATUS_INVALID_VALUE, "the algorithm was chosen for another product");
    if (a->scheme != CUBLASLT_REDUCTION_SCHEME_NONE && a->scheme != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
        return MISUSE(CUBLAS_STATUS_NOT_SUPPORTED, "reduction scheme %u does not repeat its bits", a->scheme);
    if (bytes < a->workspace || (uintptr_t)workspace % WORKSPACE_ALIGN != 0)
        return MISUSE(CUBLAS_STATUS_INVALID_VALUE, "%zu bytes of workspace at %p, %llu are needed, aligned to %d", bytes,
                      workspace, (unsigned long long)a->workspace, WORKSPACE_ALIGN);
    if (bytes > 0 && !fake_on_device(workspace, bytes))
        return MISUSE(CUBLAS_STATUS_INVALID_VALUE, "the workspace of %zu bytes leaves its device allocation", bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_addresses(const struct algorithm *algorithm, const struct product *p, const void *const at[4])
{
    const struct layout *const all[] = {&p->a, &p->b, &p->c, &p->d};
    for (int i = 0; i < 4; i++) {
        const size_t bytes = ((size_t)all[i]->ld * (all[i]->cols - 1) + all[i]->rows) * element(all[i]);
        if (!fake_on_device(at[i], bytes))
            return MISUSE(CUBLAS_STATUS_INVALID_VALUE, "matrix %c, %zu bytes, leaves its device allocation", "ABCD"[i], bytes);
        if ((uintptr_t)at[i] % algorithm->align[i] != 0)
            return MISUSE(CUBLAS_STATUS_INVALID_VALUE, "matrix %c at %p: %u bytes were promised", "ABCD"[i], at[i],
                          algorithm -> align[i]);
    }
    return at[2] == at[3] ? CUBLAS_STATUS_SUCCESS : MISUSE(CUBLAS_STATUS_INVALID_VALUE, "C and D are two matrices");
}

static cublasStatus_t multiply(const struct launch *l, const struct algorithm *algorithm, const void *const at[4],
                               const void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    cublasStatus_t status = check_product(&l->p);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = check_algorithm(algorithm, &l->p, workspace, workspace_bytes);
    if (status == CUBLAS_STATUS_SUCCESS)
        status = check_addresses(algorithm, &l->p, at);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    struct launch *closure = malloc(sizeof *closure);
    if (!closure)
        abort();
    *closure = *l;
    closure->number = l->handle->products++;
    closure->a = fake_alias(at[0]);
    closure->b = fake_alias(at[1]);
    closure->d = fake_alias(at[3]);
    closure->workspace_bytes = algorithm->workspace;
    closure->workspace = algorithm->workspace ? fake_alias(workspace) : NULL;
    return fake_enqueue(stream, &(struct fake_work){.start = start_product, .end = end_product, .closure = closure}) ==
                   cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}

OPEN cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *A,
                                   cublasLtMatrixLayout_t a, const void *B, cublasLtMatrixLayout_t b, const void *beta,
                                   const void *C, cublasLtMatrixLayout_t c, void *D, cublasLtMatrixLayout_t d,
                                   const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    struct launch l = {.p = product_of(desc, a, b, c, d), .handle = handle};
    const void *const at[4] = {A, B, C, D};
    memcpy(&l.alpha, alpha, sizeof l.alpha);
    memcpy(&l.beta, beta, sizeof l.beta);
    CALL(multiply(&l, (const struct algorithm *)(const void *)algo, at, workspace, workspace_bytes, stream));
}
