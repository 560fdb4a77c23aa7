/* Tests the programs of whole meshes: all ranks' collectives match, and any deviation of one rank is noticed. Parts of a model
 * are planned, verified and simulated as roles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "model/part.h"
#include "plan/cells.h"
#include "plan/longest_stages.h"
#include "plan/lower/mesh.h"
#include "plan/schedule/order.h"
#include "plan/search/tuning.h"
#include "verify/grid.h"
#include "verify/mutate.h"
#include "verify/verify.h"

#include "../../src/plan/roles.c" /* request_like is its own */

#include <math.h>

static struct plan *planned(const struct model *m, int dp, int ring, int ulysses, int zero, int64_t seq_len, enum dtype dtype)
{
    static const int64_t limit[TIERS] = {INT64_MAX, INT64_MAX, INT64_MAX};
    struct plan *plan = NULL;
    struct plan_request s;
    cell_settings(&s, seq_len, dtype);
    s.mesh.degree[MESH_DP] = dp;
    s.mesh.degree[MESH_RING] = ring;
    s.mesh.degree[MESH_ULYSSES] = ulysses;
    s.zero = zero;
    s.head_tile = ring > 1 ? AUTO : 1;
    s.eval_every = 1;
    s.grad_accum = 3;
    if (plan_create(m, &s, limit, &plan) != OK)
        fail_msg("dp=%d ring=%d ulysses=%d zero=%d: %s", dp, ring, ulysses, zero, status_message());
    return plan;
}

static void meshes(void **state)
{
    (void)state;
    static const int shapes[][3] = {{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {1, 3, 4}, {2, 2, 2}, {32, 8, 4}};
    static struct grid g;
    struct model *m;
    assert_int_equal(cell_model(FAMILY_LLAMA, 2, &m), OK);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int zero = 0; zero <= 3; zero++) {
            int dp = shapes[i][0], ring = shapes[i][1], ulysses = shapes[i][2];
            struct plan *plan = planned(m, dp, ring, ulysses, zero, 30 * ring * ulysses, zero % 2 ? BF16 : F32);
            grid_make(&g, dp, ring, ulysses);
            for (int k = 0; k < PLAN_PROGRAMS; k++) {
                const struct program *p = plan->programs[k];
                if (p && program_verify_mesh(&p, 1, &g.m) != OK)
                    fail_msg("dp=%d ring=%d ulysses=%d zero=%d, program %s: %s", dp, ring, ulysses, zero, p->name,
                             status_message());
            }
            plan_destroy(plan);
        }
    model_destroy(m);
}

enum deviation { DROP, SWAP, WIRE, TURN, ALWAYS, DEVIATIONS };

static const char *argument_name(const struct program *p, const struct instr *in)
{
    return p->tensors[p->operands[in->first_operand].tensor].name;
}

/* Changes the k-th collective of a lane. Returns 0 if the deviation does not apply, or would change nothing. */
static int deviate(struct program *q, enum deviation what, enum lane lane, int k)
{
    int at = mutate_find(q, lane, k), next = mutate_find(q, lane, k + 1);
    struct instr *in = &q->instrs[at];
    struct op_attrs *a = mutate_attrs(q, in);
    switch (what) {
    case DROP:
        mutate_drop(q, lane, k);
        return 1;
    case SWAP: {
        if (next < 0 || (memcmp(a, &program_call(q, &q->instrs[next])->attrs, sizeof *a) == 0 && in->op == q->instrs[next].op &&
                         strcmp(argument_name(q, in), argument_name(q, &q->instrs[next])) == 0))
            return 0;
        struct instr t = q->instrs[next];
        t.ticket--;
        q->instrs[next] = *in;
        q->instrs[next].ticket++;
        *in = t;
        return 1;
    }
    case WIRE:
        a->comm.type = a->comm.type == F32 ? BF16 : F32;
        return in->op == OP_REDUCE_SCATTER || in->op == OP_ALL_REDUCE;
    case TURN: {
        int32_t send = a->comm.send_if;
        a->comm.distance = -a->comm.distance;
        a->comm.send_if = a->comm.recv_if;
        a->comm.recv_if = send;
        return in->op == OP_EXCHANGE;
    }
    case ALWAYS:
        a->comm.send_if = a->comm.recv_if = 0;
        return in->op == OP_EXCHANGE;
    case DEVIATIONS:
        break;
    }
    return 0;
}

