/* Tasks and turns of the backward passes: masks by blocks, the task of each thread, and the order in which sums are added.
 *
 * A task is one key block of one query head, against all query blocks it touches, from the last to the first. Invariants make it
 * deterministic and free of deadlock:
 *
 * 1. Tasks are taken in increasing order of (head, key block), and wait only for smaller ones: the smallest unfinished never
 * waits.
 *
 * 2. q_ticket[head][i] is the key block whose turn it is to add to dq of query block i; it runs through the blocks that i
 * touches.
 *
 * 3. k_ticket[kv][j] is the query head whose turn it is to add to dk and dv of key block j; it runs through the heads of kv.
 *
 * 4. If the call is to end early (cpu_stops), every thread leaves its task at the next block or while it waits for its turn. It
 * adds nothing out of turn and takes no block any more; all meet at the batch's barrier. */
#ifndef LTRAIN_ATTENTION_TURNS_H
#define LTRAIN_ATTENTION_TURNS_H

#include "attention/mask.h"
#include "device/cpu_stream.h"

#include <immintrin.h>
#include <sched.h>
#include <stdatomic.h>

/* Query rows processed at a time. The limit bounds the packed copies of q, do and dq: at 420k tokens and head dim 32 they take 30
 * instead of 184 MiB. */
#define SEGMENT 65536
#define BATCH_ROWS 4096 /* most rows for which several heads are processed at a time, which takes fewer barriers */

typedef _Atomic int32_t ticket; /* number whose turn it is */

struct turns {
    struct mask mask;
    const struct cpu_stream *stream;
    int64_t block, span;                /* rows of a block; rows of a span, all pairs of which are computed or none */
    int64_t group;                      /* query heads per KV head */
    int64_t q_blocks, k_blocks, batch;  /* q_blocks: of a segment; k_blocks: of all keys; batch: query heads at a time */
    int32_t *from, *to;                 /* [q_blocks * block]: the mask; an empty interval for rows that do not exist */
    int32_t *first_block, *end_block;   /* [q_blocks]: key blocks that a query block touches */
    ticket *q_ticket, *k_ticket, *next; /* [batch][q_blocks], [batch][k_blocks], [1] */
};

static inline struct turns turns_of(const struct op_attrs *attrs, int64_t block, int64_t span)
{
    const int64_t hq = attrs->attn.hq, sq = min_i64(attrs->attn.sq, SEGMENT);
    return (struct turns){.block = block,
                          .span = span,
                          .group = hq / attrs->attn.hk,
                          .q_blocks = ceil_div(sq, block),
                          .k_blocks = ceil_div(attrs->attn.sk, block),
                          .batch = max_i64(1, min_i64(hq, BATCH_ROWS / max_i64(sq, 1)))};
}

/* Lays out the arrays from `work` on; returns their end. */
static inline void *turns_layout(struct turns *t, void *work)
{
    t->from = work;
    t->to = t->from + t->q_blocks * t->block;
    t->first_block = t->to + t->q_blocks * t->block;
    t->end_block = t->first_block + t->q_blocks;
    t->q_ticket = (ticket *)(void *)(t->end_block + t->q_blocks);
    t->k_ticket = t->q_ticket + t->batch * t->q_blocks;
    t->next = t->k_ticket + t->batch * t->k_blocks;
    return (void *)(t->next + 1);
}

/* Takes query rows [row, row + SEGMENT) of a call of OP_ATTN_BWD. */
static inline void turns_take(struct turns *t, const struct op_attrs *attrs, void *const *arg, int64_t row,
                              const struct cpu_stream *stream)
{
    t->mask = mask_of(attrs, (const int32_t *)arg[9] + row, (const int32_t *)arg[10] + row);
    t->mask.sq = min_i64(SEGMENT, attrs->attn.sq - row);
    t->stream = stream;
    t->q_blocks = ceil_div(t->mask.sq, t->block);
}

static inline void turns_prepare_mask(const struct turns *t, int64_t i)
{
    const int64_t row = i * t->block, end = min_i64(row + t->block, t->mask.sq);
    for (int64_t r = row; r < row + t->block; r++) {
        t->from[r] = r < end ? (int32_t)mask_from(&t->mask, r) : 0;
        t->to[r] = r < end ? (int32_t)mask_to(&t->mask, r) : 0;
    }
    const int32_t from = t->from[row], to = t->to[end - 1];
    t->first_block[i] = from < to ? (int32_t)(from / t->block) : 0;
    t->end_block[i] = from < to ? (int32_t)ceil_div(to, t->block) : 0;
}

