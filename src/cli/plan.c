#include "cli/plan.h"

#include "base/hurry.h"
#include "base/progress.h"
#include "eval/result_file.h"
#include "plan/report/advise.h"
#include "plan/report/explain.h"
#include "plan/report/json.h"
#include "plan/report/refuse.h"
#include "plan/report/svg.h"
#include "plan/report/text.h"
#include "plan/search/memo.h"
#include "train/space.h"
#include "train/train.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static enum status write_picture(const struct plan *plan, const struct model *model, const char *path)
{
    struct result_file x;
    TRY(result_file_begin(&x, "svg", path));
    return result_file_end(&x, plan_write_svg(plan, model, x.f));
}

/* Finds how much each decision of the plan is worth, which takes long, and shows progress. Advice after the table (find_advice)
 * shows progress only where that disturbs no pager. */
static enum status find_decisions(const struct plan *plan, const struct model *model, const struct settings *s,
                                  const struct comm *comm, struct explanation *out)
{
    train_show_progress(s, comm);
    enum status st = explain_make(plan, model, &s->plan, out);
    progress_end();
    return st;
}

static enum status find_advice(const struct plan *plan, const struct model *model, const struct settings *s,
                               const struct comm *comm, struct advice *out)
{
    if (strategy_stages(&plan->strategy) > 1) /* advice is found by plans of the whole model */
        return OK;
    if (s->json || isatty(STDOUT_FILENO))
        train_show_progress(s, comm);
    enum status st = advise_find(plan, model, &s->plan, out);
    progress_end();
    return st;
}

/* Writes the table or JSON, advice, the picture, and the message if the plan does not fit. */
static enum status write_plan(const struct plan *plan, const struct model *model, const struct settings *s,
                              const struct comm *comm)
{
    struct advice advice = {0};
    struct explanation e;
    const int explain = s->explain && plan->fits;
    if (explain)
        TRY(find_decisions(plan, model, s, comm, &e));
    if (s->json) {
        TRY(find_advice(plan, model, s, comm, &advice));
        TRY(plan_write_json(plan, model, &s->plan, &advice, explain ? &e : NULL, stdout));
    } else {
        TRY(plan_print(plan, model, &s->plan, stdout));
        train_print_notes(s, model, stdout);
        train_print_verified(s, plan, stdout);
        train_print_scrubbed(s, plan, stdout);
        if (explain) {
            TRY(plan_print_bounds(plan, model, stdout));
            explain_print(plan, &e, stdout);
        } else if (s->explain) {
            printf("\n--explain says something of plans that fit.\n");
        }
        fflush(stdout);
        TRY(find_advice(plan, model, s, comm, &advice));
        advise_print(plan, &advice, stdout);
    }
    if (s->svg)
        TRY(write_picture(plan, model, s->svg));
    if (s->verbose)
        plan_print_passes(plan, stderr);
    if (s->verbose && !s->json)
        program_print(plan->programs[PLAN_UPDATE_STEP], stdout);
    if (fflush(stdout) != 0 || ferror(stdout))
        return status_fail(ERR_IO, "cannot write the plan: standard output is full or closed");
    return plan->fits ? OK : train_say_length(s, s->plan.seq_len, refuse_advised(plan, &s->plan, &advice));
}

/* Refuses a plan that does not fit, made for another than the longest length. */
static enum status refuse_length(const struct plan *plan, const struct model *model, const struct settings *s)
{
    struct plan_request request = s->plan;
    request.seq_len = plan_length(plan);
    return plan->fits ? OK : train_say_length(s, request.seq_len, refuse_plan(plan, model, &request));
}

/* Keeps freed memory for the next program of many: returned to the system, its pages took a tenth of the time of planning. */
static void keep_freed_memory(void)
{
    enum { MOST = 32 << 20 /* glibc takes no more */ };
    mallopt(M_MMAP_THRESHOLD, MOST);
    mallopt(M_TRIM_THRESHOLD, 4 * MOST);
}

/* Plans, and prints the plan and advice. */
static enum status plan_and_print(struct settings *s, struct comm *c)
{
    struct model *model = NULL;
    struct train_plans plans = {.n = 0};
    int64_t limit[TIERS];
    TRY(s->svg ? result_file_check("svg", s->svg, s) : OK); /* before planning, which may take long */
    TRY(train_open_model(s, &model));
    enum status st = train_plan(s, c, comm_size(c) > 1 ? comm_size(c) : train_planned_ranks(s), model, &plans, limit);
    if (st == OK && s->max_seq) { /* the model for the length that was found */
        model_destroy(model);
        model = NULL;
        st = train_open_model(s, &model);
    }
    if (st == OK)
        st = write_plan(plans.plan[0], model, s, c);
    for (int i = 1; i < plans.n && st == OK; i++)
        st = refuse_length(plans.plan[i], model, s);
    if (st == OK)
        st = run_space_check(s, model);
    train_plans_destroy(&plans);
    model_destroy(model);
    return st;
}

static volatile sig_atomic_t sent; /* number of the signal that ends planning early; 0: none came */

/* Asks planning to end with the best plan so far, or ends the process if there is none. A second signal ends it in any case. */
static void on_signal(int number)
{
    static const char nothing[] = "\nltrain: planning was ended before any plan that fits was found\n";
    sent = number;
    if (progress_has_found()) {
        hurry_ask();
        return;
    }
    if (write(STDERR_FILENO, nothing, sizeof nothing - 1) < 0) {
        /* nobody reads */
    }
    raise(number); /* whose action is the default one again */
}

/* Catches SIGINT and SIGTERM once, unless SIGTERM is ignored. */
static void catch_signals(void)
{
    struct sigaction had, want = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_RESETHAND};
    sigemptyset(&want.sa_mask);
    sigaction(SIGINT, &want, NULL);
    if (sigaction(SIGTERM, NULL, &had) == 0 && had.sa_handler != SIG_IGN)
        sigaction(SIGTERM, &want, NULL);
}

enum status plan_command(struct settings *s, struct comm *c)
{
    keep_freed_memory();
    if (comm_size(c) == 1)
        catch_signals();
    memo_hold(); /* advice asks for much of what planning has found */
    enum status st = plan_and_print(s, c);
    memo_release();
    if (sent)
        fprintf(stderr, "ltrain: %s ended planning early: this is the best plan found until then, and a faster one may be left\n",
                sent == SIGINT ? "SIGINT" : "SIGTERM");
    return st;
}
