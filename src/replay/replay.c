/* ltrain replay: recorded steps of a run, done again and compared with its log. */
#include "replay/replay.h"

#include "base/num.h"
#include "base/sys.h"
#include "base/tell.h"
#include "replay/record.h"
#include "replay/work.h"
#include "train/evaluate.h"
#include "train/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Steps of a run that are done again. Rank 0 chooses them and tells all ranks. */
struct replay_part {
    int64_t first, last; /* first and last step to be compared */
    int32_t begins;      /* 1: from a checkpoint, 0: from the run's first state */
    char from[RUN_PATH]; /* path of the checkpoint */
};

/* Largest relative differences that another numerics key explains in the first step. Each further step adds as much, since training
 * continues from the differing parameters; docs/reliability.md says how the bounds were measured. */
struct bounds {
    double loss, norm;
};

struct replay {
    struct run run;
    struct comm *comm;
    char of[RUN_PATH], work[WORK_PATH];
    struct record record; /* rank 0 */
    struct replay_part part;
    int64_t alike, apart,
        outside; /* numbers of compared steps: with the recorded bits; different, but within the bounds; outside the bounds */
    int64_t other_key;                                        /* number of compared steps with another numerics key */
    int other_rates;                                          /* 1: the user was told that learning rates come from the log */
    char said[sizeof((struct checkpoint_info *)0)->numerics]; /* the recorded numerics key last reported as another one */
    char first[1024];                                         /* sentence about the first difference; "": none */
};

static int leads(const struct replay *x)
{
    return comm_rank(x->comm) == 0;
}

/* ---- which steps ---- */

/* Reads "A..B" or "A". */
static enum status read_steps(const char *text, struct replay_part *p)
{
    char rest;
    long long a, b;
    const int n = sscanf(text, "%lld..%lld%c", &a, &b, &rest);
    if (n == 2 || (sscanf(text, "%lld%c", &a, &rest) == 1 && (b = a, 1))) {
        if (a >= 1 && b >= a) {
            p->first = a;
            p->last = b;
            return OK;
        }
    }
    return status_fail(ERR_INVALID, "--steps %s: give the first and the last step to do again, from 1 on, as 101..120", text);
}

/* Takes the steps behind the newest checkpoint that has recorded steps behind it. */
static enum status choose_steps(struct replay *x, struct replay_part *p)
{
    struct checkpoint_info info;
    struct comm *alone;
    p->first = 1;
    p->last = x->record.steps[x->record.n - 1].step;
    TRY(checkpoint_before(x->of, p->last, p->from, sizeof p->from));
    if (!p->from[0])
        return OK;
    TRY(comm_create_self(&alone));
    enum status st = checkpoint_look(alone, p->from, &info);
    comm_destroy(alone);
    p->first = st == OK ? info.step + 1 : 1;
    return st;
}

/* Makes sure that lines of the log stand for every step of the part, and one for the last step alone. */
static enum status check_recorded(const struct replay *x, const struct replay_part *p)
{
    const struct record *r = &x->record;
    int64_t at = record_find(r, p->first), next = p->first;
    for (; at < r->n && r->steps[at].step <= p->last && r->steps[at].step - r->steps[at].steps < next; at++)
        next = r->steps[at].step + 1;
    if (next > p->last)
        return OK;
    const int64_t first = r->n > 0 ? r->steps[record_find(r, 1)].step : 0;
    if (at < r->n && r->steps[at].step > p->last && r->steps[at].step - r->steps[at].steps < next)
        return status_fail(ERR_INVALID,
                           "--steps %lld..%lld: %s/metrics.jsonl has no line of step %lld (--log-every): end with step %lld, "
                           "which has one",
                           (long long)p->first, (long long)p->last, x->of, (long long)p->last, (long long)r->steps[at].step);
    return status_fail(ERR_INVALID, "--steps %lld..%lld: %s/metrics.jsonl has steps %lld to %lld: name steps among these",
                       (long long)p->first, (long long)p->last, x->of, (long long)first, (long long)r->steps[r->n - 1].step);
}

