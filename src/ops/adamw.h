/* AdamW with decoupled weight decay (Loshchilov and Hutter 2019), the arithmetic of torch.optim.AdamW in one fixed form.
 *
 * Per element, all in fp32, every operation rounded once, fma(a, b, c) = a * b + c rounded once. Any backend that follows these
 * lines gives the same bits:
 *     decay = fma(-lr, weight_decay, 1) if i < n_decay, else 1
 *     step = lr / bias1
 *     scale = 1 / sqrt(bias2)
 *     g = grad * factor
 *     m = fma(1 - beta1, g - m, m)
 *     v = fma((1 - beta2) * g, g, beta2 * v)
 *     d = fma(sqrt(v), scale, eps)
 *     p = fma(-step, m / d, p * decay)
 *     param = bf16(p), if given
 * with IEEE division and square root and no flushing of subnormals. If norm->skip, p, m and v stay as they are; param is still
 * written.
 *
 * Moments in bf16 are rounded stochastically after p has used them: up with the probability that makes the mean exact, else small
 * updates of v would round away. With 32-bit integers, shifts filled with zeros:
 *     x = (first + rank * share + i) ^ rounding          the element's number in the model, whoever holds it
 *     x ^= x >> 16, x *= 0x7feb352d, x ^= x >> 15, x *= 0x846ca68b, x ^= x >> 16
 *     m = bits(m) + (x & 0xffff) >> 16, v = bits(v) + (x >> 16) >> 16, NaN stays NaN
 * (the integer hash "lowbias32", C. Wellons). Elements 2^32 apart share their numbers. */
#ifndef LTRAIN_OPS_ADAMW_H
#define LTRAIN_OPS_ADAMW_H

#include "base/num.h"
#include "program/op.h"

struct adamw_shape {
    int64_t n, n_decay;   /* elements; the first so many decay */
    int64_t first, share; /* number in the model of rank 0's first element; how far on the next rank's is */
    enum dtype moments;   /* F32 or BF16 */
};

void ops_adamw(const struct adamw_shape *s, float *master /* [n] inout */, void *m /* moments[n] inout */,
               void *v /* moments[n] inout */, const float *grad /* [n] */, const struct norm_result *norm,
               const struct step_record *record, bf16 *param /* [n] or NULL */);

#endif
