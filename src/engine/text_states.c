#include "engine/text_states.h"

#include "base/num.h"
#include "base/sys.h"
#include "engine/session_state.h"

#include <stdlib.h>

struct text_states {
    struct session *s;
    int64_t tokens[TEXT_PLACES]; /* length of the text after which a copy was made; 0: none */
    char *copy[TEXT_PLACES];
};

static int64_t bytes_of(const struct program *p, const struct binding *b)
{
    return (b->row1 - b->row0) * p->tensors[b->tensor].row_bytes;
}

static int64_t all_bytes(const struct program *p)
{
    int64_t bytes = 0;
    for (int i = 0; i < p->n_live_in; i++)
        if (p->live_in[i].kind == BINDING_STATE)
            bytes += round_up(bytes_of(p, &p->live_in[i]), BUFFER_ALIGN);
    return bytes;
}

enum status text_states_create(struct session *s, struct text_states **out)
{
    const int64_t bytes = all_bytes(plan_any(s->plan));
    struct text_states *x = bytes > 0 ? sys_calloc(1, sizeof *x) : NULL;
    *out = x;
    if (bytes == 0)
        return OK;
    for (int i = 0; x && i < TEXT_PLACES; i++)
        x->copy[i] = aligned_alloc(BUFFER_ALIGN, (size_t)bytes);
    if (x && x->copy[TEXT_EVEN] && x->copy[TEXT_ODD] && x->copy[TEXT_PROMPT]) {
        x->s = s;
        return OK;
    }
    text_states_destroy(x);
    *out = NULL;
    return status_fail(ERR_NOMEM, "out of memory: %d copies of a text's states, %lld bytes each", TEXT_PLACES, (long long)bytes);
}

void text_states_destroy(struct text_states *x)
{
    for (int i = 0; x && i < TEXT_PLACES; i++)
        free(x->copy[i]);
    free(x);
}

/* Copies all states from their homes, which are never on drives, or back. */
static enum status copy(const struct text_states *x, char *there, enum state_access access)
{
    const struct program *p = plan_any(x->s->plan);
    for (int i = 0; i < p->n_live_in; i++) {
        const struct binding *b = &p->live_in[i];
        if (b->kind != BINDING_STATE)
            continue;
        const struct buffer *home = &p->buffers[b->buffer];
        const int64_t at = home->address + b->offset, bytes = bytes_of(p, b);
        TRY(access == STATE_READ ? exec_read(&x->s->context, home->tier, at, there, bytes)
                                 : exec_write(&x->s->context, home->tier, at, there, bytes));
        there += round_up(bytes, BUFFER_ALIGN);
    }
    return OK;
}

enum status text_states_keep(struct text_states *x, enum text_place place, int64_t tokens)
{
    TRY(copy(x, x->copy[place], STATE_READ));
    x->tokens[place] = tokens;
    return OK;
}

int64_t text_states_longest(const struct text_states *x, int64_t most)
{
    int64_t longest = 0;
    for (int i = 0; i < TEXT_PLACES; i++)
        if (x->tokens[i] <= most)
            longest = max_i64(longest, x->tokens[i]);
    return longest;
}

enum status text_states_restore(struct text_states *x, int64_t tokens)
{
    int i = 0;
    while (x->tokens[i] != tokens)
        i++;
    return copy(x, x->copy[i], STATE_WRITE);
}

void text_states_cut(struct text_states *x, int64_t most)
{
    for (int i = 0; i < TEXT_PLACES; i++)
        x->tokens[i] = x->tokens[i] > most ? 0 : x->tokens[i];
}
