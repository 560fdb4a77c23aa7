/* Sequences of this rank, and sums over all ranks. */
#include "train/sequences.h"

#include "base/sys.h"

#include <stdlib.h>

int64_t sequences_own(const struct run *r, int64_t total, int64_t i)
{
    const struct strategy *s = &r->session->plan->strategy;
    const int dp = s->key.mesh.degree[MESH_DP];
    const int64_t n = (i * dp + comm_place(r->comm) / mesh_sharing(&s->key.mesh) % dp) * s->key.packed;
    return n < total ? n : -1;
}

/* Counts attended pairs under a narrower window than that of q's mask. */
static double narrower_pairs(const struct sequence *q, int64_t tokens, int64_t window)
{
    int64_t pairs = 0;
    for (int64_t i = 0; i < tokens; i++)
        pairs += min_i64(i - q->lo[i] + 1, window);
    return (double)pairs;
}

/* Adds the bytes of text of the targets of the first `used` tokens. */
static enum status text_bytes(const struct tokenizer *t, const struct sequence *q, int64_t used, int64_t *bytes)
{
    struct text_buffer text = {0};
    enum status st = OK;
    for (int64_t i = 0, end; i < used && st == OK; i = end) {
        for (end = i; end < used && q->targets[end] >= 0; end++)
            ;
        if (end > i && t) {
            text.n = 0;
            st = tokenizer_decode(t, q->targets + i, (size_t)(end - i), 1, &text);
        }
        *bytes += t ? (int64_t)text.n * (end > i) : end - i;
        end += end == i;
    }
    text_buffer_free(&text);
    return st;
}

int64_t sequences_micro_batches(const struct run *r, int64_t total)
{
    const struct numerics_key *key = &r->session->plan->strategy.key;
    return ceil_div(total, key->mesh.degree[MESH_DP] * key->packed);
}

/* Takes a sequence to a place in the micro-batch, and counts it. */
static enum status take(struct run *r, const struct sequence_source *source, int64_t number, int64_t place, struct tally *t)
{
    struct sequence q = batch_arrays(r->batch, place);
    int64_t used;
    TRY(source->take(source->user, number, &q, &used));
    if (source->counts_bytes)
        TRY(text_bytes(source->tokenizer, &q, used, &t->bytes));
    t->pairs[0] += q.pairs;
    for (int k = 1; k < r->model->n_masks; k++)
        t->pairs[k] += narrower_pairs(&q, q.n_tokens, r->model->mask_window[k]);
    batch_add(r->batch, place, used);
    t->sequences++;
    t->targets += q.n_targets;
    t->tokens += q.n_tokens;
    return OK;
}

enum status sequences_publish(struct run *r, const struct sequence_source *source, int64_t first, int64_t total, struct tally *t)
{
    const int64_t n = first < 0 ? 0 : min_i64(r->session->plan->strategy.key.packed, total - first);
    for (int64_t k = 0; k < n; k++)
        TRY(take(r, source, first + k, k, t));
    TRY(batch_publish(r->batch, n));
    if (n == 0)
        return OK;
    t->digest = t->digest * 0x9e3779b97f4a7c15u + batch_digest(r->batch);
    return OK;
}

enum status sequences_add_up(struct run *r, const struct tally *own, struct tally *sum)
{
    const struct mesh *mesh = &r->session->plan->strategy.key.mesh;
    int n = comm_size(r->comm), sharing = mesh_sharing(mesh), stage = n / mesh_degree(mesh, MESH_PP);
    struct tally *all = sys_calloc((size_t)n, sizeof *all);
    if (!all)
        return status_fail(ERR_NOMEM, "out of memory");
    enum status st = comm_gather(r->comm, own, sizeof *own, all);
    *sum = (struct tally){0};
    for (int place = 0; place < n && st == OK; place++) {
        int k = comm_rank_at(r->comm, place), first = comm_rank_at(r->comm, place % stage / sharing * sharing);
        if (all[k].digest != all[first].digest)
            st = comm_agree(r->comm, status_fail(ERR_INVALID,
                                                 "ranks %d and %d read different data for the same sequence: do all hosts "
                                                 "see the same files?",
                                                 first, k));
        if (k != first)
            continue;
        sum->sequences += all[k].sequences;
        sum->targets += all[k].targets;
        sum->tokens += all[k].tokens;
        sum->bytes += all[k].bytes;
        for (int i = 0; i < MODEL_MASKS; i++)
            sum->pairs[i] += all[k].pairs[i];
    }
    free(all);
    return st;
}

enum status sequences_agree_read(struct run *r, enum status st)
{
    st = comm_agree(r->comm, st);
    r->inputs.unread = st != OK && st != ERR_STOPPED && !comm_broken(r->comm);
    return st;
}
