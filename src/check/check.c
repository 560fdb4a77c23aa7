/* ltrain check: the same steps with the given mesh and offload and on one resident rank, in lockstep. */
#include "check/check.h"

#include "base/directory.h"
#include "base/sys.h"
#include "base/units.h"
#include "check/alone.h"
#include "check/choices.h"
#include "check/compare.h"
#include "plan/lower/fixed.h"
#include "plan/report/describe.h"
#include "settings/curriculum.h"
#include "train/gpu.h"
#include "train/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tolerance {
    int exact;
    double loss, norm, gradient, parameter; /* relative, in the first step */
    double decays;                          /* added to `gradient` for decays of recurrences */
    double growth;                          /* tolerance added in every further step, relative to the first one's */
    double choices;                         /* share of a layer's tokens that may choose another expert */
    const char *why;
};

struct check {
    struct run given, alone; /* alone: rank 0 */
    struct comm *comm, *self;
    struct settings alone_settings;
    struct tolerance tolerance;
    struct difference *d; /* rank 0: differences, by parameter */
    double *noise;        /* rank 0: largest relative difference of gradients so far, by parameter */
    float **slack;        /* rank 0, by unit: distance that rounding may have moved each element; NULL: nothing is trained */
    /* rank 0: largest relative difference so far of parameters at a step's begin, weighted by their effect on gradients */
    double apart;
    /* rank 0: mean square of the distance by which moments that rounded differently have moved an element, relative to `reach`;
     * by parameter */
    double *turns;
    struct choices choices; /* tokens of experts; rank 0 compares */
    double reach;           /* sum of the learning rates of all updates: about the distance that each element has moved */
    double first_order;     /* rank 0: first-order change of the loss: sum of all parameters' differences times gradients */
    int64_t steps;          /* number of steps compared so far */
    char first[1024];       /* rank 0: message of the first difference; "": none */
    size_t directory_kept;  /* length of the part of the path `out` that existed before */
};

static int leads(const struct check *c)
{
    return comm_rank(c->comm) == 0;
}

/* ---- tolerances ---- */

#define NOISE_FLOOR 1e-7 /* relative: an fp32 gradient's own rounding */

/* Share by which gradients of a recurrence's decays and steps (A_log, dt_bias) may differ beyond others: they are sums over all tokens
 * of terms that cancel. Up to 1.4e-5 in tiny hybrids of seven families, 128 tokens on a ring of two ranks. */
#define DECAYS 4e-5

/* Chooses the tolerances; docs/checking.md derives them. In the first step, gradients differ by 3e-7 to 1e-6 in fp32 and by 2e-3
 * in bf16. (Measured with tiny, gpt2-tiny and 25m, 512 to 4k tokens, 2 and 4 ranks.) Five to ten times that is allowed. The loss,
 * a mean, differs by 5e-8 and 7e-5.
 *
 * Every update adds to the difference of parameters, and so of all that follows: in fp32 up to 3e-6 in six steps, in bf16 with a
 * learning rate of 1e-2 up to 3e-2 in one. Moments in few bits have a model of their own (add_turns). They reach gradients only
 * through the parameters, which is measured. */
static struct tolerance choose_tolerance(const struct settings *s, int ranks)
{
    static const char *const whys[2][2] = {
        {"kernels add the same fp32 terms in another order", "several ranks add the same fp32 terms in another order"},
        {"kernels add the same fp32 terms in another order, and moments in few bits turn to neighbours",
         "several ranks add the same fp32 terms in another order, and moments in few bits turn to neighbours"},
    };
    if (ranks == 1 && !s->plan.target->fast)
        return (struct tolerance){.exact = 1, .why = "one rank and the same tiles: placement changes no bit"};
    if (s->plan.dtype == BF16 || s->plan.grad_dtype == BF16)
        return (struct tolerance){.loss = 5e-4,
                                  .norm = 4e-3,
                                  .gradient = 1e-2,
                                  .growth = 5,
                                  .choices = 2e-2,
                                  .parameter = s->plan.dtype == BF16 ? 0x1p-8 : 1e-6,
                                  .why = "bf16 keeps 8 bits: sums in another order round to neighbours 2^-8 apart"};
    return (struct tolerance){.loss = 1e-6,
                              .norm = 1e-5,
                              .gradient = 1e-5,
                              .decays = DECAYS,
                              .growth = 1,
                              .choices = 1e-3,
                              .parameter = 1e-6,
                              .why = whys[s->plan.optim_dtype != F32][ranks > 1]};
}

