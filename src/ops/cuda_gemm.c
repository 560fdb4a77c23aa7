/* Products by cuBLASLt: a table of prepared calls. */
#include "ops/cuda_gemm.h"

#include "base/mix.h"
#include "base/sys.h"
#include "device/cuda/libraries.h"
#include "ops/cuda_ops.h"
#include "ops/cuda_product.h"

#include <stdlib.h>
#include <string.h>

/* A product with its algorithm. */
struct prepared_product {
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
};

struct prepared_call {
    struct op_attrs attrs;
    struct gemm_shape shape;
    struct cuda_slabs slabs;
    int64_t c_at, a_at;                 /* bytes from the arguments' starts to the call's first columns of C and A */
    struct prepared_product product[2]; /* [0]: for all slabs but the last; [1]: for the last */
};

static struct {
    const struct cublaslt *lt;
    cublasLtHandle_t handle;
    int capability;
    struct prepared_call **slot; /* calls by hash, with open addressing; NULL: a free slot */
    int64_t slots, used;         /* slots: a power of 2, at most half of them used */
} gemm;

#define LT(call) lt_status(gemm.lt->call, #call)

static enum status lt_status(cublasStatus_t status, const char *call)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return OK;
    return status_fail(status == CUBLAS_STATUS_ALLOC_FAILED ? ERR_NOMEM : ERR_IO, "%.*s: %s", (int)strcspn(call, "("), call,
                       gemm.lt->cublasLtGetStatusString(status));
}

/* --- Choosing --- */

static enum status make_layout(cublasLtMatrixLayout_t *out, const struct cuda_matrix *m)
{
    return LT(
        cublasLtMatrixLayoutCreate(out, m->type == BF16 ? CUDA_R_16BF : CUDA_R_32F, (uint64_t)m->rows, (uint64_t)m->cols, m->ld));
}

static enum status make_operation(cublasLtMatmulDesc_t *out, const struct cuda_product *p)
{
    const cublasOperation_t a = p->a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, b = p->b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    TRY(LT(cublasLtMatmulDescCreate(out, CUBLAS_COMPUTE_32F, CUDA_R_32F)));
    TRY(LT(cublasLtMatmulDescSetAttribute(*out, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a)));
    return LT(cublasLtMatmulDescSetAttribute(*out, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b));
}

static enum status prefer(cublasLtMatmulPreference_t preference, const struct cuda_product *p)
{
    const uint64_t scratch = (uint64_t)cuda_product_most_scratch(gemm.capability);
    /* reductions in the compute type; NONE, which has no bit, is allowed anyway */
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        const uint32_t *value;
    } words[] = {{CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &p->a.alignment},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &p->b.alignment},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &p->d.alignment},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &p->d.alignment}};
    TRY(LT(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &scratch, sizeof scratch)));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        TRY(LT(cublasLtMatmulPreferenceSetAttribute(preference, words[i].attribute, words[i].value, sizeof *words[i].value)));
    return OK;
}

static enum status choose(struct prepared_product *out, const struct cuda_product *p, cublasLtMatmulPreference_t preference)
{
    cublasLtMatmulHeuristicResult_t result;
    int results = 0;
    TRY(prefer(preference, p));
    const cublasStatus_t status = gemm.lt->cublasLtMatmulAlgoGetHeuristic(gemm.handle, out->operation, out->a, out->b, out->d,
                                                                          out->d, preference, 1, &result, &results);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && (results < 1 || result.state != status)))
        return status_fail(
            ERR_INVALID,
            "cuBLASLt has no algorithm for a product of %s that is %lld x %lld with k %lld, leading dimensions %lld, "
            "%lld and %lld",
            dtype_name((enum dtype)p->d.type), (long long)p->d.cols, (long long)p->d.rows,
            (long long)(p->a.transposed ? p->a.rows : p->a.cols), (long long)p->b.ld, (long long)p->a.ld, (long long)p->d.ld);
    TRY(lt_status(status, "cublasLtMatmulAlgoGetHeuristic"));
    out->algorithm = result.algo;
    return OK;
}

static enum status prepare_product(struct prepared_product *out, const struct cuda_product *p)
{
    cublasLtMatmulPreference_t preference = NULL;
    TRY(make_operation(&out->operation, p));
    TRY(make_layout(&out->a, &p->a));
    TRY(make_layout(&out->b, &p->b));
    TRY(make_layout(&out->d, &p->d));
    TRY(LT(cublasLtMatmulPreferenceCreate(&preference)));
    enum status st = choose(out, p, preference);
    (void)gemm.lt->cublasLtMatmulPreferenceDestroy(preference);
    return st;
}

