#include "check/choices.h"

#include "base/sys.h"
#include "engine/expert_load.h"

#include <math.h>
#include <stdlib.h>

enum status choices_begin(struct choices *c, struct run *given, struct run *alone)
{
    const int n = expert_counts(given->session);
    if (n == 0)
        return OK;
    c->experts = (int)given->model->config.experts;
    c->given = sys_calloc((size_t)n, sizeof *c->given);
    c->alone = sys_calloc((size_t)n, sizeof *c->alone);
    if (!c->given || !c->alone)
        return status_fail(ERR_NOMEM, "check: out of memory for the counts of experts' tokens");
    c->layers = n / c->experts;
    given->choices = c->given;
    if (alone)
        alone->choices = c->alone;
    return OK;
}

void choices_compare(struct choices *c)
{
    c->others = c->most = 0;
    c->most_layer = 0;
    for (int l = 0; l < c->layers; l++) {
        double apart = 0;
        c->pairs = 0;
        for (int e = 0; e < c->experts; e++) {
            const double alone = c->alone[(long)l * c->experts + e];
            apart += fabs(c->given[(long)l * c->experts + e] - alone) / 2;
            c->pairs += alone;
        }
        c->others += apart;
        if (apart > c->most) {
            c->most = apart;
            c->most_layer = l;
        }
    }
}

/* Takes a gradient for a sum over pairs with about independent terms, so that its norm grows with the root of their number. A pair that
 * differs is a term lost and a term won. Half of the root is returned; up to a third was measured, as such pairs weigh least. */
double choices_explain(const struct choices *c)
{
    return c->others > 0 ? sqrt(2 * c->others / c->pairs) / 2 : 0;
}

void choices_end(struct choices *c)
{
    free(c->given);
    free(c->alone);
}