static void deviations(void **state)
{
    (void)state;
    static struct grid g;
    struct model *m;
    int tried[DEVIATIONS] = {0};
    assert_int_equal(cell_model(FAMILY_LLAMA, 1, &m), OK);
    for (int zero = 1; zero <= 3; zero += 2) {
        struct plan *plan = planned(m, 2, 3, 2, zero, 180, F32);
        const struct program *p = plan->programs[PLAN_UPDATE_STEP];
        grid_make(&g, 2, 3, 2);
        for (int rank = 0; rank < 12; rank += 11) {
            memset(g.role, 0, sizeof g.role);
            g.role[rank] = 1;
            for (int lane = LANE_WORLD; lane < LANES; lane++)
                for (int k = 0; mutate_find(p, (enum lane)lane, k) >= 0; k++)
                    for (int what = 0; what < DEVIATIONS; what++) {
                        struct program *q = mutate_copy(p);
                        const struct program *const roles[] = {p, q};
                        if (deviate(q, (enum deviation)what, (enum lane)lane, k)) {
                            tried[what]++;
                            if (program_verify_mesh(roles, 2, &g.m) == OK)
                                fail_msg("zero=%d: deviation %d of rank %d at instruction %d of lane %s was accepted", zero, what,
                                         rank, k + 1, lane_name((enum lane)lane));
                            assert_non_null(strstr(status_message(), what == SWAP ? "" : "mesh: "));
                        }
                        program_destroy(q);
                    }
        }
        plan_destroy(plan);
    }
    model_destroy(m);
    print_message("dropped %d, swapped %d, wire %d, turned %d, never left out %d\n", tried[0], tried[1], tried[2], tried[3],
                  tried[4]);
    for (int what = 0; what < DEVIATIONS; what++)
        assert_true(tried[what] > 10);
}

/* ---- roles ---- */

/* Plans the stages of a model with two ranks each; *out: the plan of the last one. */
static void plan_stages(const struct model *m, int stages, struct plan **out)
{
    static const int64_t limit[TIERS] = {INT64_MAX, INT64_MAX, INT64_MAX};
    struct model_part part[8];
    struct plan_request s;
    cell_settings(&s, 60, F32);
    s.mesh.degree[MESH_DP] = 2;
    s.zero = 2;
    s.grad_accum = 2;
    for (int k = 0; k < stages; k++)
        assert_int_equal(model_stage(m, k, stages, 0, 1, &part[k]), OK);
    if (plan_roles_create(m, part, stages, stages - 1, &s, limit, out) != OK)
        fail_msg("%s", status_message());
}

/* Stages of three and of two layers are two roles; stages with equal numbers of layers are one, but for the first one, which trains the
 * embedding. A step takes as long as the
 * slower role's. */
static void stages(void **state)
{
    (void)state;
    struct model *m;
    struct plan *p;
    assert_int_equal(cell_model(FAMILY_LLAMA, 8, &m), OK);
    plan_stages(m, 3, &p);
    const struct plan *longer = plan_of_role(p, 0), *shorter = plan_of_role(p, 2);
    assert_true(plan_n_roles(p) == 3 && shorter == p);
    assert_true(p->roles->n_parts == 3 && p->roles->role[0] == 0 && p->roles->role[1] == 1 && p->roles->role[2] == 2);
    assert_true(longer->programs[PLAN_STEP]->n_instrs > shorter->programs[PLAN_STEP]->n_instrs);
    for (int k = 0; k < 3; k++) { /* simulating each role's programs gives the plan's times again */
        const struct plan *of = plan_of_role(p, k);
        double seconds, step = 0;
        for (int i = PLAN_UPDATE_STEP; i <= PLAN_LAST; i++)
            if (of->programs[i] && i != PLAN_MORE) {
                assert_int_equal(schedule_simulate(of->programs[i], &of->cost, &seconds), OK);
                step += seconds;
            }
        assert_true(fabs(step - of->seconds) < 1e-9 * step);
    }
    assert_true(longer->seconds > shorter->seconds && plan_step_seconds(p) == longer->seconds);
    assert_int_equal(plan_verify_ranks(p), OK);
    plan_destroy(p);
    plan_stages(m, 4, &p);
    assert_true(plan_n_roles(p) == 2 && plan_of_role(p, 1) == p);
    assert_int_equal(plan_verify_ranks(p), OK);
    plan_destroy(p);
    model_destroy(m);
}

