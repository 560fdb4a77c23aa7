/* Gradient norm, clipping and AdamW: bit for bit the CPU twins' results. */
#include "ops_harness.h"

static void check_sumsq(int64_t n)
{
    struct twin_case c;
    case_start(&c, OP_SUMSQ, "sumsq %lld", (long long)n);
    c.attrs.vec.n = n;
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
    /* 48 bits, so that additions round and some are ties; now and then one of another size */
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

static void check_adamw(int64_t n, int64_t n_decay, int param, int skip, enum dtype moments)
{
    struct twin_case c;
    case_start(&c, OP_ADAMW, "adamw %lld, %lld decay, param %d, skip %d, moments %s", (long long)n, (long long)n_decay, param,
               skip, dtype_name(moments));
    c.attrs.vec.n = n;
    c.attrs.vec.n_decay = n_decay;
    c.attrs.vec.first = (1LL << 32) - n / 2; /* numbers wrap within the arrays */
    c.attrs.vec.share = n;
    c.attrs.vec.moments = (int32_t)moments;
    struct step_record *record = array_new(sizeof *record);
    *record = (struct step_record){.lr = 3e-4f,
                                   .weight_decay = 0.1f,
                                   .beta1 = 0.9f,
                                   .beta2 = 0.95f,
                                   .eps = 1e-8f,
                                   .bias1 = 0.271f,
                                   .bias2 = 0.142625f,
                                   .rounding = 0x9e3779b9u,
                                   .place = 3};
    struct norm_result *norm = array_new(sizeof *norm);
    *norm = (struct norm_result){.norm = 3.0, .factor = 0.333333f, .skip = skip};
    void *v = array_random(n, moments, 1e-3);
    float *grad = array_random(n, F32, 1.0);
    for (int64_t i = 0; i < n; i++) {
        float vi = moments == F32 ? fabsf(((float *)v)[i]) : fabsf(bf16_to_float(((bf16 *)v)[i]));
        if (i % 97 == 5)
            vi = 0.0f, grad[i] = i % 2 ? 0.0f : 1e-30f; /* subnormal squares */
        if (moments == F32)
            ((float *)v)[i] = vi;
        else
            ((bf16 *)v)[i] = bf16_from_float(vi);
    }
    case_arg(&c, array_random(n, F32, 1.0), n, F32, INOUT);
    case_arg(&c, array_random(n, moments, 1e-2), n, moments, INOUT);
    case_arg(&c, v, n, moments, INOUT);
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

void test_update(void)
{
    /* the simulator keeps 70 sums of 4096 elements at a time, of 64 blocks of threads' worth */
    static const int64_t sums[] = {1, 15, 16, 17, 4095, 4096, 4097, 65535, 65536, 70001, 64 * 4096 + 5, 70 * 4096, 70 * 4096 + 7};
    for (size_t s = 0; s < sizeof sums / sizeof *sums; s++)
        check_sumsq(sums[s]);
    /* 256 threads add 16 sums each */
    static const int64_t groups[] = {1, 17, 900, 4097};
    for (size_t s = 0; s < sizeof groups / sizeof *groups; s++) {
        check_clip(groups[s], 1.0f, 0.0);
        check_clip(groups[s], s % 2 ? 0.0f : 1e9f, 0.0);
        check_clip(groups[s], 1.0f, s % 2 ? INFINITY : NAN);
    }
    static const int64_t sizes[] = {1, 3, 4, 5, 1023, 1024, 1025, 5003};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (int moments = F32; moments <= BF16; moments++) {
            check_adamw(sizes[s], 0, s % 2 == 0, 0, (enum dtype)moments);
            check_adamw(sizes[s], sizes[s] / 2, 1, 0, (enum dtype)moments);
            check_adamw(sizes[s], sizes[s], s % 2 != 0, s % 3 == 0, (enum dtype)moments);
        }
    }
}
