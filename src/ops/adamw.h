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
 *     w = (first + member * share + i) * 0x9e3779b9 + rounding    first + member * share + i: the element's number in the model,
 *     w ^= w >> 14, x = w * (2 * w + 0x7feb352d)                 whoever holds it
 *     m = bits(m) + ((x ^ x >> 16) & 0xffff) >> 16, v = bits(v) + (x >> 16) >> 16, NaN stays NaN
 * A Weyl sequence, which vectors step through by additions, a shift and one product: the polynomial permutes the 32-bit integers
 * (its linear coefficient is odd, the other one even: Rivest 2001), so that random `rounding` makes x uniform for every element.
 * Elements 2^32 apart share their numbers.
 *
 * Moments in int8 come in blocks of 256 elements, packed as base/blocks8.h says, m signed and v as squares; n is the number of
 * elements that they are packed for, and blocks never have both elements that decay and others. m and v are unpacked, used as above
 * and packed again, rounded stochastically by the same random numbers: (x ^ x >> 16) & 0xffff of m, x >> 16 of v. */
#ifndef LTRAIN_OPS_ADAMW_H
#define LTRAIN_OPS_ADAMW_H

#include "base/num.h"
#include "program/op.h"

struct adamw_shape {
    int64_t n, n_decay; /* elements; the first n_decay of them decay */
    int64_t first,
        share;          /* number in the model of the first member's first element; distance to the next member's first element */
    enum dtype moments; /* F32, BF16 or I8 */
    int group;          /* comm lane of the members, by lane_comm */
};

void ops_adamw(const struct adamw_shape *s, float *master /* [n] inout */, void *m /* moments[n] inout */,
               void *v /* moments[n] inout */, const float *grad /* [n] */, const struct norm_result *norm,
               const struct step_record *record, bf16 *param /* [n] or NULL */);

#endif
