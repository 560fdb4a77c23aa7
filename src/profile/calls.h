/* Calls of products and attention that profiles time, on CPUs and GPUs. Private to src/profile. */
#ifndef LTRAIN_PROFILE_CALLS_H
#define LTRAIN_PROFILE_CALLS_H

#include "profile/profile.h"

/* Sets the attributes of a product. size: m, n and k. Inputs are in `type`, results in fp32; weight gradients (TN) add to them. */
void profile_gemm_attrs(enum dtype type, enum gemm_layout layout, const int64_t size[3], struct op_attrs *a);

/* One head tile over a causal sequence. */
struct attention_case {
    int64_t S;
    int head_dim, hq, hk;
    enum dtype type;
};
void profile_attention_attrs(const struct attention_case *x, struct op_attrs *a);
/* Sets the bytes of each argument, with 0 for the last, `work`; returns the number of arguments. The two before `work` are lo and
 * hi. */
int profile_attention_bytes(enum op_kind op, const struct attention_case *x, int64_t bytes[OP_MAX_ARGS]);

#endif
