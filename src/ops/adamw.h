/* AdamW with decoupled weight decay (Loshchilov and Hutter 2019), the arithmetic of torch.optim.AdamW in one fixed form.
 *
 * Per element, all in fp32, every operation rounded once, fma(a, b, c) = a * b + c rounded once. Any backend that follows these
 * lines gives the same bits:
 *     decay = fma(-lr, weight_decay, 1) if i < n_decay, else 1
 *     step = lr / bias1
 *     root = sqrt(bias2)
 *     g = grad * factor
 *     m = fma(1 - beta1, g - m, m)
 *     v = fma((1 - beta2) * g, g, beta2 * v)
 *     d = sqrt(v) / root + eps
 *     p = fma(-step, m / d, p * decay)
 *     param = bf16(p), if given
 * with IEEE division and square root and no flushing of subnormals. If norm->skip, p, m and v stay as they are; param is still
 * written. */
#ifndef LTRAIN_OPS_ADAMW_H
#define LTRAIN_OPS_ADAMW_H

#include "base/num.h"
#include "program/op.h"

void ops_adamw(float *master /* [n] inout */, float *m /* [n] inout */, float *v /* [n] inout */, const float *grad /* [n] */,
               const struct norm_result *norm, const struct step_record *record, bf16 *param /* [n] or NULL */, int64_t n,
               int64_t n_decay);

#endif