/* Returns the share of the model's average gradient (root mean square) below which a tensor's difference is measured by that
 * share. In the first step both runs have equal parameters; a gradient that is mere rounding (GPT-2's key bias) must not measure
 * itself. Later the parameters differ by what AdamW makes of rounding, which moves small gradients by more than their share. */
static double floor_share(int64_t updates)
{
    return updates == 0 ? 1e-3 : 0.1;
}

static double gradient_floor(const struct check *c, double norm)
{
    double trained = 0;
    for (int u = 0; u < c->given.model->n_units; u++)
        trained += (double)c->given.model->units[u].trained_elements;
    return floor_share(c->steps) * norm / sqrt(trained);
}

/* Factors by which loss and gradients follow parameters that differ. The loss follows the first-order term within a tenth; twice
 * that leaves room for the second order and for gradients in bf16. A gradient's relative difference was up to 1.5 times the
 * largest of the parameters in fp32. In bf16 it was 3.8 times (adapters with r=64 at 1e-2, six steps). */
#define LOSS_FOLLOWS 2
#define GRADIENTS_FOLLOW 4

/* ---- the verdict ---- */

static void row(const struct check *c, int64_t step, const char *what, const char *which, double difference, double allowed)
{
    char a[32], b[32];
    snprintf(a, sizeof a, difference == 0 && c->tolerance.exact ? "same bits" : "%.2g", difference);
    snprintf(b, sizeof b, c->tolerance.exact ? "same bits" : "%.2g", allowed);
    printf("%5lld  %-14s %-44s %12s %12s\n", (long long)step, what, which, a, b);
}

/* Compares the loss or the gradient norm: one number that all ranks know. */
static void compare_number(struct check *c, int64_t step, const char *what, double given, double alone, double allowed)
{
    char values[96];
    double apart = fabs(given - alone) / fabs(alone);
    int same = c->tolerance.exact ? memcmp(&given, &alone, sizeof given) == 0 : apart <= allowed;
    snprintf(values, sizeof values, "%.9g, alone %.9g", given, alone);
    row(c, step, what, values, given == alone ? 0 : apart, allowed);
    if ((!same || !isfinite(given)) && !c->first[0])
        snprintf(
            c->first, sizeof c->first,
            "check: step %lld: the %s is %.9g with this mesh and offload and %.9g alone, relative difference %.2g, tolerance "
            "%.2g",
            (long long)step, what, given, alone, apart, allowed);
}

static void name_tensor(struct check *c, int64_t step, const char *what, const struct model_param *p, const struct difference *d,
                        double relative, double allowed)
{
    int n = snprintf(c->first, sizeof c->first, "check: step %lld: the %s of %s ", (long long)step, what, p->name);
    char *at = c->first + n;
    size_t room = sizeof c->first - (size_t)n;
    if (d->n != p->elements)
        snprintf(at, room, "has %lld elements on all ranks together, and %lld alone", (long long)d->n, (long long)p->elements);
    else if (d->rank)
        snprintf(at, room, "on rank %d is not that on rank %d, and both hold %s", d->rank, d->like,
                 mesh_degree(&c->given.s->plan.mesh, MESH_EP) > 1 && p->experts > 0 ? "these experts" : "all of it");
    else if (!isfinite(relative))
        snprintf(at, room, "is not finite: L2 norm %.9g with this mesh and offload, %.9g alone", fabs(sqrt(d->given2)),
                 fabs(sqrt(d->alone2)));
    else
        snprintf(
            at, room,
            "differs: L2 norm %.9g with this mesh and offload, %.9g alone, of the difference relative to that %.2g, tolerance "
            "%.2g; most at element %lld: %.9g, alone %.9g",
            sqrt(d->given2), sqrt(d->alone2), relative, allowed, (long long)d->at, d->given, d->alone);
}

