/* Tests gradient norm, clipping, AdamW and sums over ranks: results have the bits of the CPU twins. */
#include "ops_harness.h"

#include "base/blocks8.h"
#include "ops/reduce.h"

static void check_sumsq(int64_t n, int share)
{
    struct twin_case c;
    case_start(&c, OP_SUMSQ, "sumsq %lld over %d", (long long)n, share);
    c.attrs.vec.n = n;
    c.attrs.vec.share = share;
    case_arg(&c, array_new(8), 1, F64, OUT);
    case_arg(&c, array_random(n, F32, 1.0), n, F32, IN);
    case_run(&c);
    arrays_free();
}

static void check_clip(int64_t n, float clip, double spoil)
{
    struct twin_case c;
    case_start(&c, OP_CLIP, "clip of %lld sums at %g, one %g", (long long)n, (double)clip, spoil);
    c.attrs.vec.n = n;
    struct step_record *record = array_new(sizeof *record);
    memset(record, 0, sizeof *record);
    record->clip = clip;
    /* sums have 48 bits, so that additions round and some are ties; now and then a sum is of another size */
    double *sums = array_random(n, F64, 1.0), *other = array_random(n, F64, 1.0);
    for (int64_t i = 0; i < n; i++)
        sums[i] = ldexp(fabs(sums[i] * other[i]), i % 61 == 7 ? (int)(i % 41) - 20 : 0);
    if (spoil != 0.0)
        sums[n / 2] = spoil;
    case_arg(&c, array_new(sizeof(struct norm_result)), sizeof(struct norm_result) / 8, F64, OUT);
    case_arg(&c, sums, n, F64, IN);
    case_arg(&c, record, sizeof *record / 4, F32, IN);
    case_run(&c);
    arrays_free();
}

/* Makes quantised moments, rounded to nearest: a block of zeros, a block whose largest element is negative, a block with two
 * largest elements of opposite signs, and others. */
static void *packed(enum blocks8_kind kind, float *x, int64_t n)
{
    void *p = array_new(blocks8_bytes(n));
    for (int64_t i = 0; i < n; i++) {
        const int64_t block = i / BLOCK8 % 5, j = i % BLOCK8;
        if (block == 1)
            x[i] = 0.0f;
        if (kind == BLOCKS8_SIGNED && j < 2 && (block == 2 || block == 3))
            x[i] = j == block - 2 ? -1.0f : block == 3 ? 1.0f : 0.5f;
    }
    blocks8_pack(kind, x, n, p);
    return p;
}

static void check_adamw(int64_t n, int64_t n_decay, int param, int skip, enum dtype moments)
{
    struct twin_case c;
    case_start(&c, OP_ADAMW, "adamw %lld, %lld decay, param %d, skip %d, moments %s", (long long)n, (long long)n_decay, param,
               skip, dtype_name(moments));
    c.attrs.vec.n = n;
    c.attrs.vec.n_decay = n_decay;
    c.attrs.vec.first = (1LL << 32) - n / 2; /* the elements' numbers wrap around within the arrays */
    c.attrs.vec.share = n;
    c.attrs.vec.moments = (int32_t)moments;
    c.attrs.vec.group = 1;
    struct step_record *record = array_new(sizeof *record);
    *record = (struct step_record){.lr = 3e-4f,
                                   .weight_decay = 0.1f,
                                   .beta1 = 0.9f,
                                   .beta2 = 0.95f,
                                   .eps = 1e-8f,
                                   .bias1 = 0.271f,
                                   .bias2 = 0.142625f,
                                   .rounding = 0x9e3779b9u,
                                   .member = {2, 3}};
    struct norm_result *norm = array_new(sizeof *norm);
    *norm = (struct norm_result){.norm = 3.0, .factor = 0.333333f, .skip = skip};
    const enum dtype numbers = moments == BF16 ? BF16 : F32;
    void *m = array_random(n, numbers, 1e-2), *v = array_random(n, numbers, 1e-3);
    float *grad = array_random(n, F32, 1.0);
    for (int64_t i = 0; i < n; i++) {
        float vi = numbers == F32 ? fabsf(((float *)v)[i]) : fabsf(bf16_to_float(((bf16 *)v)[i]));
        if (i % 97 == 5)
            vi = 0.0f, grad[i] = i % 2 ? 0.0f : 1e-30f; /* subnormal squares */
        else if (i % 97 == 6)
            vi = 0.0f, grad[i] = 1e-12f; /* the root is smaller than all values of the int8 format except 0 */
        if (i / BLOCK8 % 5 == 1 && moments == I8)
            grad[i] = 0.0f; /* moments that are zero stay zero */
        if (numbers == F32)
            ((float *)v)[i] = vi;
        else
            ((bf16 *)v)[i] = bf16_from_float(vi);
    }
    case_arg(&c, array_random(n, F32, 1.0), n, F32, INOUT);
    if (moments == I8) { /* given as 4-byte words, to which they are aligned */
        case_arg(&c, packed(BLOCKS8_SIGNED, m, n), blocks8_bytes(n) / 4, I32, INOUT);
        case_arg(&c, packed(BLOCKS8_SQUARES, v, n), blocks8_bytes(n) / 4, I32, INOUT);
    } else {
        case_arg(&c, m, n, moments, INOUT);
        case_arg(&c, v, n, moments, INOUT);
    }
    case_arg(&c, grad, n, F32, IN);
    case_arg(&c, norm, sizeof *norm / 8, F64, IN);
    case_arg(&c, record, sizeof *record / 4, F32, IN);
    if (param)
        case_arg(&c, array_new(2 * n), n, BF16, OUT);
    else
        case_absent(&c);
    case_run(&c);
    arrays_free();
}

