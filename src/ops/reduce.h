/* Summing over the members of a group, as OP_REDUCE_SCATTER and OP_ALL_REDUCE do.
 *
 * The pieces of all members, each rounded to the type that travels, are added in the members' order, whatever order they came in. */
#ifndef LTRAIN_OPS_REDUCE_H
#define LTRAIN_OPS_REDUCE_H

#include "base/num.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct reduce_pieces {
    float *dst;         /* destination: either own's memory or memory that no input shares */
    const float *own;   /* the own piece, not rounded yet */
    const char *pieces; /* piece [n] of member r is at r * stride bytes; this member's own place is not read */
    int64_t n, stride;
    int32_t members, me, type; /* type: F32 or BF16, of the pieces */
};

void ops_reduce(const struct reduce_pieces *r);
/* Computes the same bits in device memory. Enqueues on `stream` and returns. */
enum status ops_cuda_reduce(const struct reduce_pieces *r, void *stream);

#ifdef __cplusplus
}
#endif
#endif
