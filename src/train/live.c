#include "train/live.h"

#include "base/tell.h"

#include <math.h>
#include <stdlib.h>

int live_is_read(void)
{
    return getenv(LIVE_VARIABLE) != NULL && tell_stream() == stdout;
}

/* Prints {"name": object} as a data line and frees the object. Without memory the line is left out. */
static void print_line(const char *name, json_t *object)
{
    json_t *line = object ? json_pack("{s:o}", name, object) : NULL;
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    if (text)
        tell("%c%s\n", LIVE_MARK, text);
    fflush(tell_stream());
    free(text);
    json_decref(line);
}

/* Makes {"device": {"bytes": planned, "limit": budget}, ...}; a tier without a budget has no limit. */
static json_t *tiers_object(const struct run *r)
{
    const struct plan *p = r->session->plan;
    json_t *all = json_object();
    for (int t = 0; t < TIERS; t++) {
        json_t *tier = json_pack("{s:I}", "bytes", (json_int_t)p->arena[t]);
        if (tier && r->plans.limit[t] > 0 && r->plans.limit[t] < INT64_MAX)
            json_object_set_new(tier, "limit", json_integer(r->plans.limit[t]));
        json_object_set_new(all, tier_name((enum tier)t), tier);
    }
    return all;
}

void live_print_run(const struct run *r)
{
    const struct settings *s = r->s;
    if (!live_is_read())
        return;
    print_line("run",
               json_pack("{s:s, s:s, s:I, s:i, s:I, s:I, s:f, s:o}", "model", s->model, "directory", s->out, "seq_len",
                         (json_int_t)run_length(r), "ranks", comm_size(r->comm), "step", (json_int_t)r->progress.at.step, "steps",
                         (json_int_t)s->plan.steps, "planned_seconds", r->session->plan->seconds, "tiers", tiers_object(r)));
}

void live_print_step(const struct step_metrics *m)
{
    json_t *o = metrics_object(m), *busy = json_object();
    for (int l = 0; l < LANES; l++)
        if (m->busy[l] > 0)
            json_object_set_new(busy, lane_name((enum lane)l), json_real(m->busy[l]));
    json_object_set_new(o, "steps", json_integer(m->steps));
    json_object_set_new(o, "eta_seconds", isfinite(m->eta_seconds) ? json_real(m->eta_seconds) : json_null());
    json_object_set_new(o, "busy", busy);
    print_line("step", o);
}