/* A fault in another role's programs is found by ranks of every role: one of the mesh, and one inside the program. */
static void other_roles(void **state)
{
    (void)state;
    struct model *m;
    struct plan *p;
    assert_int_equal(cell_model(FAMILY_GPT_OSS, 3, &m), OK); /* a window in the first layer only */
    plan_stages(m, 3, &p);
    assert_true(plan_n_roles(p) == 2 && p->roles->role[0] == 0 && p->roles->role[1] == 1 && p->roles->role[2] == 1);
    struct program *other = plan_of_role(p, 0)->programs[PLAN_STEP];
    assert_int_equal(plan_verify_ranks(p), OK);
    other->group_size[LANE_WORLD]++;
    assert_int_equal(plan_verify_ranks(p), ERR_CORRUPT);
    other->group_size[LANE_WORLD]--;
    assert_int_equal(plan_verify_ranks(p), OK);
    int at = 0;
    while (other->instrs[at].lane != LANE_COMPUTE || other->instrs[at].n_waits == 0)
        at++;
    const uint8_t waits = other->instrs[at].n_waits;
    other->instrs[at].n_waits = 0;
    assert_int_equal(plan_verify_ranks(p), ERR_CORRUPT);
    other->instrs[at].n_waits = waits;
    assert_int_equal(plan_verify_ranks(p), OK);
    plan_destroy(p);
    model_destroy(m);
}

/* Decisions that may change bits are the first role's, also where a role would decide otherwise by itself. */
static void decisions_of_the_first(void **state)
{
    (void)state;
    static const struct model_part part[] = {{0, 7, 0, 1}, {7, 1, 0, 1}};
    enum { LEAST = 2800, MOST = 4400, STEP = 200 }; /* KiB: kernels of another instruction set need other room */
    struct model *m, *last;
    struct plan *p = NULL, *alone = NULL;
    struct plan_request s;
    assert_int_equal(cell_model(FAMILY_LLAMA, 8, &m), OK);
    assert_int_equal(model_part_create(m, &part[1], &last), OK);
    cell_settings(&s, 2048, F32);
    s.row_chunk = s.head_tile = s.loss_tile = s.group = s.zero = AUTO;
    s.acts = OFFLOAD_AUTO;      /* all layers' state stays on the device, which leaves the longer role less room */
    cell_target()->threads = 1; /* scratch grows with threads, and the limit is narrow */
    s.device = DEVICE_CPU_DISCRETE;
    s.update = UPDATE_AUTO;
    s.alpha = AUTO;
    s.mesh.degree[MESH_DP] = 2;
    const struct strategy *first = NULL, *second = NULL;
    for (int64_t kib = LEAST; kib <= MOST && (!first || strategy_same_grid(first, &alone->strategy)); kib += STEP) {
        const int64_t limit[TIERS] = {kib << 10, INT64_MAX, INT64_MAX};
        plan_destroy(alone);
        plan_destroy(p);
        if (plan_roles_create(m, part, 2, 0, &s, limit, &p) != OK || plan_create(last, &s, limit, &alone) != OK)
            fail_msg("%s", status_message());
        first = &plan_of_role(p, 0)->strategy;
        second = &plan_of_role(p, 1)->strategy;
    }
    assert_true(plan_n_roles(p) == 2 && !strategy_same_grid(first, &alone->strategy) && strategy_same_grid(first, second));
    assert_true(mesh_equal(&first->key.mesh, &second->key.mesh) && first->key.zero == second->key.zero &&
                first->key.group == second->key.group);
    plan_destroy(alone);
    plan_destroy(p);
    model_destroy(last);
    model_destroy(m);
}

/* A further role is asked for with each decision of the first one that may change bits, where the settings leave it open. */
static void request_of_a_further_role(void **state)
{
    (void)state;
    const struct strategy first = {.key = {.mesh = {{2, 4, 3}},
                                           .zero = 2,
                                           .row_chunk = 7,
                                           .loss_tile = 5,
                                           .head_tile = 3,
                                           .group = 11,
                                           .packed = 1},
                                   .ranks = 24},
                          alone = {.key = {.mesh = {{1, 1, 1}}, .zero = 0, .packed = 1}, .ranks = 1};
    struct plan_request s, r;
    cell_settings(&s, 60, F32);
    s.mesh = mesh_uniform(AUTO);
    s.open_degrees = 7;
    s.zero = s.row_chunk = s.loss_tile = s.head_tile = s.group = AUTO;
    s.batch = 6;
    r = request_like(&s, &first);
    assert_true(mesh_equal(&r.mesh, &first.key.mesh) && r.open_degrees == 0 &&
                r.grad_accum == ceil_div(6, first.key.mesh.degree[MESH_DP]));
    assert_true(r.zero == 2 && r.row_chunk == 7 && r.loss_tile == 5 && r.head_tile == 3 && r.group == 11);
    assert_true(r.seq_len == 60 && r.batch == 6);
    s.zero = 3; /* one rank has no stage, and the request keeps its own */
    assert_true(request_like(&s, &alone).zero == 3);
}

