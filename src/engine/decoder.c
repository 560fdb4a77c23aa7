/* Caches of keys and values: the tail is the block being filled, whole blocks are in slots (plan/lower/strategy.h).
 *
 * No program reads beyond the end of a block. A full tail is moved into its slots before the next token. */
#include "engine/decoder.h"

#include "base/sys.h"
#include "engine/session_state.h"
#include "engine/text_states.h"
#include "plan/lower/strategy.h"
#include "plan/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct decoder {
    struct session *s;
    const struct strategy *strategy;
    int32_t *token;                   /* the text */
    int64_t length, cached, capacity; /* cached <= length: number of tokens whose keys and values are there */
    int64_t tail;                     /* index of the block in the tail */
    int64_t
        furthest[MODEL_MASKS]; /* end of the blocks moved into slots, of each mask; each overwrites the block `slots` before it */
    void *block;               /* scratch for a block that is moved */
    int64_t block_bytes;
    struct text_states *states; /* NULL: the model has no recurrence */
};

/* --- Creation --- */

/* Returns the bytes of a cache's largest tile. */
static int64_t largest_block(const struct program *p)
{
    int64_t most = 1;
    for (int i = 0; i < p->n_live_in; i++) {
        const struct binding *b = &p->live_in[i];
        if (b->kind >= BINDING_CACHE_K)
            most = max_i64(most, (b->row1 - b->row0) * p->tensors[b->tensor].row_bytes);
    }
    return most;
}

/* Copies a cache's tile from its home to d->block, or back. */
static enum status move(const struct decoder *d, const struct binding *b, enum state_access access)
{
    const struct program *p = plan_any(d->s->plan);
    const struct buffer *buf = &p->buffers[b->buffer];
    const struct exec_context *x = &d->s->context;
    int64_t at = buf->address + b->offset, bytes = (b->row1 - b->row0) * p->tensors[b->tensor].row_bytes;
    if (buf->tier == TIER_NVME)
        return access == STATE_READ ? store_read(d->s->store, at, d->block, bytes)
                                    : store_write(d->s->store, at, d->block, bytes);
    return access == STATE_READ ? exec_read(x, buf->tier, at, d->block, bytes) : exec_write(x, buf->tier, at, d->block, bytes);
}

/* Zeroes the caches, and the tables of experts in slots. Kernels also read rows that were never written, where a block has fewer tokens, and multiply them by zero. */
static enum status clear(struct decoder *d)
{
    const struct program *p = plan_any(d->s->plan);
    memset(d->block, 0, (size_t)d->block_bytes);
    for (int i = 0; i < p->n_live_in; i++)
        if (p->live_in[i].kind >= BINDING_CACHE_K)
            TRY(move(d, &p->live_in[i], STATE_WRITE));
    return OK;
}

enum status decoder_create(struct session *s, int64_t tokens, struct decoder **out)
{
    struct decoder *d = sys_calloc(1, sizeof *d);
    enum status st = OK;
    if (!d)
        return status_fail(ERR_NOMEM, "out of memory for a text");
    d->s = s;
    d->strategy = &s->plan->strategy;
    d->capacity = min_i64(tokens, d->strategy->cached_tokens);
    d->block_bytes = round_up(largest_block(plan_any(s->plan)), BUFFER_ALIGN);
    d->token = sys_calloc((size_t)d->capacity + 1, sizeof *d->token);
    d->block = aligned_alloc(BUFFER_ALIGN, (size_t)d->block_bytes);
    memset(session_io(s, s->plan->io.record), 0, sizeof(struct step_record));
    st = d->token && d->block ? clear(d) : status_fail(ERR_NOMEM, "out of memory for a text");
    if (st == OK)
        st = text_states_create(s, &d->states);
    if (st == OK)
        *out = d;
    else
        decoder_destroy(d);
    return st;
}

void decoder_destroy(struct decoder *d)
{
    if (!d)
        return;
    text_states_destroy(d->states);
    free(d->token);
    free(d->block);
    free(d);
}

int64_t decoder_length(const struct decoder *d)
{
    return d->length;
}