/* Tells whether a parameter sets the decays or steps of a recurrence. */
static int is_of_decays(const struct model *m, int param)
{
    for (int64_t l = 0; l < m->config.layers; l++) {
        const struct model_block *b = model_find_block(&m->layers[l], BLOCK_RECURRENT);
        if (b && (b->recurrent.a_log == param || b->recurrent.dt_bias == param))
            return 1;
    }
    return 0;
}

/* Judges the compared parameters: prints the worst one and names the first that differs, in the order of the backward pass.
 * decays: allowed beyond relative_allowed for decays of recurrences. */
static void judge(struct check *c, int64_t step, const char *what, double relative_allowed, double decays, double rms_floor)
{
    const struct model *m = c->given.model;
    const struct model_param *worst = NULL;
    double most = -1, worst_relative = 0, worst_allowed = 0;
    for (int i = m->n_params - 1; i >= 0; i--) {
        const struct model_param *p = &m->params[i];
        const struct difference *d = &c->d[i];
        if (!p->trained)
            continue;
        double relative = difference_relative(d, rms_floor * sqrt((double)p->elements));
        const double more = decays > 0 && is_of_decays(m, i) ? decays : 0;
        double allowed = difference_allowed(d, relative_allowed + more), share = allowed > 0 ? relative / allowed : relative;
        int same =
            d->n == p->elements && !d->rank && isfinite(relative) && (c->tolerance.exact ? d->unequal == 0 : relative <= allowed);
        if (!same && !c->first[0])
            name_tensor(c, step, what, p, d, relative, allowed);
        if (!(share <= most) && !isnan(most)) {
            most = share;
            worst = p;
            worst_relative = relative;
            worst_allowed = allowed;
        }
    }
    char whats[32];
    snprintf(whats, sizeof whats, "%ss", what);
    row(c, step, whats, worst ? worst->name : "-", worst_relative, worst_allowed);
}

/* Sends rank 0's verdict to all ranks. */
static enum status agree_verdict(struct check *c)
{
    TRY(comm_broadcast(c->comm, 0, c->first, sizeof c->first));
    if (!c->first[0])
        return OK;
    printf("check: fail\n");
    return comm_agree(c->comm, status_fail(ERR_CORRUPT, "%s", c->first));
}

/* ---- steps ---- */

/* Returns the mean relative distance between two neighbouring values of a moment's type (blocks8.h: up to a seventh of the
 * largest). */
static double step_of(enum dtype moments)
{
    return moments == I8 ? 0.05 : 0x1p-8;
}

/* Adds the effect of one update's moments that turned: the two runs rounded them in different directions. Moments in few bits are
 * rounded by chance, with equal random numbers in both runs. If the unrounded moments differ by a share of the step between
 * neighbouring values, that share of the elements turns, and updates go on with moments a step apart.
 *
 * The mean square of an update's effect is therefore the noise (times 10, as in reach_add) times the step, with two moments an
 * element. A mean says little about a tensor with few elements: there a few elements may differ by half of the distance that they
 * have moved. */
static void add_turns(struct check *c, double lr)
{
    const enum dtype moments = c->given.s->plan.optim_dtype;
    c->reach += lr;
    for (int i = 0; i < c->given.model->n_params && moments != F32; i++)
        c->turns[i] += 2 * 10 * c->noise[i] * step_of(moments);
}

static enum status compare_units(struct check *c, enum state_kind kind)
{
    const struct model *m = c->given.model;
    const int moved = leads(c) && kind != STATE_GRAD, turn = moved && c->given.s->plan.optim_dtype != F32;
    for (int u = 0; u < m->n_units; u++)
        TRY(check_unit(c->given.session, c->alone.session, u, kind,
                       (struct excuse){moved ? c->slack[u] : NULL, turn ? c->reach / 2 : 0}, c->d));
    for (int i = 0; i < m->n_params && turn; i++)
        c->d[i].turned2 = (double)m->params[i].elements * c->turns[i] * c->reach * c->reach;
    return OK;
}