/* ---- pipelines ---- */

/* Returns the ticks between the embedding and the first stage's passes. */
static int embedding_apart(const struct ticks *t)
{
    return t->first_embeds ? 0 : t->lag - 1;
}

/* Returns the tick in which a stage runs a piece's forward or backward pass, by what each has to wait for: the pass of the stage before
 * it, the same pass of the piece before it in that pass's order, and at the last stage, for a backward pass, the forward pass of a whole
 * micro-batch, of whose slices one goes backward in each tick. With a lag of 2 the first stage also waits a tick for the embedding that
 * all stages compute, and the last one two for the head. */
static int64_t tick_of(const struct ticks *t, int backward, int stage, int64_t piece)
{
    const int64_t c = t->slices, slice = piece % c;
    if (backward && stage < t->stages - 1)
        return tick_of(t, 1, stage + 1, piece) + t->lag;
    if (backward)
        return tick_of(t, 0, stage, piece - slice + c - 1) + c - 1 - slice + 2 * (t->lag - 1);
    if (stage > 0)
        return tick_of(t, 0, stage - 1, piece) + t->lag;
    return piece > 0 ? tick_of(t, 0, stage, piece - 1) + 1 : embedding_apart(t);
}

/* Checks the pieces of one tick of a stage, and that those in flight have copies of their own. Returns how many are in flight. */
static int64_t check_tick(const struct ticks *t, const struct strategy *strategy, int s, int64_t k)
{
    uint8_t taken[64] = {0};
    int64_t in_flight = 0, oldest = INT64_MAX, newest = 0;
    for (int64_t i = 0; i < t->micro_batches * t->slices; i++) {
        const int64_t forward = tick_of(t, 0, s, i), backward = tick_of(t, 1, s, i);
        assert_int_equal(ticks_forward(t, s, k) == i, forward == k);
        assert_int_equal(ticks_backward(t, s, k) == i, backward == k);
        if (forward > k || backward < k)
            continue;
        const int slot = ticks_slot(t, s, i);
        assert_in_range(slot, 0, strategy_slots(strategy) - 1);
        assert_true(s < t->stages - 1 || slot < t->slices + 2 * (t->lag - 1));
        assert_false(taken[slot]++);
        in_flight++;
        oldest = min_i64(oldest, i / t->slices);
        newest = max_i64(newest, i / t->slices);
    }
    assert_true(in_flight == 0 || newest - oldest < strategy_open_micro_batches(strategy));
    return in_flight;
}

/* Checks the programs of the model's ends in a tick, and that the last stage deals out what it left in the same copy. The embedding
 * comes before the first stage's forward pass, the head before the last one's backward pass, with a lag of 2 a tick before; the
 * embedding's gradient comes behind the first stage's backward pass, or a tick later. Returns how many such programs there are. */
static int check_ends(const struct ticks *t, int64_t k, const struct tick_work *last, int n)
{
    const int p = t->stages, apart = t->lag - 1;
    int ends = 0;
    for (int i = 0; i < n; i++) {
        const enum plan_program of = last[i].program;
        const int backward = of == PLAN_PASS_BACKWARD || (of >= PLAN_BACKWARD_FIRST && of <= PLAN_BACKWARD_NEXT),
                  head = of >= PLAN_HEAD_FIRST && of <= PLAN_HEAD_LAST,
                  grad = of >= PLAN_EMBED_GRAD_FIRST && of <= PLAN_EMBED_GRAD_LAST;
        const int64_t dealt = apart ? ticks_backward(t, p - 1, k + 2) : head ? last[i].piece : -1;
        if (of == PLAN_EMBED)
            assert_int_equal(tick_of(t, 0, 0, last[i].piece), k + apart);
        if (head)
            assert_int_equal(tick_of(t, 1, p - 1, last[i].piece), k + apart);
        if (grad)
            assert_int_equal(tick_of(t, 1, 0, last[i].piece), k - embedding_apart(t));
        if (dealt >= 0 && (apart ? backward : head)) {
            assert_true(tick_of(t, 0, p - 1, dealt) <= k);
            assert_int_equal(last[i].output, ticks_slot(t, p - 1, dealt));
        }
        if (of == PLAN_FORWARD)
            assert_int_equal(last[i].output, ticks_slot(t, p - 1, last[i].piece));
        ends += of == PLAN_EMBED || head || grad;
    }
    return ends;
}

