/* Planning a run: a plan for each length, the same on all ranks, that fits this machine's memory. */
#include "train/run.h"

#include "base/mix.h"
#include "base/progress.h"
#include "base/sys.h"
#include "base/tell.h"
#include "base/units.h"
#include "plan/hybrid.h"
#include "plan/lower/fixed.h"
#include "plan/longest_stages.h"
#include "plan/lower/mesh.h"
#include "plan/max_seq.h"
#include "plan/report/describe.h"
#include "plan/report/refuse.h"
#include "plan/roles.h"
#include "program/digest.h"
#include "settings/curriculum.h"
#include "settings/keys.h"
#include "train/machine.h"
#include "train/memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void train_show_progress(const struct settings *s, const struct comm *comm)
{
    if (tell_stream() == stdout && comm_size(comm) == 1 && !(s->json && tell_is_terminal()))
        progress_begin(STDERR_FILENO, PROGRESS_AFTER_NS);
}

void train_show_planning(const struct settings *s, const struct comm *comm)
{
    if (tell_stream() != stdout || comm_rank(comm) != 0 || (comm_size(comm) == 1 && s->json && tell_is_terminal()))
        return;
    progress_begin_kept(STDERR_FILENO, progress_silence_ns(), PROGRESS_LINE_NS);
}

/* Resets the tiles of a resumed run if the mesh is another one: they were chosen for a rank's heads and tokens. The size of groups
 * stays. */
static void adapt_tiles(struct settings *s, const struct model *m)
{
    char mesh[MESH_TEXT];
    const int decided = s->plan.open_degrees == 0 || plan_meshes(m, &s->plan, NULL, 0) == 1;
    if (!mesh_is_decided(&s->tiles_mesh) || (decided && mesh_equal(&s->tiles_mesh, &s->plan.mesh)))
        return;
    tell("resume: the tiles were those of %s: they are chosen anew\n", mesh_format(&s->tiles_mesh, mesh));
    s->plan.row_chunk = s->plan.head_tile = s->plan.loss_tile = AUTO;
    settings_list_clear(settings_key_find("length-tiles"), s);
}

/* Plans again with the host budget that messages leave, if ranks send through host memory: messages are a part of that budget. */
static enum status leave_room_for_messages(const struct settings *s, const struct plan_request *request,
                                           const struct machine_ranks *p, const struct model *m, int place, struct plan **plan)
{
    char host[32], messages[32], given[32];
    int64_t limit[TIERS], bytes = session_message_bytes(*plan);
    if (!s->staged || !(*plan)->fits || (*plan)->arena[TIER_HOST] + bytes <= p->limit[TIER_HOST])
        return OK;
    memcpy(limit, p->limit, sizeof limit);
    limit[TIER_HOST] = max_i64(0, limit[TIER_HOST] - bytes);
    plan_destroy(*plan);
    *plan = NULL;
    TRY(plan_ranks_create(m, request, place, limit, plan));
    bytes = session_message_bytes(*plan);
    if (!(*plan)->fits || (*plan)->arena[TIER_HOST] + bytes <= p->limit[TIER_HOST])
        return OK;
    units_format_bytes((*plan)->arena[TIER_HOST], host);
    plan_destroy(*plan);
    *plan = NULL;
    return status_fail(
        ERR_NOFIT, "the plan takes %s of host memory and %s more for what ranks send, and %s are given (--host-mem): give more",
        host, units_format_bytes(bytes, messages), units_format_bytes(p->limit[TIER_HOST], given));
}

/* Makes the request for a length's plan. Values that all lengths share are those of the longest length's plan; tiles are those
 * that the run had before. */
static struct plan_request request_of(const struct settings *s, int64_t seq_len, const struct plan *longest)
{
    struct plan_request r = s->plan;
    int64_t rows, heads, loss;
    r.seq_len = seq_len;
    if (longest) {
        plan_take_mesh(&r, &longest->strategy.key.mesh, longest->strategy.key.packed);
        r.open_degrees = r.open_parts = 0;
        r.packing_is_open = 0;
        r.group = longest->strategy.key.group;
        r.zero = longest->strategy.ranks > 1 ? longest->strategy.key.zero : r.zero;
    }
    if (s->curriculum.n > 0 && curriculum_recall_tiles(s, seq_len, &rows, &heads, &loss)) {
        r.row_chunk = r.row_chunk == AUTO ? rows : r.row_chunk;
        r.head_tile = r.head_tile == AUTO ? heads : r.head_tile;
        r.loss_tile = r.loss_tile == AUTO ? loss : r.loss_tile;
    }
    return r;
}