enum status decoder_experts(const struct decoder *d, struct decoder_experts *out)
{
    const struct program *p = plan_any(d->s->plan);
    int unit = -1;
    *out = (struct decoder_experts){.slots = d->strategy->expert_slots, .experts = d->s->model->config.experts};
    for (int i = 0; i < p->n_live_in; i++) {
        int32_t counts[KEEP_SLOTS];
        const struct binding *b = &p->live_in[i];
        if (b->kind != BINDING_EXPERTS || b->unit == unit) /* experts of a layer have the same slots in all parts */
            continue;
        unit = b->unit;
        TRY(exec_read(&d->s->context, p->buffers[b->buffer].tier, p->buffers[b->buffer].address + b->offset, counts,
                      sizeof counts));
        out->hits += counts[KEEP_HITS];
        out->misses += counts[KEEP_MISSES];
    }
    return OK;
}

int64_t decoder_ready(const struct decoder *d)
{
    return d->cached;
}

int64_t decoder_capacity(const struct decoder *d)
{
    return d->capacity;
}

const int32_t *decoder_tokens(const struct decoder *d)
{
    return d->token;
}

/* --- Tail and slots --- */

static int mask_of_unit(const struct model *m, int unit)
{
    return model_attention(m, m->units[unit].layer)->mask; /* only attention has tails */
}

/* Finds the home of the slot that begins at `row`, of the layer and kind (K or V) of `tail`. Attention has one tile of all heads. */
static const struct binding *slot_of(const struct program *p, const struct binding *tail, int64_t row)
{
    int kind = tail->kind == BINDING_TAIL_K ? BINDING_CACHE_K : BINDING_CACHE_V;
    const struct binding *b = p->live_in;
    while (b->kind != kind || b->unit != tail->unit || b->row0 != row)
        b++;
    return b;
}

/* Copies block j from the tails of all layers to their slots, or back. A layer has slots for its mask's newest blocks only. */
static enum status move_block(struct decoder *d, int64_t j, enum state_access slots)
{
    const struct program *p = plan_any(d->s->plan);
    for (int i = 0; i < p->n_live_in; i++) {
        const struct binding *tail = &p->live_in[i];
        if (tail->kind != BINDING_TAIL_K && tail->kind != BINDING_TAIL_V)
            continue;
        int64_t n = cached_slots(d->s->model, d->strategy, mask_of_unit(d->s->model, tail->unit));
        if (n == 0)
            continue;
        const struct binding *slot = slot_of(p, tail, j % n * d->strategy->cache_block);
        TRY(move(d, slots == STATE_WRITE ? tail : slot, STATE_READ));
        TRY(move(d, slots == STATE_WRITE ? slot : tail, STATE_WRITE));
    }
    return OK;
}

/* Makes the tail the block of the next token; a full tail moves into its slots. */
static enum status turn_block(struct decoder *d)
{
    int64_t j = d->cached / d->strategy->cache_block;
    if (j == d->tail)
        return OK;
    TRY(move_block(d, d->tail, STATE_WRITE));
    for (int m = 0; m < d->s->model->n_masks; m++)
        d->furthest[m] = max_i64(d->furthest[m], d->tail + 1);
    d->tail = j;
    return d->states ? text_states_keep(d->states, j % 2 ? TEXT_ODD : TEXT_EVEN, d->cached) : OK;
}

/* Tells whether block j is still in its slot. */
static int is_kept(const struct decoder *d, int mask, int64_t j)
{
    int64_t n = cached_slots(d->s->model, d->strategy, mask);
    return n > 0 && j >= d->furthest[mask] - n;
}

/* Returns the first block that a query at `token` attends under a mask. */
static int64_t first_block(const struct decoder *d, int mask, int64_t token)
{
    int64_t w = d->s->model->mask_window[mask];
    return w > 0 ? max_i64(0, token - w + 1) / d->strategy->cache_block : 0;
}

/* Marks all tokens as not cached, so that the next feed reads them again. */
static void forget(struct decoder *d)
{
    d->cached = d->tail = 0;
    memset(d->furthest, 0, sizeof d->furthest);
    if (d->states)
        text_states_cut(d->states, 0);
}