static void check_pipeline(const struct ticks *t)
{
    const int p = t->stages, c = t->slices;
    const int64_t n = t->micro_batches * c;
    const struct strategy strategy = {
        .key = {.mesh = {{[MESH_PP] = p, [MESH_SLICES] = c}}, .packed = 1}, .ahead = t->lag - 1, .sequences = t->micro_batches};
    int64_t runs[PLAN_PROGRAMS], last = 0, ends = 0;
    for (int s = 0; s < p; s++) {
        int64_t most = 0;
        for (int64_t k = 0; k < ticks_count(t); k++) {
            struct tick_work own[TICK_MOST], next[TICK_MOST];
            most = max_i64(most, check_tick(t, &strategy, s, k));
            last = ticks_backward(t, s, k) >= 0 ? max_i64(last, k) : last;
            const int programs = ticks_list(t, s, k, own);
            assert_int_equal(programs, ticks_list(t, (s + 1) % p, k, next));
            ends += s == p - 1 ? check_ends(t, k, own, programs) : 0;
            for (int i = 0; i < programs && s + 1 < p; i++) {
                const int back = own[i].program >= PLAN_BACKWARD_FIRST && own[i].program != PLAN_PASS_FORWARD;
                const int outputs = back == (t->lag == 1);
                assert_int_equal(outputs ? own[i].sends : own[i].receives, outputs ? next[i].receives : next[i].sends);
            }
        }
        assert_int_equal(most, min_i64(n, c + 2 * (t->lag - 1) + 2 * t->lag * (p - 1 - s)));
    }
    assert_int_equal(last + 1 + embedding_apart(t), ticks_count(t));
    assert_int_equal(ends, t->first_embeds ? n + 1 : 3 * n); /* the head and, behind all, the norm; or all three ends */
    ticks_runs(t, runs);
    assert_int_equal(runs[PLAN_FORWARD], n);
    assert_int_equal(runs[PLAN_BACKWARD_FIRST] + runs[PLAN_BACKWARD_MORE] + runs[PLAN_BACKWARD_LAST] + runs[PLAN_BACKWARD_NEXT],
                     n);
    assert_int_equal(runs[PLAN_BACKWARD_NEXT], c > 1 ? t->micro_batches - 1 : 0);
    if (t->lag == 1)
        assert_int_equal(runs[PLAN_PASS_FORWARD] + n, ticks_count(t));
}

/* Checks an evaluation: every piece passes through all stages in order, what one sends the next one receives in the same program, and all
 * compute the piece's losses in one tick, behind the last stage's pass, before that stage makes other outputs. */
static void check_evaluation(const struct ticks *t)
{
    const int p = t->stages, apart = t->lag - 1;
    const int64_t n = t->micro_batches * t->slices;
    int64_t done = 0, passed[8] = {0};
    for (int64_t k = 0; k < ticks_count(t); k++)
        for (int s = 0; s < p; s++) {
            struct tick_work own[TICK_MOST], next[TICK_MOST];
            const int programs = ticks_list(t, s, k, own);
            assert_int_equal(programs, ticks_list(t, (s + 1) % p, k, next));
            for (int i = 0; i < programs; i++) {
                const int64_t piece = own[i].piece;
                if (own[i].program == PLAN_FORWARD)
                    assert_true(piece == passed[s]++ && k == piece + embedding_apart(t) + t->lag * s);
                if (own[i].program == PLAN_EVAL && s == p - 1)
                    assert_true(piece == done++ && k == piece + embedding_apart(t) + t->lag * s + apart);
                if (s + 1 < p)
                    assert_int_equal(own[i].sends, next[i].receives);
                if (s + 1 < p && own[i].sends) /* one program sends a piece: at once, or in the next tick's pass */
                    assert_true(own[i].program == (apart ? PLAN_FORWARD : PLAN_PASS_BACKWARD) || piece < 0);
            }
        }
    for (int s = 0; s < p; s++)
        assert_int_equal(passed[s], n);
    assert_int_equal(done, n);
}

/* Ticks are those of the recursion; what one stage sends the next one receives at the same time; as many pieces are in flight as there
 * are slots at most, and these have different slots; every stage runs as many programs. */
static void ticks(void **state)
{
    (void)state;
    for (int p = 2; p <= 8; p++)
        for (int64_t m = 1; m <= 12; m++)
            for (int c = 1; c <= 8 && m * c <= 24; c++)
                for (int lag = 1; lag <= 2; lag++)
                    for (int first_embeds = 0; first_embeds < 2; first_embeds++) {
                        check_pipeline(&(struct ticks){p, c, lag, m, 0, first_embeds});
                        check_evaluation(&(struct ticks){p, c, lag, m, 1, first_embeds});
                    }
}