static const struct plan *plan_of_length(const struct train_plans *p, int64_t seq_len)
{
    for (int i = 0; i < p->n; i++)
        if (plan_length(p->plan[i]) == seq_len)
            return p->plan[i];
    return NULL;
}

static enum status plan_length_of(struct settings *s, int64_t seq_len, const struct machine_ranks *p, const struct model *m,
                                  struct train_plans *out)
{
    const struct plan_request request = request_of(s, seq_len, out->n > 0 ? out->plan[0] : NULL);
    if (plan_of_length(out, seq_len))
        return OK;
    TRY(train_say_length(s, seq_len, refuse_early(m, &request, p->limit)));
    TRY(train_say_length(s, seq_len, plan_ranks_create(m, &request, out->place, p->limit, &out->plan[out->n])));
    TRY(train_say_length(s, seq_len, leave_room_for_messages(s, &request, p, m, out->place, &out->plan[out->n])));
    out->owned = ++out->n;
    return OK;
}

static enum status plan_lengths(struct settings *s, const struct machine_ranks *p, const struct model *m, struct train_plans *out)
{
    const int n = curriculum_stretches(s);
    TRY(plan_length_of(s, s->plan.seq_len, p, m, out));
    for (int i = 0; i < n; i++) {
        const int64_t seq_len = curriculum_length(s, i);
        TRY(plan_length_of(s, seq_len, p, m, out));
        out->stretches[i] =
            (struct plan_stretch){seq_len, curriculum_first(s, i), curriculum_end(s, i), plan_of_length(out, seq_len)};
    }
    if (n > 1) {
        out->plan[0]->stretches = out->stretches;
        out->plan[0]->n_stretches = n;
    }
    return OK;
}

static enum status plan_prepared(struct settings *s, const struct machine_ranks *p, const struct model *m,
                                 struct train_plans *out)
{
    *out = (struct train_plans){.place = out->place};
    if (s->max_seq) {
        if (mesh_degree(&s->plan.mesh, MESH_PP) > 1)
            TRY(plan_longest_stages(m, &s->plan, p->ranks, p->per_host, out->place, p->limit, &out->plan[0]));
        else
            TRY(plan_longest(m, &s->plan, p->ranks, p->per_host, p->limit, &out->plan[0]));
        out->n = out->owned = 1;
        return OK;
    }
    TRY(plan_mesh(m, &s->plan, p->ranks, p->per_host));
    adapt_tiles(s, m);
    enum status st = plan_lengths(s, p, m, out);
    if (st != OK)
        train_plans_destroy(out);
    return st;
}

void train_plans_destroy(struct train_plans *p)
{
    for (int i = 0; i < p->owned; i++)
        plan_destroy(p->plan[i]);
    p->n = p->owned = 0;
}

enum status train_plan(struct settings *s, struct comm *comm, int ranks, const struct model *m, struct train_plans *out,
                       int64_t limit[TIERS])
{
    struct machine_ranks p;
    TRY(s->plan.machine ? machine_elsewhere(s, m, &p) : machine_here(s, comm, ranks, m, &p));
    memcpy(limit, p.limit, sizeof p.limit);
    train_show_planning(s, comm);
    out->place = comm_size(comm) > 1 ? comm_place(comm) : 0;
    enum status st = plan_prepared(s, &p, m, out);
    progress_end();
    TRY(st);
    const struct strategy *strategy = &out->plan[0]->strategy;
    plan_take_mesh(&s->plan, &strategy->key.mesh, strategy->key.packed);
    s->plan.stage_layers = strategy->key.stages;
    if (s->plan.zero == AUTO || s->plan.zero_is_unsaid) /* a rank alone has no stage; a resumed run may have more ranks */
        s->plan.zero = strategy->ranks > 1 ? strategy->key.zero : 3;
    return OK;
}

/* ---- plans of a run ---- */

/* Returns a digest of a program of all roles. */
static uint64_t program_of_roles(const struct plan *plan, int which)
{
    uint64_t digest = 0;
    for (int i = 0; i < plan_n_roles(plan); i++) {
        const struct program *p = plan_of_role(plan, i)->programs[which];
        digest = mix(digest, p ? program_digest(p) : 0);
    }
    return digest;
}