/* Chooses steps and checkpoint (rank 0 only). */
static enum status choose(struct replay *x, const char *steps)
{
    struct replay_part *p = &x->part;
    TRY(record_read(x->of, &x->record));
    if (record_find(&x->record, 1) == x->record.n)
        return status_fail(ERR_INVALID, "%s/metrics.jsonl has no step yet: there is nothing to do again", x->of);
    TRY(steps ? read_steps(steps, p) : choose_steps(x, p));
    TRY(check_recorded(x, p));
    TRY(checkpoint_before(x->of, p->first, p->from, sizeof p->from));
    p->begins = p->from[0] != 0;
    return OK;
}

/* ---- the run ---- */

/* Makes the settings those of a run that begins in another directory, so that nothing is written into the run's own. */
static enum status move_settings(struct replay *x)
{
    struct settings *s = x->run.s;
    char *out = strdup(x->work);
    if (!out)
        return status_no_memory("before a replay");
    free(s->out);
    s->out = out;
    s->trace = AUTO;
    s->verify_every = 0;
    if (x->part.begins) {
        x->run.from = x->part.from;
        return OK;
    }
    free(s->resume);
    s->resume = NULL;
    return OK;
}

/* Tells whether the replay needs its own directory: for an nvme tier, or for the state when the sequence length changes. */
static int stores(const struct run *r)
{
    int any = r->plans.all.n > 1;
    for (int i = 0; i < r->plans.all.n; i++)
        any |= r->plans.all.plan[i]->arena[TIER_NVME] > 0 && r->s->nvme_path.n == 0;
    return any;
}

static enum status prepare(struct replay *x)
{
    struct run *r = &x->run;
    TRY(run_open(r));
    TRY(run_plan(r));
    if (stores(r))
        TRY(work_make(x->comm, x->work));
    TRY(run_start(r));
    TRY(run_load_state(r));
    if (!x->part.begins)
        TRY(comm_agree(x->comm, leads(x) ? run_compare_data(r, x->of) : OK));
    tell("replay: steps %lld to %lld of %s, from %s\n", (long long)x->part.first, (long long)x->part.last, x->of,
         x->part.begins ? x->part.from : "the run's first state");
    fflush(tell_stream());
    return OK;
}

/* ---- comparing ---- */

static struct bounds bounds_of(const struct run *r)
{
    const struct numerics_key *key = &r->session->plan->strategy.key;
    return key->dtype == BF16 || key->wire == BF16 ? (struct bounds){2e-4, 4e-3} : (struct bounds){1e-6, 1e-5};
}

/* Reports a recorded numerics key that differs from this run's, once for each key. Returns 1 if the keys are equal. */
static int compare_keys(struct replay *x, int64_t step)
{
    const struct record_key *key = record_key_of(&x->record, step);
    const char *was = key ? key->text : NULL, *now = x->run.progress.at.numerics;
    if (was && strcmp(was, now) == 0)
        return 1;
    if (strcmp(was ? was : "-", x->said) == 0)
        return 0;
    snprintf(x->said, sizeof x->said, "%s", was ? was : "-");
    const struct bounds b = bounds_of(&x->run);
    if (was)
        tell("replay: from step %lld on the numerics key differs (%s; recorded: %s):", (long long)step, now, was);
    else
        tell("replay: the log does not say the numerics key of step %lld (%s here):", (long long)step, now);
    tell(" losses may differ by %.0e, norms by %.0e, for each step since the beginning\n", b.loss, b.norm);
    return 0;
}

static double relative(double a, double b)
{
    return record_same(a, b) ? 0 : fabs(a - b) / fabs(b);
}

/* Returns 1 if two numbers are equal within a bound; otherwise notes the difference if it is the first, and returns 0. */
static int note(struct replay *x, const struct record_step *was, const char *what, double here, double there, double bound)
{
    const double apart = relative(here, there);
    const int within = apart <= bound; /* false for NaN: one of them is not finite */
    if (!within && !x->first[0])
        snprintf(x->first, sizeof x->first, "step %lld: the %s is %.17g here and %.17g in %.512s/metrics.jsonl:%lld",
                 (long long)was->step, what, here, there, x->of, (long long)was->line);
    return within;
}