/* Makes sure that a backward half finds in a slot what the forward half has left there. */
static void halves_agree(const struct program *forward, const struct program *backward)
{
    const struct copies *saved = &forward->copies[COPIES_SAVED];
    const int first = saved->first, n = saved->n;
    int found = 0;
    assert_true(n > 0);
    assert_memory_equal(forward->copies, backward->copies, sizeof forward->copies);
    for (int b = 0; b < first + n; b++)
        assert_true(forward->buffers[b].address == backward->buffers[b].address &&
                    forward->buffers[b].bytes == backward->buffers[b].bytes);
    for (int i = 0; i < backward->n_live_in; i++) {
        const struct binding *x = &backward->live_in[i];
        int same = x->buffer < first;
        for (int k = 0; k < forward->n_live_out && !same; k++) {
            const struct binding *y = &forward->live_out[k];
            same = x->buffer == y->buffer && x->tensor == y->tensor && x->offset == y->offset && x->row0 == y->row0 &&
                   x->row1 == y->row1 && x->version == y->version;
        }
        assert_true(same);
        found += x->buffer >= first;
    }
    assert_true(found >= n);
}

static void plan_pipeline(const struct model *m, int stages, int slices, int64_t micro_batches, int ahead, struct plan **out)
{
    static const int64_t limit[TIERS] = {INT64_MAX, INT64_MAX, INT64_MAX};
    struct plan_request s;
    cell_settings(&s, 60, F32);
    s.mesh.degree[MESH_DP] = 2;
    s.mesh.degree[MESH_PP] = stages;
    s.mesh.degree[MESH_SLICES] = slices;
    s.zero = 2;
    s.grad_accum = micro_batches;
    s.batch = 2 * micro_batches;
    s.acts = OFFLOAD_NVME;
    s.stage_ahead = ahead;
    s.device = ahead ? DEVICE_CPU_DISCRETE : DEVICE_CPU; /* verified as on GPUs, whose messages share a stream */
    if (plan_stages_create(m, &s, stages - 1, limit, out) != OK)
        fail_msg("%s", status_message());
}

static struct op_attrs *shift_of(struct program *p)
{
    for (int i = 0; i < p->n_instrs; i++)
        if (p->instrs[i].op == OP_SHIFT)
            return &program_call(p, &p->instrs[i])->attrs;
    return NULL;
}

static int shifts_of(const struct program *p)
{
    int n = 0;
    for (int i = 0; i < p->n_instrs; i++)
        n += p->instrs[i].op == OP_SHIFT;
    return n;
}

/* Makes sure that stages of several layers pass rows on in parts, each behind the compute of a layer more, and as many as a stage that only
 * passes them on. */
static void shifts_are_spread(const struct plan *p, int least_layers)
{
    static const int halves[2][2] = {{PLAN_FORWARD, PLAN_PASS_FORWARD}, {PLAN_BACKWARD_FIRST, PLAN_PASS_BACKWARD}};
    for (int k = 0; k < 2; k++) {
        const struct program *half = p->programs[halves[k][0]];
        int computed = 0, begun = 0;
        assert_int_equal(shifts_of(half), shifts_of(p->programs[halves[k][1]]));
        assert_int_equal(shifts_of(half), least_layers);
        for (int i = 0; i < half->n_instrs; i++) {
            computed += half->instrs[i].op == OP_ATTN_FWD || half->instrs[i].op == OP_ATTN_BWD;
            if (half->instrs[i].op == OP_SHIFT)
                assert_true(computed >= begun++);
        }
    }
}

/* The programs of all stages match in every tick, also of stages with more layers than others; halves that go the wrong way, under
 * other predicates, or of another pass do not. */
