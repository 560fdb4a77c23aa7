/* A simulated wire in place of MPI's: messages are late, overtake each other except within a channel between two ranks, and are read
 * from the sender's memory as late as MPI may. */
#include "comm/wire.h"

#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 2048 /* bytes of a message that is sent off at once */ };
static const int64_t US = 1000, MS = 1000000;

enum use { FREE, SENDING, RECEIVING, DONE };

struct slot {
    enum use use;
    int peer, bytes; /* bytes: room of a receive; then of the message */
    int64_t number;  /* order of posting */
    void *data;
};

struct table {
    int slots;
    struct slot *slot;
    struct wire_event *event;
};

struct wire {
    int rank;
    struct table table[CHANNELS];
};

struct message {
    int channel, from, to, bytes, slot;
    const void *data;
    char *copy; /* NULL: still in the sender's memory */
    int64_t at; /* time of its arrival */
    struct message *next;
};

static struct message *flying; /* in the order of sending */
static struct wire *end[WORLD_MOST];
static int64_t last_at[CHANNELS][WORLD_MOST][WORLD_MOST], posted;

void wire_reset(void)
{
    flying = NULL;
    memset(end, 0, sizeof end);
    memset(last_at, 0, sizeof last_at);
}

void wire_forget(int rank)
{
    for (struct message **m = &flying; *m;)
        if ((*m)->to == rank || ((*m)->from == rank && (!(*m)->copy || world_draw(2))))
            *m = (*m)->next;
        else
            m = &(*m)->next;
    end[rank] = NULL;
}

enum status wire_create(const struct launch *launch, double timeout_seconds, struct wire **out)
{
    (void)timeout_seconds;
    *out = end[launch->rank] = calloc(1, sizeof **out);
    end[launch->rank]->rank = launch->rank;
    return OK;
}

void wire_destroy(struct wire *w, double finalize_seconds)
{
    (void)w, (void)finalize_seconds; /* messages may still be on their way */
}

enum status wire_reserve(struct wire *w, enum channel channel, int slots)
{
    struct table *t = &w->table[channel];
    free(t->slot);
    free(t->event);
    t->slots = slots;
    t->slot = calloc((size_t)slots, sizeof *t->slot);
    t->event = calloc((size_t)slots, sizeof *t->event);
    return t->slot && t->event ? OK : status_fail(ERR_NOMEM, "out of memory");
}

static enum status look(const struct wire *w)
{
    world_point();
    return world_is_cut() ? status_fail(ERR_PEER, "the connections of rank %d are broken", w->rank) : OK;
}

static struct slot *take(struct wire *w, enum channel channel, int slot, enum use use)
{
    struct slot *s = &w->table[channel].slot[slot];
    if (slot >= w->table[channel].slots || s->use != FREE) {
        fprintf(stderr, "simulate: rank %d uses slot %d of channel %d twice\n", w->rank, slot, channel);
        abort();
    }
    s->use = use;
    s->number = posted++;
    return s;
}

/* Draws how long a message travels: mostly some microseconds, rarely a tenth of a second. */
static int64_t draw_delay(void)
{
    const int64_t kind = world_draw(100);
    return kind == 0 ? world_draw(100 * MS) : kind < 10 ? world_draw(2 * MS) : world_draw(50 * US);
}

enum status wire_send(struct wire *w, enum channel channel, int slot, int to, const void *data, int bytes)
{
    TRY(look(w));
    struct message *m = calloc(1, sizeof *m), **last = &flying;
    if (!m)
        return status_fail(ERR_NOMEM, "out of memory");
    int64_t *before = &last_at[channel][w->rank][to];
    *m = (struct message){.channel = channel, .from = w->rank, .to = to, .bytes = bytes, .slot = slot, .data = data};
    m->at = world_now() + draw_delay();
    m->at = m->at > *before || world_bug == BUG_OVERTAKES ? m->at : *before;
    *before = m->at;
    struct slot *s = take(w, channel, slot, SENDING);
    if (bytes <= SMALL && world_draw(2)) { /* the sender's memory is free at once */
        m->copy = malloc((size_t)bytes + 1);
        memcpy(m->copy, data, (size_t)bytes);
        m->data = m->copy;
        s->use = DONE;
        s->bytes = bytes;
    }
    while (*last)
        last = &(*last)->next;
    *last = m;
    return OK;
}

enum status wire_recv(struct wire *w, enum channel channel, int slot, int from, void *data, int bytes)
{
    TRY(look(w));
    struct slot *s = take(w, channel, slot, RECEIVING);
    s->peer = from;
    s->bytes = bytes;
    s->data = data;
    return OK;
}

int wire_in_use(const struct wire *w, enum channel channel, int slot)
{
    return w->table[channel].slot[slot].use != FREE;
}

/* Finds the first message for a receive. The first of each sender counts, whether or not it has arrived. */
static struct message **find(const struct wire *w, int channel, int from)
{
    unsigned seen = 0;
    for (struct message **m = &flying; *m; m = &(*m)->next) {
        if ((*m)->to != w->rank || (*m)->channel != channel || (from >= 0 && (*m)->from != from) || seen >> (*m)->from & 1)
            continue;
        seen |= world_bug == BUG_OVERTAKES ? 0 : 1u << (*m)->from;
        if ((*m)->at <= world_now())
            return m;
    }
    return NULL;
}

static void deliver(struct slot *s, struct message **at)
{
    struct message *m = *at;
    const int fits = m->bytes <= s->bytes;
    memcpy(s->data, m->data, (size_t)(fits ? m->bytes : s->bytes));
    s->bytes = fits ? m->bytes : WIRE_TOO_LONG;
    s->use = DONE;
    if (!m->copy && end[m->from])
        end[m->from]->table[m->channel].slot[m->slot].use = DONE;
    *at = m->next;
    free(m->copy);
    free(m);
}

/* Gives messages that have come to receives, which were posted in the order of their numbers. */
static void progress(struct wire *w, int channel)
{
    struct table *t = &w->table[channel];
    for (;;) {
        struct slot *first = NULL;
        struct message **found = NULL;
        for (int i = 0; i < t->slots; i++) {
            struct slot *s = &t->slot[i];
            if (s->use != RECEIVING || (first && first->number < s->number))
                continue;
            struct message **m = find(w, channel, s->peer);
            if (m) {
                first = s;
                found = m;
            }
        }
        if (!first)
            return;
        deliver(first, found);
    }
}

enum status wire_test(struct wire *w, enum channel channel, const struct wire_event **events, int *n)
{
    struct table *t = &w->table[channel];
    *n = 0;
    *events = t->event;
    TRY(look(w));
    progress(w, channel);
    for (int k = 0, first = t->slots ? (int)world_draw(t->slots) : 0; k < t->slots; k++) {
        const int i = (first + k) % t->slots;
        if (t->slot[i].use != DONE || world_draw(8) == 0) /* some are told at the next call */
            continue;
        t->event[(*n)++] = (struct wire_event){.slot = i, .bytes = t->slot[i].bytes};
        t->slot[i].use = FREE;
    }
    return OK;
}

unsigned wire_calls(void)
{
    return 0;
}

const char *wire_starting(void)
{
    return "";
}

int wire_found(char *text, size_t size)
{
    snprintf(text, size, "simulated");
    return 1;
}
