/* A sum over the members of a group, as OP_REDUCE_SCATTER and OP_ALL_REDUCE have it: pieces that have come from other members and
 * the own one, each rounded to the type that travels, are added in the members' order, whatever order they came in. */
#ifndef LTRAIN_OPS_REDUCE_H
#define LTRAIN_OPS_REDUCE_H

#include "base/num.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct reduce_pieces {
    float *dst;         /* [n]; own's memory, or apart from all others */
    const float *own;   /* [n], not rounded yet */
    const char *pieces; /* [n] of member r at r * stride bytes; the own one's place is not read */
    int64_t n, stride;
    int32_t members, me, type; /* type: F32 or BF16, of the pieces */
};

void ops_reduce(const struct reduce_pieces *r);
/* The same bits, in device memory. Enqueues on `stream` and returns. */
enum status ops_cuda_reduce(const struct reduce_pieces *r, void *stream);

#ifdef __cplusplus
}
#endif
#endif