static void pipelines(void **state)
{
    (void)state;
    struct model *m;
    struct plan *p;
    assert_int_equal(cell_model(FAMILY_LLAMA, 5, &m), OK);
    for (int stages = 2; stages <= 3; stages++)
        for (int64_t micro_batches = 1; micro_batches <= 3; micro_batches++) {
            plan_pipeline(m, stages, stages == 3 ? (int)micro_batches : 1, micro_batches, stages == 3, &p);
            assert_true(p->fits && plan_n_roles(p) == stages);
            if (plan_verify_ranks(p) != OK)
                fail_msg("%d stages, %lld micro-batches: %s", stages, (long long)micro_batches, status_message());
            for (int role = 0; role < stages; role++)
                for (int k = PLAN_BACKWARD_FIRST; k <= PLAN_BACKWARD_NEXT; k++)
                    if (plan_of_role(p, role)->programs[k])
                        halves_agree(plan_of_role(p, role)->programs[PLAN_FORWARD], plan_of_role(p, role)->programs[k]);
            assert_true(p->seconds > ticks_idle(p) && ticks_idle(p) > 0);
            if (stages == 2)
                shifts_are_spread(p, 2);
            plan_destroy(p);
        }
    for (int zero = 1; zero <= 3; zero++) { /* stages of two slices each; ranks of one slice, and no others, share its state */
        static const int64_t limit[TIERS] = {INT64_MAX, INT64_MAX, INT64_MAX};
        struct plan_request s;
        cell_settings(&s, 60, F32);
        s.mesh = (struct mesh){{[MESH_DP] = zero, [MESH_TP] = 2, [MESH_PP] = 2, [MESH_SLICES] = zero}};
        s.row_chunk = 16;
        s.zero = zero;
        s.grad_accum = 2;
        s.batch = 2 * zero;
        if (plan_stages_create(m, &s, 1, limit, &p) != OK || plan_verify_ranks(p) != OK)
            fail_msg("two slices of two stages, zero %d: %s", zero, status_message());
        assert_true(p->fits && plan_n_roles(p) == 2 && p->strategy.ranks == 4 * zero);
        plan_destroy(p);
    }
    plan_pipeline(m, 3, 1, 3, 0, &p);
    struct program **of = plan_of_role(p, 0)->programs == p->programs ? p->programs : p->roles->of[0].plan->programs;
    struct op_attrs *a = shift_of(of[PLAN_BACKWARD_MORE]);
    a->comm.distance = -1;
    assert_int_equal(plan_verify_ranks(p), ERR_CORRUPT);
    a->comm.distance = 1;
    a->comm.recv_if--;
    assert_int_equal(plan_verify_ranks(p), ERR_CORRUPT);
    a->comm.recv_if++;
    assert_int_equal(plan_verify_ranks(p), OK);
    struct program *pass = of[PLAN_PASS_FORWARD];
    of[PLAN_PASS_FORWARD] = of[PLAN_PASS_BACKWARD];
    of[PLAN_PASS_BACKWARD] = pass;
    assert_int_equal(plan_verify_ranks(p), ERR_CORRUPT);
    of[PLAN_PASS_BACKWARD] = of[PLAN_PASS_FORWARD];
    of[PLAN_PASS_FORWARD] = pass;
    assert_int_equal(plan_verify_ranks(p), OK);
    plan_destroy(p);
    model_destroy(m);
}

/* Stages have the layers that are given; the largest one's placement holds for all, and a step takes what the slowest of each tick takes.
 * Where one stage alone does not fit, what is shown of all does not, either. */
static void given_layers(void **state)
{
    (void)state;
    int64_t limit[TIERS] = {INT64_MAX, INT64_MAX, INT64_MAX};
    struct model *m;
    struct plan *p, *even;
    struct plan_request s;
    assert_int_equal(cell_model(FAMILY_LLAMA, 8, &m), OK);
    cell_settings(&s, 60, F32);
    s.mesh.degree[MESH_PP] = 3;
    s.grad_accum = s.batch = 3;
    s.zero = 1;
    assert_int_equal(plan_stages_create(m, &s, 0, limit, &even), OK);
    s.stage_layers = (struct mesh_stages){3, {1, 5, 2}};
    if (plan_stages_create(m, &s, 0, limit, &p) != OK || plan_verify_ranks(p) != OK)
        fail_msg("%s", status_message());
    assert_true(p->fits && plan_n_roles(p) == 3);
    const int64_t layers[] = {1, 5, 2};
    for (int i = 0; i < 3; i++)
        assert_int_equal(p->roles->of[i].made->config.layers, layers[i]);
    assert_true(p->seconds == plan_of_role(p, 1)->seconds && p->seconds > even->seconds);
    assert_true(p->seconds < ticks_seconds(plan_of_role(p, 1)));
    const struct plan *const of[] = {plan_of_role(p, 1), plan_of_role(p, 1), plan_of_role(p, 1)};
    assert_true(ticks_seconds_of(of) == ticks_seconds(of[0]));
    const struct plan *small = p, *large = plan_of_role(p, 1);
    limit[TIER_DEVICE] = (small->arena[TIER_DEVICE] + large->arena[TIER_DEVICE]) / 2;
    plan_destroy(p);
    assert_int_equal(plan_stages_create(m, &s, 0, limit, &p), OK);
    assert_true(p->fits);
    plan_show_misfit(&p);
    assert_true(!p->fits && plan_n_roles(p) == 3);
    plan_destroy(p);
    plan_destroy(even);
    s.stage_layers.layers[1] = 4;
    assert_int_equal(plan_stages_create(m, &s, 0, limit, &p), ERR_INVALID);
    assert_string_equal(status_message(), "--stage-layers: 1,4,2 are 7 layers, and the model has 8");
    model_destroy(m);
}

