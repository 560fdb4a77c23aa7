#include "train/observe.h"

#include "base/sys.h"
#include "base/tell.h"
#include "base/units.h"
#include "machine/hardware.h"
#include "plan/report/figures.h"
#include "profile/profile.h"
#include "train/run.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void observe_program(struct run *r)
{
    const struct executed done = executor_last(r->session->executor);
    if (r->s->mode != MODE_RUN || !done.p || comm_is_cut(r->comm))
        return;
    for (int i = 0; i < done.p->n_instrs; i++) {
        const struct instr *in = &done.p->instrs[i];
        const double seconds = (double)(done.events[i].end_ns - done.events[i].start_ns) * 1e-9;
        if ((in->lane == LANE_COMPUTE || in->lane == LANE_HOST) && seconds > 0 && in->end > in->start)
            observed_add(&r->measured.step, &r->session->plan->cost, done.p, in, seconds);
    }
}

/* Adds the measured and the planned busy seconds of the lanes that move data; requests of one lane overlap, so single instructions
 * are not measured. */
static enum status add_lanes(const struct run *r, struct observed *o)
{
    struct report planned;
    const double steps = (double)r->measured.alike.steps;
    TRY(report_make(r->session->plan, r->model, &planned));
    for (int l = LANE_COMPUTE + 1; l < LANES; l++)
        if (l != LANE_HOST && r->measured.alike.lanes[l].busy_ns > 0)
            o->lane[l] = (struct observed_sum){steps * planned.lane[l].busy, (double)r->measured.alike.lanes[l].busy_ns * 1e-9,
                                               r->measured.alike.steps};
    return OK;
}

/* Writes into the machine's description which run and step its rates were corrected by; a long path of the run is cut. */
static void describe(const struct run *r, struct hardware *h)
{
    const double seconds = r->measured.alike.seconds / (double)r->measured.alike.steps;
    const char *out = r->s->out;
    const int most = 48, n = (int)strlen(out);
    snprintf(h->source, sizeof h->source, "observed in %s%s (%lld tokens: planned %.3g s a step, took %.3g s)",
             n > most ? "..." : "", n > most ? out + n - most : out, (long long)run_length(r), r->session->plan->seconds,
             seconds);
}

static enum status write_file(const struct run *r, const struct hardware *h)
{
    char path[4200], partial[4300];
    snprintf(path, sizeof path, "%.4096s/" OBSERVED_FILE, r->s->out);
    snprintf(partial, sizeof partial, "%s.partial", path);
    FILE *f = sys_write_text(partial);
    if (!f)
        return status_fail(ERR_IO, "cannot write %s: %s", partial, sys_strerror(errno));
    enum status st = hardware_write(h, f);
    if (fclose(f) != 0 && st == OK)
        st = status_fail(ERR_IO, "cannot write %s: %s", partial, strerror(errno));
    if (st == OK && sys_rename(partial, path) != 0)
        st = status_fail(ERR_IO, "cannot rename %s to %s: %s", partial, path, strerror(errno));
    if (st != OK)
        sys_unlink(partial);
    return st;
}

void observe_write(struct run *r)
{
    struct observed *o = &r->measured.alike.seen;
    if (r->s->mode != MODE_RUN || r->measured.alike.steps == 0 || comm_rank(r->comm) != 0)
        return;
    struct hardware *h = sys_malloc(sizeof *h);
    enum status st = h ? add_lanes(r, o) : status_fail(ERR_NOMEM, "out of memory");
    if (st == OK) {
        if (r->s->plan.hardware)
            *h = *r->s->plan.hardware;
        else
            hardware_assumed(h);
        observed_correct(o, h);
        describe(r, h);
        st = write_file(r, h);
    }
    if (st == OK)
        st = profile_keep_observed(r->s, h);
    if (st != OK)
        tell("what the steps took is not left for later plans: %s\n", status_message());
    free(h);
}