static void print_step(const struct step_metrics *m, const struct record_step *was, int within)
{
    static const char *const names[] = {"loss", "norm", "eval loss"};
    const double here[] = {m->loss, m->grad_norm, m->eval.loss}, there[] = {was->loss, was->norm, was->eval_loss};
    tell("step %lld", (long long)m->step);
    for (int i = 0; i < 2 + m->evaluated; i++)
        if (record_same(here[i], there[i]))
            tell("  %s %.6g same bits", names[i], fabs(here[i]));
        else
            tell("  %s %.9g, recorded %.9g (%.1e apart)", names[i], fabs(here[i]), fabs(there[i]), relative(here[i], there[i]));
    tell("%s%s\n", was->skipped && m->skipped ? "  skipped" : "", within ? "" : "  DIFFERS");
    fflush(tell_stream());
}

/* Compares a step with its line of the log (rank 0 only). n: number of steps since the state that the replay began with. */
static void compare_step(struct replay *x, const struct step_metrics *m, int64_t n)
{
    const struct record_step *was = &x->record.steps[record_find(&x->record, m->step)];
    const struct bounds b = bounds_of(&x->run);
    const int same_key = compare_keys(x, m->step);
    const double times = same_key ? 0 : (double)n;
    int within = note(x, was, "loss", m->loss, was->loss, times * b.loss);
    within &= note(x, was, "gradient norm", m->grad_norm, was->norm, times * b.norm);
    if (m->evaluated)
        within &= note(x, was, "evaluation's loss", m->eval.loss, was->eval_loss, times * b.loss);
    if (!was->skipped != !m->skipped) {
        within = 0;
        if (!x->first[0])
            snprintf(x->first, sizeof x->first, "step %lld is %s here and was %s", (long long)m->step,
                     m->skipped ? "skipped" : "done", was->skipped ? "skipped" : "done");
    }
    const int same = record_same(m->loss, was->loss) && record_same(m->grad_norm, was->norm) &&
                     (!m->evaluated || record_same(m->eval.loss, was->eval_loss)) && !was->skipped == !m->skipped;
    x->other_key += !same_key;
    x->alike += same;
    x->apart += !same && within;
    x->outside += !within;
    print_step(m, was, within);
}

/* Takes the learning rate from the log if the settings give another one: the run had other settings at an earlier start. */
static void take_rate(struct replay *x, const struct step_metrics *m, double recorded)
{
    if (!isfinite(recorded) || record_same(m->lr, recorded))
        return;
    x->run.progress.lr_pending = recorded;
    if (!x->other_rates)
        tell("replay: step %lld: the learning rate is the log's, %.9g; the settings as they are now would make it %.9g\n",
             (long long)m->step, recorded, m->lr);
    x->other_rates = 1;
}

/* The parts of a step's line of the log that all ranks need. */
struct line {
    double lr;
    int32_t evaluates, known; /* known: 1: `updates` was recorded */
    struct record_updates updates;
};

/* Reads the line of a step on rank 0, and sends it to all ranks. */
static enum status share_line(struct replay *x, int64_t step, struct line *out)
{
    *out = (struct line){.lr = NAN};
    if (leads(x)) {
        const int64_t at = record_find(&x->record, step);
        const struct record_key *key = record_key_of(&x->record, step);
        const int there = at < x->record.n && x->record.steps[at].step == step;
        out->lr = there ? x->record.steps[at].lr : NAN;
        out->evaluates = there && x->record.steps[at].evaluated && x->run.inputs.corpus &&
                         (x->run.s->eval_data.n > 0 || x->run.s->eval_fraction > 0);
        out->known = key && key->updates.batch > 0;
        if (out->known)
            out->updates = key->updates;
    }
    return comm_broadcast(x->comm, 0, out, sizeof *out);
}