/* Lengthens the timeout while rank 0 works alone, which takes as long as all ranks together; a rank that dies is still noticed. */
static void be_patient(struct check *c, int patient)
{
    double seconds = c->given.s->comm_timeout;
    comm_set_timeout(c->comm, patient ? seconds * (1 + comm_size(c->comm)) : seconds);
}

/* Judges how many tokens choose other experts, and returns by how much gradients may differ for that. */
static double judge_choices(struct check *c, int64_t step)
{
    struct choices *x = &c->choices;
    char which[64];
    if (x->layers == 0)
        return 0;
    choices_compare(x);
    const double share = x->most / x->pairs, grown = (1 + (double)c->steps) * c->tolerance.choices;
    const double allowed =
        c->tolerance.exact ? 0 : fmax(grown, 1 / x->pairs); /* one pair of a short sequence may be on the edge */
    snprintf(which, sizeof which, "of experts, layer %d of %d with experts", x->most_layer + 1, x->layers);
    row(c, step, "choices", which, share, allowed);
    if (share > allowed && !c->first[0])
        snprintf(
            c->first, sizeof c->first,
            "check: step %lld: in layer %d of the %d with experts, %.0f of %.0f choices of an expert differ, a share of %.2g, "
            "tolerance %.2g",
            (long long)step, x->most_layer + 1, x->layers, x->most, x->pairs, share, allowed);
    return c->tolerance.exact ? 0 : choices_explain(x);
}

static void judge_step(struct check *c, const struct step_metrics *given, const struct step_metrics *alone)
{
    const struct model *m = c->given.model;
    const double times = 1 + c->tolerance.growth * (double)c->steps;
    for (int i = 0; i < m->n_params; i++)
        c->noise[i] = fmax(c->noise[i], fmax(NOISE_FLOOR, difference_relative(&c->d[i], 0)));
    const double chosen = judge_choices(c, given->step), follows = GRADIENTS_FOLLOW * c->apart;
    judge(c, given->step, "gradient", times * c->tolerance.gradient + follows + chosen, times * c->tolerance.decays,
          gradient_floor(c, alone->grad_norm));
    compare_number(c, given->step, "norm", given->grad_norm, alone->grad_norm,
                   times * c->tolerance.norm + follows + chosen * chosen);
    compare_number(c, given->step, "loss", given->loss, alone->loss,
                   times * c->tolerance.loss + LOSS_FOLLOWS * fabs(c->first_order / alone->loss));
    fflush(stdout);
}

/* Runs rank 0's pending update at once, and adds to the slack the distance by which the gradients' difference may move each
 * element in that update (by the second moment v). */
static enum status add_slack(struct check *c, double lr)
{
    const struct settings *s = c->given.s;
    const struct reach reach = {.lr = lr, .eps = s->eps, .bias2 = 1 - pow(s->beta2, (double)c->alone.progress.at.updates)};
    TRY(run_flush(&c->alone));
    add_turns(c, lr);
    for (int u = 0; u < c->given.model->n_units; u++)
        if (c->slack[u])
            TRY(check_reach(c->alone.session, u, &reach, c->noise, c->slack[u]));
    return OK;
}

/* Judges the fp32 masters behind bf16 parameters after that step. */
static enum status judge_masters(struct check *c, int64_t step)
{
    if (c->given.s->plan.dtype != BF16)
        return OK;
    TRY(compare_units(c, STATE_MASTER));
    if (leads(c))
        judge(c, step, "fp32 parameter", 1e-6, 0, 0);
    return OK;
}

static enum status judge_parameters(struct check *c, int64_t step)
{
    TRY(compare_units(c, STATE_PARAM));
    if (leads(c))
        judge(c, step, "parameter", c->tolerance.parameter, 0, 0);
    return OK;
}