static void forget_product(struct prepared_product *p)
{
    cublasLtMatrixLayout_t *const layout[] = {&p->a, &p->b, &p->d};
    for (int i = 0; i < 3; i++)
        if (*layout[i])
            (void)gemm.lt->cublasLtMatrixLayoutDestroy(*layout[i]);
    if (p->operation)
        (void)gemm.lt->cublasLtMatmulDescDestroy(p->operation);
}

static void forget_call(struct prepared_call *c)
{
    forget_product(&c->product[0]);
    forget_product(&c->product[1]);
    free(c);
}

/* --- The table --- */

#define WORDS (sizeof(struct op_attrs) / sizeof(int64_t))

static struct prepared_call **slot_of(const struct op_attrs *attrs)
{
    uint64_t at = 0;
    for (size_t i = 0; i < WORDS; i++)
        at = mix(at, (uint64_t)attrs->words[i]);
    while (gemm.slot[at & (uint64_t)(gemm.slots - 1)] &&
           memcmp(gemm.slot[at & (uint64_t)(gemm.slots - 1)]->attrs.words, attrs->words, sizeof attrs->words) != 0)
        at++;
    return &gemm.slot[at & (uint64_t)(gemm.slots - 1)];
}

static enum status make_room(void)
{
    struct prepared_call **old = gemm.slot;
    const int64_t slots = gemm.slots;
    if (2 * (gemm.used + 1) <= slots)
        return OK;
    struct prepared_call **grown = sys_calloc((size_t)max_i64(64, 2 * slots), sizeof *grown);
    if (!grown)
        return status_fail(ERR_NOMEM, "out of memory for %lld products", (long long)gemm.used + 1);
    gemm.slot = grown;
    gemm.slots = max_i64(64, 2 * slots);
    for (int64_t i = 0; i < slots; i++)
        if (old[i])
            *slot_of(&old[i]->attrs) = old[i];
    free(old);
    return OK;
}

enum status cuda_gemm_prepare(const struct op_attrs *attrs)
{
    const struct gemm_shape s = gemm_shape_of(attrs);
    TRY(cuda_product_check(&s));
    TRY(make_room());
    if (*slot_of(attrs))
        return OK;
    struct prepared_call *c = sys_calloc(1, sizeof *c);
    if (!c)
        return status_fail(ERR_NOMEM, "out of memory for %lld products", (long long)gemm.used + 1);
    c->attrs = *attrs;
    c->shape = s;
    c->c_at = attrs->gemm.c_first * dtype_size((enum dtype)attrs->gemm.c_type);
    c->a_at = attrs->gemm.a_first * dtype_size((enum dtype)attrs->gemm.a_type);
    c->slabs = cuda_product_slabs(&s);
    enum status st = OK;
    for (int last = c->slabs.count > 1 ? 0 : 1; last < 2 && st == OK; last++) {
        const struct cuda_slab slab = cuda_product_slab(&s, &c->slabs, last ? c->slabs.count - 1 : 0);
        st = prepare_product(&c->product[last], &slab.product);
    }
    if (st != OK) {
        forget_call(c);
        return st;
    }
    *slot_of(attrs) = c;
    gemm.used++;
    return OK;
}

enum status cuda_gemm_open(int capability)
{
    TRY(cuda_libraries_cublaslt(&gemm.lt));
    gemm.capability = capability;
    return LT(cublasLtCreate(&gemm.handle));
}

void cuda_gemm_close(void)
{
    for (int64_t i = 0; i < gemm.slots; i++)
        if (gemm.slot[i])
            forget_call(gemm.slot[i]);
    free(gemm.slot);
    if (gemm.handle)
        (void)gemm.lt->cublasLtDestroy(gemm.handle);
    memset(&gemm, 0, sizeof gemm);
}

/* --- The numerics key --- */

