/* Soft caps of scores, cap * tanh(score / cap), in vectors of whichever instruction set is included. */
#ifndef LTRAIN_ATTENTION_CAP_H
#define LTRAIN_ATTENTION_CAP_H

/* Returns tanh(x): near 0 by a polynomial (Moshier's Cephes, tanhf), else from the exponential; NaN stays NaN. With the usual cap
 * (50), scores up to 31 count as near; the exponential is computed only if a lane is not. */
static inline SIMD vf vf_tanh(vf x)
{
    const vf a = vf_max(x, -x), z = x * x;
    vf p = z * vf_set(-5.70498872745e-3f) + vf_set(2.06390887954e-2f);
    p = p * z - vf_set(5.37397155531e-2f);
    p = p * z + vf_set(1.33314422036e-1f);
    p = p * z - vf_set(3.33332819422e-1f);
    const vf near = p * z * x + x;
    const vm is_far = vf_not_less(a, vf_set(0.625f));
    if (!vm_any(is_far))
        return near;
    const vf e = vf_exp2(-vf_max(vf_set(-43.0f), vf_set(-2.885390082f) * a)); /* beyond 15 the quotient vanishes */
    const vf far = vf_set(1.0f) - vf_set(2.0f) / (e + vf_set(1.0f));
    return vf_select(is_far, vf_select(vf_greater(vf_set(0.0f), x), -far, far), near);
}

#endif
