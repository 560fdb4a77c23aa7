/* The mask seen from inside a call: keys [mask_from(q), mask_to(q)) of query row q, clipped to 0..sk; both ends non-decreasing. */
#ifndef LTRAIN_ATTENTION_MASK_H
#define LTRAIN_ATTENTION_MASK_H

#include "attention/attention.h"

struct mask {
    const int32_t *lo, *hi; /* [sq], global token numbers, both ends inclusive */
    int64_t sq, sk, k0;
};

static inline struct mask mask_of(const struct op_attrs *attrs, const void *lo, const void *hi)
{
    return (struct mask){lo, hi, attrs->attn.sq, attrs->attn.sk, attrs->attn.k0};
}

static inline int64_t mask_from(const struct mask *m, int64_t q)
{
    return min_i64(max_i64(m->lo[q] - m->k0, 0), m->sk);
}

/* Returns the end of the query's keys; less than mask_from(q) if there are none. */
static inline int64_t mask_to(const struct mask *m, int64_t q)
{
    return min_i64(max_i64(m->hi[q] - m->k0 + 1, 0), m->sk);
}

/* Tells whether every pair of the query rows [q, q_end) and the keys [k, k_end) is attended. */
static inline int mask_covers(const struct mask *m, int64_t q, int64_t q_end, int64_t k, int64_t k_end)
{
    return mask_from(m, q_end - 1) <= k && mask_to(m, q) >= k_end;
}

/* Returns the first query row whose mask_to is beyond k, or sq: no earlier query attends k or a later key. */
static inline int64_t mask_first_query(const struct mask *m, int64_t k)
{
    int64_t low = 0, high = m->sq;
    while (low < high) {
        int64_t mid = low + (high - low) / 2;
        if (mask_to(m, mid) > k)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

/* Returns one past the last query row whose mask_from is at or before k: no later query attends k or an earlier key. */
static inline int64_t mask_end_query(const struct mask *m, int64_t k)
{
    int64_t low = 0, high = m->sq;
    while (low < high) {
        int64_t mid = low + (high - low) / 2;
        if (mask_from(m, mid) > k)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

#endif