struct reduce_call {
    struct reduce_pieces r;
    int in_place;
};

static enum status call_reduce(void *const *arg, void *stream, void *context)
{
    struct reduce_call k = *(const struct reduce_call *)context;
    k.r.dst = arg[0];
    k.r.own = k.in_place ? arg[0] : arg[2];
    k.r.pieces = arg[1];
    return ops_cuda_reduce(&k.r, stream);
}

/* Compares the kernel's sums over ranks with those added one rank after another. */
static void check_reduce(int64_t n, int members, int me, enum dtype type, int in_place)
{
    struct twin_case c;
    const int64_t size = dtype_size(type), stride = round_up(n * size, n % 2 ? 4 : 16);
    case_start(&c, OP_REDUCE_SCATTER, "sum of %lld, member %d of %d, %s%s", (long long)n, me, members, dtype_name(type),
               in_place ? ", in place" : "");
    char *pieces = array_random(members * stride / size, type, 1.0);
    float *own = array_random(n, F32, 1.0), *dst = in_place ? own : array_new(n * 4), *want = array_new(n * 4),
          *twin = array_new(n * 4);
    for (int m = 0; m < members; m++) /* the sum of negative zeros is a negative zero */
        memcpy(pieces + m * stride, type == F32 ? "\0\0\0\x80" : "\0\x80", (size_t)size);
    own[0] = -0.0f;
    memset(pieces + me * stride, 0xff, (size_t)(n * size)); /* not read */
    for (int64_t i = 0; i < n; i++) {
        want[i] = -0.0f;
        for (int m = 0; m < members; m++) {
            const char *at = pieces + m * stride + i * size;
            float x = m == me       ? own[i]
                      : type == F32 ? *(const float *)(const void *)at
                                    : bf16_to_float(*(const bf16 *)(const void *)at);
            want[i] += m == me && type == BF16 ? bf16_to_float(bf16_from_float(x)) : x;
        }
    }
    struct reduce_call k = {{twin, own, pieces, n, stride, members, me, type}, in_place};
    ops_reduce(&k.r);
    if (memcmp(twin, want, (size_t)n * 4) != 0)
        fail("%s: the CPU twin adds otherwise", c.what);
    case_arg(&c, dst, n, F32, in_place ? INOUT : OUT);
    case_arg(&c, pieces, members * stride / size, type, IN);
    if (!in_place)
        case_arg(&c, own, n, F32, IN);
    case_run_call(&c, call_reduce, &k, 0, want);
    arrays_free();
}

static void check_reduces(void)
{
    static const int64_t sizes[] = {1, 7, 8, 9, 1023, 1024, 2048, 2049, 5003};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int members = 2 + (int)(s % 4);
        for (int type = F32; type <= BF16; type++)
            check_reduce(sizes[s], members, (int)s % members, (enum dtype)type, (s + (size_t)type) % 2 == 0);
    }
}

void test_update(void)
{
    check_reduces();
    /* in the simulator the kernel keeps 70 sums of 4096 elements at a time; an input of up to 32 sums is short: its thread blocks
     * make 4 sums each, those of others 16 */
    static const int64_t sums[] = {0,
                                   1,
                                   15,
                                   16,
                                   17,
                                   4095,
                                   4096,
                                   4097,
                                   65535,
                                   65536,
                                   70001,
                                   32 * 4096,
                                   32 * 4096 + 1,
                                   64 * 4096 + 5,
                                   70 * 4096,
                                   70 * 4096 + 7};
    for (size_t s = 0; s < sizeof sums / sizeof *sums; s++)
        check_sumsq(sums[s], s % 2 ? 3 : 0);
    /* 256 threads add 8 sums each */
    static const int64_t groups[] = {1, 17, 900, 4097};
    for (size_t s = 0; s < sizeof groups / sizeof *groups; s++) {
        check_clip(groups[s], 1.0f, 0.0);
        check_clip(groups[s], s % 2 ? 0.0f : 1e9f, 0.0);
        check_clip(groups[s], 1.0f, s % 2 ? INFINITY : NAN);
    }
    static const int64_t sizes[] = {1, 3, 4, 5, 1023, 1024, 1025, 5003};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int moments = F32; moments <= I8; moments++) {
            check_adamw(sizes[s], 0, s % 2 == 0, 0, (enum dtype)moments);
            const int64_t half = sizes[s] / 2;
            check_adamw(sizes[s], moments == I8 ? half - half % BLOCK8 : half, 1, 0,
                        (enum dtype)moments); /* whole blocks decay */
            check_adamw(sizes[s], sizes[s], s % 2 != 0, s % 3 == 0, (enum dtype)moments);
        }
    }
}
