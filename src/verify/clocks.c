/* Vector clocks of a program's instructions. */
#include "verify/clocks.h"

#include "base/sys.h"

#include <stdlib.h>
#include <string.h>

static void join(struct clock *a, const struct clock *b)
{
    for (int l = 0; l < LANES; l++) {
        if (b->ticket[l] > a->ticket[l])
            a->ticket[l] = b->ticket[l];
    }
}

void clocks_advance(struct clocks *c, int index)
{
    const struct instr *in = &c->p->instrs[index];
    struct clock *retired = &c->last[in->lane], predecessor = *retired; /* zero if there is no predecessor */
    c->now = lane_is_pipelined(in->lane) ? c->start[in->lane] : predecessor;
    for (const struct wait *w = program_waits(c->p, in), *end = w + in->n_waits; w < end; w++)
        join(&c->now, &c->retired[c->awaited[c->by_ticket[w->lane][w->ticket - 1]]]);
    c->start[in->lane] = c->now;
    *retired = c->now;
    join(retired, &predecessor);
    retired->ticket[in->lane] = in->ticket;
    if (c->awaited[index] >= 0)
        c->retired[c->awaited[index]] = *retired;
}

static void number_lanes(struct clocks *c)
{
    const struct program *p = c->p;
    int first[LANES + 1] = {0};
    for (int i = 0; i < p->n_instrs; i++)
        first[p->instrs[i].lane + 1]++;
    for (int l = 0; l < LANES; l++) {
        c->by_ticket[l] = c->by_ticket_table + first[l];
        first[l + 1] += first[l];
    }
    for (int i = 0; i < p->n_instrs; i++)
        c->by_ticket[p->instrs[i].lane][p->instrs[i].ticket - 1] = i;
}

/* Numbers the instructions for which others wait, and returns how many there are. */
static int32_t number_awaited(struct clocks *c)
{
    const struct program *p = c->p;
    int32_t n = 0;
    for (int i = 0; i < p->n_instrs; i++)
        c->awaited[i] = -1;
    for (int i = 0; i < p->n_instrs; i++) {
        const struct wait *w = program_waits(p, &p->instrs[i]);
        for (int k = 0; k < p->instrs[i].n_waits; k++) {
            int32_t *on = &c->awaited[c->by_ticket[w[k].lane][w[k].ticket - 1]];
            *on = *on < 0 ? n++ : *on;
        }
    }
    return n;
}

enum status clocks_create(const struct program *p, struct clocks *out)
{
    memset(out, 0, sizeof *out);
    out->p = p;
    out->awaited = sys_malloc(sizeof *out->awaited * (size_t)(p->n_instrs + 1));
    out->by_ticket_table = sys_malloc(sizeof *out->by_ticket_table * (size_t)(p->n_instrs + 1));
    if (out->awaited && out->by_ticket_table) {
        number_lanes(out);
        out->retired = sys_malloc(sizeof *out->retired * (size_t)(number_awaited(out) + 1));
    }
    if (out->retired)
        return OK;
    clocks_destroy(out);
    return status_fail(ERR_NOMEM, "out of memory while verifying");
}

void clocks_destroy(struct clocks *c)
{
    free(c->retired);
    free(c->awaited);
    free(c->by_ticket_table);
}