/* Tells whether all keys that tokens from n on attend are in the tail or in slots. */
static int keys_are_kept(const struct decoder *d, int64_t n)
{
    int64_t j = n / d->strategy->cache_block;
    int kept = 1;
    for (int m = 0; m < d->s->model->n_masks && j < d->tail; m++)
        for (int64_t k = first_block(d, m, n); k <= j; k++)
            kept &= is_kept(d, m, k);
    return kept;
}

/* Goes back to the first n tokens or, with states, to fewer after which a copy was made. */
static enum status go_back(struct decoder *d, int64_t n)
{
    if (d->states) {
        text_states_cut(d->states, n);
        n = text_states_longest(d->states, n);
    }
    if ((d->states && n == 0) || !keys_are_kept(d, n)) {
        forget(d);
        return OK;
    }
    if (n / d->strategy->cache_block < d->tail)
        TRY(move_block(d, n / d->strategy->cache_block, STATE_READ));
    d->tail = n / d->strategy->cache_block;
    d->cached = n;
    return d->states ? text_states_restore(d->states, n) : OK;
}

enum status decoder_truncate(struct decoder *d, int64_t n)
{
    d->length = n;
    return n < d->cached ? go_back(d, n) : OK;
}

/* --- Programs --- */

/* Sets the interval of keys that a token attends under a mask, relative to first_key, the first of a block of `keys` keys. */
static void set_mask(int32_t *lo, int32_t *hi, int64_t token, int64_t window, int64_t first_key, int64_t keys)
{
    *lo = (int32_t)min_i64(max_i64((window > 0 ? token - window + 1 : 0) - first_key, 0), keys);
    *hi = (int32_t)min_i64(token - first_key, keys - 1);
}

/* Sets a mask's intervals and predicates for the tail and every slot. Rows without a token attend nothing; neither bound may
 * decrease from row to row. */
static void set_masks(struct decoder *d, int mask, int64_t rows, int64_t used)
{
    const struct session *s = d->s;
    const struct strategy *t = d->strategy;
    int64_t slots = cached_slots(s->model, t, mask), window = s->model->mask_window[mask], B = t->cache_block;
    int32_t *lo = session_io(d->s, s->plan->io.lo[mask]), *hi = session_io(d->s, s->plan->io.hi[mask]);
    int64_t first = first_block(d, mask, d->cached);
    for (int64_t part = 0; part <= slots; part++, lo += t->input_rows, hi += t->input_rows) {
        int64_t j = d->tail; /* block that the part attends: the tail, or the newest block before it that belongs into the slot */
        if (part > 0)
            j = d->tail - 1 - (((d->tail - 1 - (part - 1)) % slots) + slots) % slots;
        int attended = part == 0 || (j >= 0 && j >= first);
        if (part > 0)
            s->predicates[cached_predicate(s->model, t, mask, part - 1)] = (uint8_t)attended;
        for (int64_t i = 0; i < rows; i++) {
            if (i < used && attended)
                set_mask(&lo[i], &hi[i], d->cached + i, window, j * B, B);
            else
                lo[i] = (int32_t)B, hi[i] = i > 0 ? hi[i - 1] : -1;
        }
    }
}

static void set_inputs(struct decoder *d, int64_t rows, int64_t used)
{
    const struct io_buffers *io = &d->s->plan->io;
    int32_t *token = session_io(d->s, io->tokens), *position = session_io(d->s, io->positions),
            *index = session_io(d->s, io->index), *link = io->links >= 0 ? session_io(d->s, io->links) : NULL;
    for (int64_t i = 0; i < rows; i++) {
        int64_t at = d->cached + min_i64(i, used - 1);
        token[i] = d->token[at];
        position[i] = (int32_t)at + model_first_position(&d->s->model->config);
        index[i] = i < used ? (int32_t)(at % d->strategy->cache_block) : -1;
        if (link)
            link[i] = i >= used ? ROW_NONE : at > 0 ? ROW_FOLLOWS : ROW_BEGINS;
    }
    *(int32_t *)session_io(d->s, io->last_row) = (int32_t)(used - 1);
    for (int m = 0; m < d->s->model->n_masks; m++)
        set_masks(d, m, rows, used);
}