/* Makes sure that every rank has the same plans of all roles; else all fail. */
static enum status compare_plans(struct comm *c, const struct plan *plan)
{
    struct {
        int64_t arena[TIERS];
        uint64_t programs[PLAN_PROGRAMS]; /* digests */
        char text[PLAN_TEXT];
    } own, *all = sys_calloc((size_t)comm_size(c), sizeof *all);
    if (!all)
        return status_fail(ERR_NOMEM, "out of memory");
    memset(&own, 0, sizeof own);
    memcpy(own.arena, plan_of_role(plan, 0)->arena, sizeof own.arena);
    for (int k = 0; k < PLAN_PROGRAMS; k++)
        own.programs[k] = program_of_roles(plan, k);
    plan_describe(plan_of_role(plan, 0), own.text, sizeof own.text);
    enum status st = comm_gather(c, &own, sizeof own, all);
    for (int k = 1; k < comm_size(c) && st == OK; k++)
        if (memcmp(&all[k], &all[0], sizeof own) != 0)
            st = comm_agree(
                c, status_fail(ERR_INVALID,
                               "rank %d planned another program than rank 0 (%s; %s): are all hosts of one kind, with the "
                               "same ltrain?",
                               k, all[k].text, all[0].text));
    free(all);
    return st;
}

/* Returns the bytes beside the plan's memory and beyond those set aside for the program. */
static int64_t bytes_beside(const struct run *r, const struct plan *plan)
{
    return (r->s->staged ? session_message_bytes(plan) : 0) +
           max_i64(0, session_staging_bytes(r->model, plan) - MEMORY_ASIDE_STAGING);
}

/* Checks a length's plan: it is equal on all ranks, it fits, and its memory is free. */
static enum status check_plan(struct run *r, const struct plan *plan)
{
    struct comm *c = r->comm;
    struct plan_request request = r->s->plan;
    request.seq_len = plan_length(plan);
    TRY(compare_plans(c, plan));
    if (!plan->fits)
        return comm_agree(c, train_say_length(r->s, request.seq_len, refuse_plan(plan, r->model, &request)));
    return comm_agree(
        c, train_say_length(r->s, request.seq_len, memory_check(&r->plans.memory, plan, bytes_beside(r, plan), &request)));
}

/* Checks the plans together: arenas are as large as the largest plan's, in each tier, and need room at once. */
static enum status check_together(const struct run *r)
{
    struct plan all = *r->plans.all.plan[0];
    int64_t beside = 0;
    for (int i = 0; i < r->plans.all.n; i++) {
        beside = max_i64(beside, bytes_beside(r, r->plans.all.plan[i]));
        for (int t = 0; t < TIERS; t++)
            all.arena[t] = max_i64(all.arena[t], r->plans.all.plan[i]->arena[t]);
    }
    return memory_check(&r->plans.memory, &all, beside, &r->s->plan);
}

/* Bytes of each arena by which a step's second computation lies elsewhere: other pages, and other sets of the caches. */
#define ROOM_BYTES ((int64_t)1 << 20)

/* Adds room for --verify-every to the memory of the plan's roles, as far as the budgets have it. */
static void add_room(const struct run *r, struct plan *plan)
{
    for (int i = 0; i < plan_n_roles(plan) && r->s->verify_every > 0 && plan->fits; i++) {
        int64_t *arena = plan->roles ? plan->roles->of[i].plan->arena : plan->arena;
        for (int t = TIER_DEVICE; t <= TIER_HOST; t++)
            if (arena[t] > 0)
                arena[t] += max_i64(0, min_i64(ROOM_BYTES, r->plans.limit[t] - arena[t])) / BUFFER_ALIGN * BUFFER_ALIGN;
    }
}

enum status run_plan(struct run *r)
{
    struct comm *c = r->comm;
    struct settings *s = r->s;
    TRY(comm_agree(c, train_plan(s, c, comm_size(c), r->model, &r->plans.all, r->plans.limit)));
    TRY(memory_part_find(c, 1, s->plan.threads, &r->plans.memory)); /* given budgets may exceed the memory */
    for (int i = 0; i < r->plans.all.n; i++)
        add_room(r, r->plans.all.plan[i]);
    for (int i = 0; i < r->plans.all.n; i++)
        TRY(check_plan(r, r->plans.all.plan[i]));
    TRY(comm_agree(c, check_together(r)));
    TRY(comm_set_mesh(c, &s->plan.mesh));
    const struct strategy *grid = &r->plans.all.plan[0]->strategy;
    s->plan.group = grid->key.group;
    if (s->curriculum.n == 0)
        plan_fix_grid(&s->plan, grid);
    enum status st = OK;
    for (int i = 0; i < r->plans.all.n && s->curriculum.n > 0 && st == OK; i++) {
        grid = &r->plans.all.plan[i]->strategy;
        st = curriculum_note_tiles(s, plan_length(r->plans.all.plan[i]), grid->key.row_chunk, grid->key.head_tile,
                                   grid->key.loss_tile);
    }
    return comm_agree(c, st);
}