/* Takes the update settings of the start of the run that made the step. The pending update comes first, with the former settings. */
static enum status take_updates(struct replay *x, const struct line *line)
{
    struct settings *s = x->run.s;
    const struct record_updates *u = &line->updates;
    const struct record_updates now = {s->plan.batch, s->weight_decay, s->beta1, s->beta2, s->eps, s->clip, s->router_bias_rate};
    if (!line->known || memcmp(&now, u, sizeof now) == 0)
        return OK;
    if (u->batch != now.batch)
        return status_fail(ERR_INVALID,
                           "replay: step %lld had %lld sequences, and the run's settings now make it %lld: name steps behind its "
                           "last start by --steps",
                           (long long)x->run.progress.at.step + 1, (long long)u->batch, (long long)now.batch);
    TRY(run_flush(&x->run));
    s->weight_decay = u->weight_decay;
    s->beta1 = u->beta1;
    s->beta2 = u->beta2;
    s->eps = u->eps;
    s->clip = u->clip;
    s->router_bias_rate = u->router_bias_rate;
    return OK;
}

static enum status one_step(struct replay *x, int64_t n)
{
    struct run *r = &x->run;
    struct step_metrics m = {0};
    struct line line;
    int cut;
    TRY(share_line(x, r->progress.at.step + 1, &line));
    TRY(take_updates(x, &line));
    TRY(run_follow_lengths(r));
    TRY(run_step(r, &m, &cut)); /* never cut: a replay handles no signals */
    take_rate(x, &m, line.lr);
    const int64_t at = leads(x) ? record_find(&x->record, m.step) : 0;
    const int compared = m.step >= x->part.first;
    if (line.evaluates && compared) {
        TRY(run_evaluate(r, &m.eval, &cut));
        m.evaluated = 1;
    }
    if (leads(x) && compared && x->record.steps[at].step == m.step)
        compare_step(x, &m, n);
    return OK;
}

/* Prints the result and sends the first difference to all ranks. */
static enum status conclude(struct replay *x)
{
    const int64_t n = x->alike + x->apart + x->outside; /* rank 0 compares */
    TRY(comm_broadcast(x->comm, 0, x->first, sizeof x->first));
    if (x->first[0])
        return comm_agree(x->comm, status_fail(ERR_CORRUPT, "replay: %s; %lld of %lld steps differ", x->first,
                                               (long long)x->outside, (long long)n));
    if (x->apart == 0)
        tell("replay: equal: %lld steps, all with the recorded bits\n", (long long)n);
    else
        tell("replay: equal within the bounds of another numerics key: %lld steps, %lld of them with the recorded bits\n",
             (long long)n, (long long)x->alike);
    return OK;
}

static enum status all_steps(struct replay *x)
{
    struct run *r = &x->run;
    for (int64_t n = 1; r->progress.at.step < x->part.last; n++)
        TRY(one_step(x, n));
    TRY(run_flush(r));
    TRY(comm_agree(x->comm, session_check_memory(r->session)));
    return conclude(x);
}

enum status replay_run(struct settings *s, struct comm *comm)
{
    struct replay *x = sys_calloc(1, sizeof *x);
    enum status st = comm_agree(comm, x ? OK : status_no_memory("before a replay"));
    if (st != OK) {
        free(x);
        return st;
    }
    x->comm = comm;
    x->run = (struct run){.s = s, .comm = comm, .place.saved = -1};
    snprintf(x->of, sizeof x->of, "%s", s->resume);
    TRY_GOTO(comm_agree(comm, leads(x) ? choose(x, s->replay_steps) : OK), out);
    TRY_GOTO(comm_broadcast(comm, 0, &x->part, sizeof x->part), out);
    TRY_GOTO(work_choose(comm, x->work), out);
    TRY_GOTO(comm_agree(comm, move_settings(x)), out);
    TRY_GOTO(prepare(x), out);
    st = all_steps(x);
out:
    (void)run_close(&x->run, OK);
    if (!comm_broken(comm) && (st == OK || comm_agreed(comm)))
        comm_barrier(comm); /* no store is open any more */
    work_remove(x->work);
    record_free(&x->record);
    free(x);
    return st;
}