/* Judges the parameters that a step begins with: those after the step before. Gradients follow them. An adapter's A has B as a
 * factor and takes over B's relative difference, weighted by each element's gradient. GPT-2's key bias, which is noise, then
 * counts for nothing.
 *
 * The loss follows by the differences times the gradient. Only differences within the parameters' tolerance count: a wrong
 * parameter explains no wrong gradient. */
static enum status judge_beginning(struct check *c, int64_t step, double norm)
{
    TRY(judge_parameters(c, step - 1));
    const double floor = gradient_floor(c, norm);
    c->first_order = 0;
    for (int i = 0; leads(c) && i < c->given.model->n_params; i++) {
        const struct difference *d = &c->d[i];
        if (!c->given.model->params[i].trained || d->alone2 == 0)
            continue;
        const double relative = difference_relative(d, 0), allowed = difference_allowed(d, c->tolerance.parameter);
        const double counts = relative > allowed ? allowed / relative : 1;
        const double weight = sqrt(fmax(d->weight2, floor * floor * d->alone2));
        c->first_order += counts * d->first_order;
        c->apart = fmax(c->apart, weight > 0 ? counts * sqrt(d->felt2) / weight : 0);
    }
    return judge_masters(c, step - 1);
}

static enum status one_step(struct check *c)
{
    struct step_metrics given = {0}, alone = {0};
    int cut; /* never set: this run waits for no signal */
    TRY(run_step(&c->given, &given, &cut));
    be_patient(c, 1);
    TRY(comm_agree(c->comm, leads(c) ? run_step(&c->alone, &alone, &cut) : OK));
    be_patient(c, 0);
    if (given.target_tokens == 0) {
        printf("%5lld  skipped: %s\n", (long long)given.step, given.skipped);
        return OK;
    }
    if (c->steps > 0 && !c->tolerance.exact)
        TRY(judge_beginning(c, given.step, alone.grad_norm));
    TRY(compare_units(c, STATE_GRAD));
    if (leads(c))
        judge_step(c, &given, &alone);
    c->steps++;
    TRY(agree_verdict(c));
    return comm_agree(c->comm, leads(c) && !c->tolerance.exact ? add_slack(c, given.lr) : OK);
}

/* Reads the free bytes of the GPU, which must be equal before and after the steps. 0: no GPU of one's own. */
static enum status look_at_gpu(const struct session *x, int64_t *bytes)
{
    *bytes = 0;
    return x->free_prepared ? backend_status(x->backend, x->backend->free_bytes(x->backend, bytes)) : OK;
}

static enum status all_steps(struct check *c, int64_t steps)
{
    int64_t free_before;
    TRY(comm_agree(c->comm, look_at_gpu(c->given.session, &free_before)));
    printf("\n%5s  %-14s %-44s %12s %12s\n", "step", "", "worst", "difference", "tolerance");
    for (int64_t i = 0; i < steps; i++)
        TRY(one_step(c));
    if (c->steps == 0)
        return comm_agree(c->comm, status_fail(ERR_INVALID, "check: no step had anything to predict: give other data"));
    TRY(run_flush(&c->given));
    TRY(comm_agree(c->comm, leads(c) ? run_flush(&c->alone) : OK));
    TRY(judge_parameters(c, c->given.progress.at.step));
    TRY(judge_masters(c, c->given.progress.at.step));
    TRY(agree_verdict(c));
    TRY(comm_agree(c->comm, session_check_memory(c->given.session)));
    TRY(comm_agree(c->comm, session_check_device_memory(c->given.session, free_before)));
    return comm_agree(c->comm, leads(c) ? session_check_memory(c->alone.session) : OK);
}

/* ---- before and after ---- */