/* Adds an attribute of the algorithm to the digest; 0 if the algorithm does not have the attribute. */
static enum status digest_attribute(const struct prepared_product *p, cublasLtMatmulAlgoConfigAttributes_t attribute,
                                    size_t bytes, uint64_t *h)
{
    uint32_t value = 0;
    size_t written;
    cublasStatus_t status;
    status = gemm.lt->cublasLtMatmulAlgoConfigGetAttribute(&p->algorithm, attribute, &value, bytes, &written);
    if (status == CUBLAS_STATUS_INVALID_VALUE || status == CUBLAS_STATUS_NOT_SUPPORTED)
        value = 0;
    else
        TRY(lt_status(status, "cublasLtMatmulAlgoConfigGetAttribute"));
    *h = mix(*h, value);
    return OK;
}

static enum status digest_product(const struct prepared_product *p, uint64_t *h)
{
    static const struct {
        cublasLtMatmulAlgoConfigAttributes_t attribute;
        size_t bytes;
    } config[] = {{CUBLASLT_ALGO_CONFIG_ID, 4},
                  {CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
                  {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
                  {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
                  {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
                  {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
                  {CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
                  {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
                  {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2}};
    for (size_t i = 0; i < sizeof config / sizeof *config; i++)
        TRY(digest_attribute(p, config[i].attribute, config[i].bytes, h));
    return OK;
}

enum status cuda_gemm_digest(uint64_t *out)
{
    uint64_t sum = mix(1, gemm.lt->cublasLtGetVersion());
    for (int64_t i = 0; i < gemm.slots; i++) {
        const struct prepared_call *c = gemm.slot[i];
        if (!c)
            continue;
        uint64_t h = 1;
        for (size_t w = 0; w < WORDS; w++)
            h = mix(h, (uint64_t)c->attrs.words[w]);
        for (int last = c->slabs.count > 1 ? 0 : 1; last < 2; last++)
            TRY(digest_product(&c->product[last], &h));
        sum += h;
    }
    *out = sum;
    return OK;
}

/* --- Executing --- */

static enum status check_address(const char *name, const void *p, const struct cuda_matrix *m)
{
    if ((uintptr_t)p % m->alignment == 0)
        return OK;
    return status_fail(ERR_INVALID, "gemm on cuda: %s at %p is not aligned to %u bytes, as its rows are, %lld elements apart",
                       name, p, m->alignment, (long long)m->ld);
}

static enum status submit_slab(const struct prepared_call *c, int64_t index, void *const *arg, cudaStream_t stream)
{
    static const float one = 1, zero = 0;
    const float scale = c->shape.scale != 0.0f ? c->shape.scale : one;
    const struct prepared_product *p = &c->product[index == c->slabs.count - 1];
    const struct cuda_slab slab = cuda_product_slab(&c->shape, &c->slabs, index);
    char *const d = (char *)arg[0] + c->c_at + slab.at[0], *const scratch = (char *)arg[3] + c->slabs.bytes;
    const char *operand[3] = {d, (const char *)arg[1] + c->a_at + slab.at[1], (const char *)arg[2] + slab.at[2]},
               *const from = operand[c->slabs.cast];
    if (c->slabs.cast)
        operand[c->slabs.cast] = (const char *)arg[3];
    TRY(check_address("c", d, &slab.product.d));
    TRY(check_address("a", operand[1], &slab.product.b));
    TRY(check_address("b", operand[2], &slab.product.a));
    if (c->slabs.cast)
        TRY(ops_cuda_cast_rows((bf16 *)arg[3], slab.cast_ld, (const float *)(const void *)from, slab.from_ld, slab.cast_rows,
                               slab.cast_cols, stream));
    return LT(cublasLtMatmul(gemm.handle, p->operation, &scale, operand[2], p->a, operand[1], p->b,
                             c->shape.accumulate ? &one : &zero, d, p->d, d, p->d, &p->algorithm, scratch,
                             (size_t)cuda_product_most_scratch(gemm.capability), stream));
}

enum status ops_cuda_gemm(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    const struct prepared_call *c = gemm.slots > 0 ? *slot_of(attrs) : NULL;
    if (!c)
        return status_fail(ERR_INVALID, "gemm on cuda: a product of %lld x %lld with k %lld was not prepared",
                           (long long)attrs->gemm.m, (long long)attrs->gemm.n, (long long)attrs->gemm.k);
    if (!arg[3] || (uintptr_t)arg[3] % 256 != 0)
        return status_fail(ERR_INVALID, "gemm on cuda: scratch at %p, it is to be aligned to 256 bytes", arg[3]);
    for (int64_t i = 0; i < c->slabs.count; i++)
        TRY(submit_slab(c, i, arg, stream));
    return OK;
}