/* Chooses the program for n tokens; *rows: its rows. */
static enum plan_program program_for(const struct decoder *d, int64_t n, int64_t *rows)
{
    enum plan_program which = n == 1 ? PLAN_DECODE : PLAN_PREFILL;
    const struct program *const *p = (const struct program *const *)d->s->plan->programs;
    if (n > 1 && p[PLAN_PREFILL_SHORT] && n <= SAMPLING_SHORT_ROWS)
        which = PLAN_PREFILL_SHORT;
    *rows = which == PLAN_DECODE ? 1 : which == PLAN_PREFILL ? d->strategy->input_rows : SAMPLING_SHORT_ROWS;
    return which;
}

/* Sets the rotary frequencies for a text of `end` tokens, for models where they depend on the length. As in transformers, keys
 * keep the frequencies they were made with; only when longrope changes from short to long factors are all tokens read again. */
static void set_frequencies(struct decoder *d, int64_t end)
{
    const struct model_config *c = &d->s->model->config;
    double border = c->rope_original_positions;
    if (c->rope == ROPE_LONGROPE && d->cached > 0 && ((double)d->cached <= border) != ((double)end <= border))
        forget(d);
    model_inv_freq(d->s->model, end, session_io(d->s, d->s->plan->io.inv_freq));
}

/* Reads tokens up to `end`, in parts that lie in one block each. */
static enum status read_on(struct decoder *d, int64_t end, const atomic_int *stop)
{
    int64_t B = d->strategy->cache_block;
    set_frequencies(d, end);
    while (d->cached < end) {
        if (stop && atomic_load(stop))
            return status_fail(ERR_CANCELLED, "stopped");
        TRY(turn_block(d));
        int64_t rows, used = min_i64(min_i64(end - d->cached, B - d->cached % B), d->strategy->input_rows);
        enum plan_program which = program_for(d, used, &rows);
        set_inputs(d, rows, used);
        TRY(session_run(d->s, which, NULL));
        d->cached += used;
    }
    return OK;
}

/* Reads a prompt up to its last token, and keeps the states: answers begin there again, and so do prompts with the same beginning. */
static enum status read_prompt(struct decoder *d, int64_t end, const atomic_int *stop)
{
    TRY(read_on(d, end, stop));
    return text_states_keep(d->states, TEXT_PROMPT, end);
}

/* Copies the logits, scaled and capped as OP_LOSS does. */
static void take_logits(struct decoder *d, float *out)
{
    const struct model_config *c = &d->s->model->config;
    const float *x = session_io(d->s, d->s->plan->io.logits);
    float scale = c->logit_scale > 0 ? (float)c->logit_scale : 1, cap = (float)c->logit_cap;
    for (int64_t i = 0; i < c->vocab; i++) {
        float y = scale * x[i];
        out[i] = cap > 0 ? cap * tanhf(y / cap) : y;
    }
}

enum status decoder_feed(struct decoder *d, const int32_t *token, int64_t n, const atomic_int *stop, float *logits)
{
    if (n > d->capacity - d->length)
        return status_fail(ERR_INVALID, "%lld tokens are more than the %lld that a text may have (--seq-len)",
                           (long long)(d->length + n), (long long)d->capacity);
    for (int64_t i = 0; i < n; i++)
        if (token[i] < 0 || token[i] >= d->s->model->config.vocab)
            return status_fail(ERR_INVALID,
                               "the text has token %d, and the model has those from 0 to %lld: is it another model's tokenizer?",
                               token[i], (long long)d->s->model->config.vocab - 1);
    memcpy(d->token + d->length, token, (size_t)n * sizeof *token);
    enum status st = d->states && n > 1 ? read_prompt(d, d->length + n - 1, stop) : OK;
    if (st == OK)
        st = read_on(d, d->length + n, stop);
    d->length = st == OK ? d->length + n : d->cached;
    if (st == OK && logits)
        take_logits(d, logits);
    return st;
}

enum status decoder_read(struct decoder *d, const int32_t *token, int64_t n, const atomic_int *stop, float *logits)
{
    int64_t same = 0;
    while (same < n - 1 && same < d->length && token[same] == d->token[same])
        same++;
    TRY(decoder_truncate(d, same));
    return decoder_feed(d, token + same, n - same, stop, logits);
}