/* Plans rank 0's reference run in the memory that the ranks leave free on its host. */
static enum status plan_alone(struct check *c, const struct plan *given)
{
    struct plan *alone = NULL;
    int64_t planned = given->arena[TIER_DEVICE] + given->arena[TIER_HOST];
    int64_t left = memory_left_beside(&c->given.plans.memory, comm_local_size(c->comm), planned) / 10 * 9, room;
    char need[32], have[32], text[PLAN_TEXT];
    for (int u = 0; u < c->given.model->n_units && !c->tolerance.exact; u++)
        left -= c->given.model->units[u].trained_elements * (int64_t)sizeof **c->slack;
    check_alone_settings(c->given.s, comm_size(c->comm) == 1 ? TILES_SAME : TILES_OWN, &c->alone_settings);
    if (c->alone_settings.plan.device == DEVICE_CUDA) {
        TRY(gpu_room(c->given.s, c->comm, &room));
        left = min_i64(left, room - given->arena[TIER_DEVICE]);
    }
    TRY(check_alone_plan(c->given.model, &c->alone_settings, max_i64(0, left), &alone));
    c->alone.plans.all =
        (struct train_plans){.plan = {alone}, .n = 1, .owned = 1, .stretches = {{plan_length(alone), 0, INT64_MAX, alone}}};
    plan_fix_grid(&c->alone_settings.plan, &alone->strategy);
    c->alone_settings.plan.group = alone->strategy.key.group;
    plan_describe(alone, text, sizeof text);
    printf("alone: 1 rank on rank 0: %s of memory, %s are left\n       %s\n",
           units_format_bytes(alone->arena[TIER_DEVICE] + alone->arena[TIER_HOST], need), units_format_bytes(left, have), text);
    return OK;
}

static void describe(struct check *c, const struct plan *plan, int64_t steps)
{
    char text[PLAN_TEXT], a[32], b[32], d[32];
    const struct settings *s = c->given.s;
    comm_describe(c->comm, text, sizeof text);
    printf("check: %s, sequences of %lld tokens, batch %lld, %lld steps\n", c->given.model->config.name,
           (long long)s->plan.seq_len, (long long)s->plan.batch, (long long)steps);
    printf("given: %s; zero %d\n       device %s, host %s, nvme %s\n", text, s->plan.zero,
           units_format_bytes(plan->arena[TIER_DEVICE], a), units_format_bytes(plan->arena[TIER_HOST], b),
           units_format_bytes(plan->arena[TIER_NVME], d));
    plan_describe(plan, text, sizeof text);
    printf("       %s\n", text);
}

/* Makes the directory for the nvme tier; remove_directory removes what was made. */
static enum status make_directory(struct check *c, const struct plan *plan)
{
    const char *out = c->given.s->out;
    c->directory_kept = strlen(out);
    if (!leads(c) || plan->arena[TIER_NVME] == 0 || c->given.s->nvme_path.n > 0)
        return OK;
    TRY(run_check_can_be_made("--out", out));
    char path[4096];
    snprintf(path, sizeof path, "%s", out);
    while (sys_access(path, F_OK) != 0) {
        char *slash = strrchr(path, '/');
        c->directory_kept = slash ? (size_t)(slash - path) : 0;
        if (c->directory_kept == 0)
            break;
        *slash = 0;
    }
    return directory_make(out);
}

static void remove_directory(const struct check *c)
{
    char path[4096];
    snprintf(path, sizeof path, "%s", c->given.s->out);
    while (strlen(path) > c->directory_kept && sys_rmdir(path) == 0) {
        char *slash = strrchr(path, '/');
        if (!slash)
            return;
        *slash = 0;
    }
}

static enum status start(struct run *r)
{
    TRY(run_start(r));
    return run_load_state(r);
}

/* Starts rank 0's reference run, which the other ranks have no part in. */
static enum status start_alone(struct check *c)
{
    c->alone.s = &c->alone_settings;
    c->alone.model = c->given.model;
    c->alone.inputs.corpus = c->given.inputs.corpus;
    c->d = sys_calloc((size_t)c->given.model->n_params, sizeof *c->d);
    c->noise = sys_calloc((size_t)c->given.model->n_params, sizeof *c->noise);
    c->turns = sys_calloc((size_t)c->given.model->n_params, sizeof *c->turns);
    c->slack = sys_calloc((size_t)c->given.model->n_units, sizeof *c->slack);
    int there = c->d && c->noise && c->turns && c->slack;
    for (int u = 0; u < c->given.model->n_units && there && !c->tolerance.exact; u++)
        if (c->given.model->units[u].trained_elements > 0)
            there = (c->slack[u] = sys_calloc((size_t)c->given.model->units[u].elements, sizeof **c->slack)) != NULL;
    TRY(there ? comm_create_self(&c->self) : status_fail(ERR_NOMEM, "check: out of memory"));
    c->alone.comm = c->self;
    return start(&c->alone);
}