/* A pipeline whose ZeRO stage is left open has stage 1 where all state fits the device, and else what is fastest; a stage that is given
 * stays. Every piece adds to the gradients in place. */
static void stages_of_zero(void **state)
{
    (void)state;
    int64_t limit[TIERS] = {INT64_MAX, INT64_MAX, INT64_MAX};
    struct model *m;
    struct plan *p;
    struct plan_request s;
    assert_int_equal(cell_model(FAMILY_LLAMA, 4, &m), OK);
    cell_settings(&s, 240, F32);
    s.mesh.degree[MESH_DP] = s.mesh.degree[MESH_PP] = 2;
    s.mesh.degree[MESH_SLICES] = 4;
    s.params = s.grads = s.optim = s.acts = s.passing = OFFLOAD_AUTO;
    s.device = DEVICE_CPU_DISCRETE;
    for (int zero = 1; zero <= 3; zero++) {
        s.zero = zero;
        assert_int_equal(plan_stages_create(m, &s, 0, limit, &p), OK);
        assert_true(p->strategy.key.zero == zero && p->zero_tried[1] == 0);
        for (int i = 0; i < p->programs[PLAN_BACKWARD_MORE]->n_instrs; i++)
            assert_true(zero > 1 || p->programs[PLAN_BACKWARD_MORE]->instrs[i].op != OP_ACCUM);
        plan_destroy(p);
    }
    s.zero = AUTO;
    assert_int_equal(plan_stages_create(m, &s, 0, limit, &p), OK);
    assert_true(p->fits && p->strategy.key.zero == 1 && p->zero_tried[1] > 0 && p->zero_tried[2] == 0);
    limit[TIER_DEVICE] = p->arena[TIER_DEVICE] * 2 / 3;
    plan_destroy(p);
    assert_int_equal(plan_stages_create(m, &s, 0, limit, &p), OK);
    assert_true(p->zero_tried[1] > 0 && p->zero_tried[2] > 0 && p->zero_tried[3] > 0);
    for (int zero = 1; zero <= 3; zero++)
        assert_true(p->zero_tried[p->strategy.key.zero] <= p->zero_tried[zero]);
    plan_destroy(p);
    model_destroy(m);
}

/* The longest sequence of stages fits, and the next longer one that was tried does not, whichever way slices are chosen. */
static void longest_of_stages(void **state)
{
    (void)state;
    const int64_t limit[TIERS] = {4 << 20, 8 << 20, 0};
    struct model *m;
    struct plan *p, *longer;
    struct plan_request s;
    assert_int_equal(cell_model(FAMILY_LLAMA, 4, &m), OK);
    cell_settings(&s, 1024, F32);
    s.params = s.grads = s.optim = s.acts = s.passing = OFFLOAD_AUTO;
    s.alpha = s.batch = s.row_chunk = s.head_tile = s.loss_tile = s.zero = AUTO;
    s.update = UPDATE_AUTO;
    s.effort = EFFORT_QUICK;
    s.stage_ahead = AUTO;
    s.mesh = mesh_uniform(AUTO);
    s.mesh.degree[MESH_PP] = 2;
    struct target target = *s.target;
    target.threads = 1; /* scratch of many threads would leave no room */
    s.target = &target;
    const struct plan_request open = s;
    if (plan_longest_stages(m, &s, 2, 2, 1, limit, &p) != OK)
        fail_msg("%s", status_message());
    assert_true(p->fits && plan_length(p) == s.seq_len && s.seq_len > LENGTH_SHORTEST);
    assert_true(p->longest.step > 0 && p->longest.longer > s.seq_len && p->longest.longer <= s.seq_len + p->longest.step);
    s = open;
    s.seq_len = p->longest.longer;
    s.zero = 3;
    assert_int_equal(plan_mesh(m, &s, 2, 2), OK);
    assert_int_equal(plan_stages_create(m, &s, 1, limit, &longer), OK);
    assert_false(longer->fits);
    plan_destroy(longer);
    plan_destroy(p);
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meshes),
        cmocka_unit_test(deviations),
        cmocka_unit_test(stages),
        cmocka_unit_test(other_roles),
        cmocka_unit_test(decisions_of_the_first),
        cmocka_unit_test(request_of_a_further_role),
        cmocka_unit_test(ticks),
        cmocka_unit_test(longest_of_stages),
        cmocka_unit_test(pipelines),
        cmocka_unit_test(given_layers),
        cmocka_unit_test(stages_of_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