/* Starts a batch; called by one thread, once all threads have left the previous batch. */
static inline void turns_start_batch(const struct turns *t, int64_t first_head)
{
    for (int64_t slot = 0; slot < t->batch; slot++) {
        const int64_t kv = first_head / t->group + slot;
        for (int64_t j = 0; j < t->k_blocks; j++)
            atomic_store(t->k_ticket + slot * t->k_blocks + j, (int32_t)max_i64(first_head, kv * t->group));
    }
    atomic_store(t->next, 0);
}

/* Tells whether the span of queries at `row` and the span of keys at `key` share an attended pair, judged by the first and last
 * query. In each row and column of spans, those that share a pair are contiguous. */
static inline int turns_meet(const struct turns *t, int64_t row, int64_t key)
{
    const int64_t last = min_i64(row + t->span, t->mask.sq) - 1;
    return row <= last && t->from[row] < key + t->span && t->to[last] > key;
}

/* Finds the spans [*first, *end) of query block i that meet the keys at `key`. */
static inline void turns_queries(const struct turns *t, int64_t i, int64_t key, int64_t *first, int64_t *end)
{
    const int64_t row = i * t->block, spans = t->block / t->span;
    for (*first = 0; *first < spans && !turns_meet(t, row + *first * t->span, key);)
        ++*first;
    for (*end = *first; *end < spans && turns_meet(t, row + *end * t->span, key);)
        ++*end;
}

/* Finds the spans [*first, *end) of key block j that meet the queries at `row`. */
static inline void turns_keys(const struct turns *t, int64_t row, int64_t j, int64_t *first, int64_t *end)
{
    const int64_t key = j * t->block, spans = t->block / t->span;
    for (*first = 0; *first < spans && !turns_meet(t, row, key + *first * t->span);)
        ++*first;
    for (*end = *first; *end < spans && turns_meet(t, row, key + *end * t->span);)
        ++*end;
}

/* Waits for a turn; writes of earlier turns are then visible. Returns 0 if the call is to end early, as the turn may then never
 * come. */
static inline int take_turn(const struct turns *t, ticket *k, int32_t turn)
{
    for (int spins = 0; atomic_load_explicit(k, memory_order_acquire) != turn; spins++) {
        if (cpu_stops(t->stream))
            return 0;
        if (spins < 2000)
            _mm_pause();
        else
            sched_yield(); /* lets others run, in case there are more threads than cores */
    }
    return 1;
}

static inline void pass_turn(ticket *t, int32_t turn)
{
    atomic_store_explicit(t, turn, memory_order_release);
}

/* Prepares query block i of a head, which has a slot of the batch. call: struct backward of the caller. */
typedef void turns_prepare(const void *call, int64_t slot, int64_t head, int64_t i);
/* Processes key block j of the head in `slot` of the batch that starts at first_head. scratch: of this thread. */
typedef void turns_task(const void *call, const void *scratch, int64_t first_head, int64_t slot, int64_t j);

/* Runs all tasks, a batch of the `heads` query heads at a time. Called by all threads of a team. */
static inline void turns_run(const struct turns *t, int64_t heads, turns_prepare *prepare, turns_task *process, const void *call,
                             const void *scratch)
{
#pragma omp for schedule(static)
    for (int64_t i = 0; i < t->q_blocks; i++)
        turns_prepare_mask(t, i);
    for (int64_t first = 0; first < heads; first += t->batch) {
        const int64_t n = min_i64(t->batch, heads - first);
        int64_t task;
#pragma omp for schedule(dynamic) nowait
        for (int64_t i = 0; i < n * t->q_blocks; i++)
            prepare(call, i / t->q_blocks, first + i / t->q_blocks, i % t->q_blocks);
#pragma omp single
        turns_start_batch(t, first);
        while ((task = atomic_fetch_add(t->next, 1)) < n * t->k_blocks)
            process(call, scratch, first, task / t->k_blocks, task % t->k_blocks);
#pragma omp barrier
    }
}

#endif