static enum status prepare(struct check *c, int64_t steps)
{
    TRY(run_open(&c->given));
    TRY(run_plan(&c->given));
    const struct plan *plan = c->given.plans.all.plan[0];
    describe(c, plan, steps);
    c->tolerance = choose_tolerance(c->given.s, comm_size(c->comm));
    be_patient(c, 1);
    TRY(comm_agree(c->comm, leads(c) ? plan_alone(c, plan) : OK));
    TRY(comm_agree(c->comm, make_directory(c, plan)));
    if (c->tolerance.exact)
        printf("tolerance: none; %s\n", c->tolerance.why);
    else
        printf("tolerance: gradients %.2g of a tensor's L2 norm, norm %.2g, loss %.2g, growing with the steps; %s\n"
               "           parameters %.2g, and what AdamW makes of the gradients' difference (it moves noise by lr, too)\n",
               c->tolerance.gradient, c->tolerance.norm, c->tolerance.loss, c->tolerance.why, c->tolerance.parameter);
    fflush(stdout);
    TRY(start(&c->given));
    TRY(comm_agree(c->comm, leads(c) ? start_alone(c) : OK));
    TRY(comm_agree(c->comm, choices_begin(&c->choices, &c->given, leads(c) ? &c->alone : NULL)));
    be_patient(c, 0);
    return OK;
}

static enum status check_length(struct settings *s, struct comm *comm, int64_t steps)
{
    struct check c = {.comm = comm, .given = {.s = s, .comm = comm, .place.saved = -1}, .alone = {.place.saved = -1}};
    s->trace = AUTO;
    s->verify_every = 0;
    enum status st = prepare(&c, steps);
    if (st == OK)
        st = all_steps(&c, steps);
    batch_destroy(c.alone.batch);
    session_destroy(c.alone.session);
    train_plans_destroy(&c.alone.plans.all);
    comm_destroy(c.self);
    for (int u = 0; c.slack && u < c.given.model->n_units; u++)
        free(c.slack[u]);
    free(c.slack);
    choices_end(&c.choices);
    free(c.noise);
    free(c.turns);
    free(c.d);
    batch_destroy(c.given.batch);
    session_destroy(c.given.session);
    train_plans_destroy(&c.given.plans.all);
    corpus_close(c.given.inputs.corpus);
    free(c.given.inputs.texts.data);
    model_destroy(c.given.model);
    if (!comm_broken(comm) && (st == OK || comm_agreed(comm)))
        comm_barrier(comm); /* no store is open any more */
    if (leads(&c))
        remove_directory(&c);
    if (st == OK)
        printf("check: pass\n");
    return st;
}

/* Checks the lengths of a curriculum one by one, each from the first parameters on. */
enum status check_run(struct settings *s, struct comm *comm, int64_t steps)
{
    const struct settings given = *s;
    s->curriculum.n = 0;
    for (int i = 0; i < curriculum_stretches(&given); i++) {
        free(s->plan.hardware); /* each length finds its own hardware figures */
        free(s->plan.target);
        s->plan.hardware = NULL;
        s->plan.target = NULL;
        s->plan.seq_len = curriculum_length(&given, i);
        s->plan.row_chunk = given.plan.row_chunk;
        s->plan.head_tile = given.plan.head_tile;
        s->plan.loss_tile = given.plan.loss_tile;
        s->plan.group = given.plan.group;
        TRY(check_length(s, comm, steps));
    }
    return OK;
}
