/* Tests programs for several ranks: they pass the verifier for all meshes, stages and placements, and send as many bytes as the
 * formulas say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "extent.h"
#include "plan/cells.h"
#include "plan/lower/groups.h"
#include "plan/lower/mesh.h"
#include "plan/roles.h"
#include "seqpar/layouts.h"
#include "verify/verify.h"
#include "seqpar/volumes.h"

#include <stdlib.h>
#include <string.h>

enum { S = 210 }; /* not a multiple of the degrees of any mesh here */

static const struct shape {
    int dp, ulysses, ring;
} SHAPES[] = {{1, 1, 1}, {2, 1, 1}, {3, 1, 1}, {1, 2, 1}, {1, 4, 1}, {1, 1, 2},
              {1, 1, 3}, {1, 2, 2}, {2, 2, 1}, {2, 1, 2}, {1, 4, 2}};
#define N_SHAPES ((int)(sizeof SHAPES / sizeof *SHAPES))

static void mesh_settings(struct plan_request *s, const struct shape *m, int zero, enum dtype dtype)
{
    cell_settings(s, S, dtype);
    s->mesh.degree[MESH_DP] = m->dp;
    s->mesh.degree[MESH_ULYSSES] = m->ulysses;
    s->mesh.degree[MESH_RING] = m->ring;
    s->zero = zero;
    s->head_tile = m->ring > 1 ? AUTO : 1;
}

static struct plan *planned(const struct model *m, const struct plan_request *s)
{
    static const int64_t limit[TIERS] = {INT64_MAX, INT64_MAX, INT64_MAX};
    struct plan *plan = NULL;
    if (plan_create(m, s, limit, &plan) != OK)
        fail_msg("dp=%d ulysses=%d ring=%d zero=%d: %s", s->mesh.degree[MESH_DP], s->mesh.degree[MESH_ULYSSES],
                 s->mesh.degree[MESH_RING], s->zero, status_message());
    return plan;
}

static void all_verify(const struct plan *plan, const struct plan_request *s, const struct cell *c)
{
    for (int k = 0; k < PLAN_PROGRAMS; k++)
        if (plan->programs[k] && program_verify(plan->programs[k]) != OK)
            fail_msg("dp=%d ulysses=%d ring=%d zero=%d %s: %s", s->mesh.degree[MESH_DP], s->mesh.degree[MESH_ULYSSES],
                     s->mesh.degree[MESH_RING], s->zero, c ? cell_name(c) : "", status_message());
}

static void verified(void **state)
{
    (void)state;
    static const int accum[] = {1, 3};
    int met = 0;
    for (int f = 0; f < 2; f++) {
        struct model *m;
        assert_int_equal(cell_model(f ? FAMILY_GPT2 : FAMILY_LLAMA, 2, &m), OK);
        for (int i = 0; i < N_SHAPES; i++)
            for (int zero = 0; zero <= 3; zero++)
                for (int d = 0; d < 2; d++) {
                    struct plan_request s;
                    if (m->config.heads % SHAPES[i].ulysses || met++ % extent(5, 1, 1))
                        continue;
                    mesh_settings(&s, &SHAPES[i], zero, d ? BF16 : F32);
                    s.grad_accum = accum[(i + zero + d) % 2];
                    s.eval_every = 1;
                    struct plan *plan = planned(m, &s);
                    all_verify(plan, &s, NULL);
                    plan_destroy(plan);
                }
        model_destroy(m);
    }
}

/* Programs with random placements of everything are verified. */
static void verified_anywhere(void **state)
{
    (void)state;
    struct cell cells[200];
    int n = cells_covering(cells, 200, 2, 7);
    struct model *m;
    assert_int_equal(cell_model(FAMILY_LLAMA, 4, &m), OK);
    for (int k = 0; k < n; k += extent(3, 1, 1)) {
        struct plan_request s;
        mesh_settings(&s, &SHAPES[1 + k % (N_SHAPES - 1)], k % 4, k % 3 ? F32 : BF16);
        cell_apply(&cells[k], &s);
        s.grad_accum = 1 + k % 3;
        struct plan *plan = planned(m, &s);
        all_verify(plan, &s, &cells[k]);
        plan_destroy(plan);
    }
    model_destroy(m);
}

/* --- Bytes --- */

static int64_t sent(const struct program *p, enum lane lane)
{
    int64_t bytes = 0;
    for (int i = 0; i < p->n_instrs; i++)
        if (p->instrs[i].lane == lane)
            bytes += program_call(p, &p->instrs[i])->bytes;
    return bytes;
}

/* Sequence parallelism sends the bytes of the formulas: Llama with 4 heads on 2 KV heads, which recomputes q, k and v. */
static void sequence_volumes(void **state)
{
    (void)state;
    struct model *m;
    assert_int_equal(cell_model(FAMILY_LLAMA, 2, &m), OK);
    for (int i = 0; i < N_SHAPES; i++)
        for (int d = 0; d < 2; d++) {
            struct plan_request s;
            struct seq_shape shape;
            enum dtype dtype = d ? BF16 : F32;
            const struct seq_heads heads = {4, 2, 16, dtype_size(dtype)};
            mesh_settings(&s, &SHAPES[i], 3, dtype);
            s.alpha = 0;
            assert_int_equal(seq_shape_create(S, s.mesh.degree[MESH_ULYSSES], s.mesh.degree[MESH_RING], SEQ_AUTO, &shape), OK);
            struct seq_volume v = seq_volume(&shape, &heads, SEQ_RESEND_QKV);
            struct plan *plan = planned(m, &s);
            const struct program *p = plan->programs[PLAN_STEP];
            assert_int_equal(sent(p, LANE_ULYSSES), 2 * (v.all_to_all_forward + v.all_to_all_backward));
            assert_int_equal(sent(p, LANE_RING), 2 * (v.ring_forward + v.ring_backward));
            plan_destroy(plan);
        }
    model_destroy(m);
}

/* ZeRO sends the bytes of the formulas in a usual step, which includes an update, plus some small messages (norm, losses). */
static void zero_volumes(void **state)
{
    (void)state;
    struct model *m;
    assert_int_equal(cell_model(FAMILY_LLAMA, 2, &m), OK);
    for (int zero = 0; zero <= 3; zero++)
        for (int d = 0; d < 2; d++) {
            struct plan_request s;
            enum dtype dtype = d ? BF16 : F32;
            mesh_settings(&s, &SHAPES[1], zero, dtype);
            s.group = 1 << 20; /* whole units, split at the end of weight decay */
            struct plan *plan = planned(m, &s);
            const struct program *p = plan->programs[PLAN_UPDATE_STEP];
            int64_t expect = 0;
            for (int u = 0; u < m->n_units; u++) {
                int64_t decay = zero ? m->units[u].decay_elements : 0, rest = m->units[u].elements - decay;
                /* embedding and head are gathered once a step, layers once for each pass */
                int passes = zero == 3 && !model_unit_in_layer(m, u);
                int64_t part = seq_zero_bytes(zero, decay, 2, 0, 1, dtype_size(dtype), 4) +
                               seq_zero_bytes(zero, rest, 2, 0, 1, dtype_size(dtype), 4);
                if (passes)
                    part -= (ceil_div(decay, 2) + ceil_div(rest, 2)) * dtype_size(dtype);
                expect += part;
            }
            int64_t norms = 0;
            for (int i = 0; i < p->n_instrs; i++)
                if (p->instrs[i].lane == LANE_WORLD && program_call(p, &p->instrs[i])->attrs.comm.element == 8)
                    norms += program_call(p, &p->instrs[i])->bytes;
            assert_int_equal(sent(p, LANE_WORLD) - norms, expect);
            assert_true(norms < 4096);
            plan_destroy(plan);
        }
    model_destroy(m);
}

/* With state sharded over 2 or 4 ranks, persistent bytes shrink accordingly. */
static void shards_shrink(void **state)
{
    (void)state;
    struct model *m;
    int64_t alone[CLASSES] = {0};
    assert_int_equal(cell_model(FAMILY_LLAMA, 4, &m), OK);
    for (int ranks = 1; ranks <= 4; ranks *= 2) {
        struct plan_request s;
        mesh_settings(&s, &(struct shape){1, 1, ranks}, 3, F32);
        s.group = 1 << 20;
        struct plan *plan = planned(m, &s);
        static const enum tensor_class classes[] = {CLASS_PARAM, CLASS_GRAD, CLASS_OPTIM};
        for (int i = 0; i < 3; i++) {
            int64_t bytes = plan->persistent[TIER_DEVICE][classes[i]], slack = BUFFER_ALIGN * 3 * m->n_units;
            if (ranks == 1)
                alone[classes[i]] = bytes;
            assert_true(bytes <= alone[classes[i]] / ranks + slack && bytes >= (alone[classes[i]] - slack) / ranks);
        }
        plan_destroy(plan);
    }
    model_destroy(m);
}

/* --- Degrees --- */

static void degrees(void **state)
{
    (void)state;
    struct model *m;
    struct plan_request s;
    assert_int_equal(cell_model(FAMILY_LLAMA, 2, &m), OK); /* 4 heads on 2 KV heads */
    static const struct {
        struct shape given;
        int ranks, dp, ulysses, ring; /* dp 0: an error is expected */
    } cases[] = {
        {{2, AUTO, 2}, 8, 2, 2, 2},    {{AUTO, 2, 2}, 8, 2, 2, 2},    {{1, 4, AUTO}, 8, 1, 4, 2},
        {{8, AUTO, AUTO}, 8, 8, 1, 1}, {{3, AUTO, AUTO}, 8, 0, 0, 0}, {{1, 8, 1}, 8, 0, 0, 0},
        {{2, 2, 1}, 8, 0, 0, 0},       {{1, 3, AUTO}, 8, 0, 0, 0},    {{1, 1, AUTO}, 1024, 1, 1, 1024},
        {{1, 1, AUTO}, 1025, 0, 0, 0}, /* the longest ring is 1024 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mesh_settings(&s, &cases[i].given, 3, F32);
        enum status st = plan_mesh(m, &s, cases[i].ranks, cases[i].ranks);
        if (cases[i].dp == 0) {
            assert_int_equal(st, ERR_INVALID);
            continue;
        }
        assert_int_equal(st, OK);
        assert_int_equal(s.mesh.degree[MESH_DP], cases[i].dp);
        assert_int_equal(s.mesh.degree[MESH_ULYSSES], cases[i].ulysses);
        assert_int_equal(s.mesh.degree[MESH_RING], cases[i].ring);
    }
    /* a deep model's programs would exceed their tables; the alternative that the error names is accepted */
    struct model *deep;
    assert_int_equal(cell_model(FAMILY_LLAMA, 32, &deep), OK);
    mesh_settings(&s, &(struct shape){AUTO, 1, AUTO}, 3, F32);
    assert_int_equal(plan_mesh(deep, &s, 1024, 1024), ERR_INVALID);
    assert_non_null(strstr(status_message(), "a ring of 1024 ranks is longer than the 682 that are planned for 32 layers"));
    assert_non_null(strstr(status_message(), "--mesh dp=2"));
    mesh_settings(&s, &(struct shape){2, 1, AUTO}, 3, F32);
    assert_int_equal(plan_mesh(deep, &s, 1024, 1024), OK);
    assert_int_equal(s.mesh.degree[MESH_RING], 512);
    mesh_settings(&s, &(struct shape){AUTO, 1, AUTO}, 3,
                  F32); /* with open degrees the request is legal, too, if the batch has as many sequences */
    s.batch = 4;
    assert_int_equal(plan_mesh(deep, &s, 1024, 1024), OK);
    assert_int_equal(s.mesh.degree[MESH_DP], 2);
    assert_int_equal(s.grad_accum, 2);
    model_destroy(deep);
    mesh_settings(&s, &(struct shape){2, 1, 1}, 3, F32);
    s.batch = 5;
    assert_int_equal(plan_mesh(m, &s, 2, 2), OK);
    assert_int_equal(s.grad_accum, 3);
    mesh_settings(&s, &(struct shape){4, 1, 1}, 3, F32);
    s.batch = 3;
    assert_int_equal(plan_mesh(m, &s, 4, 4), ERR_INVALID);
    assert_non_null(
        strstr(status_message(), "--batch: 3 sequences a step for the 4 data-parallel groups of dp=4 would leave 1 of them"));
    assert_non_null(strstr(status_message(), "take --batch 4 or a multiple, or one of --mesh dp=1, 2"));
    mesh_settings(&s, &(struct shape){2, 1, 1}, 3, F32);
    s.grad_accum = 3;
    s.batch = AUTO;
    assert_int_equal(plan_mesh(m, &s, 2, 2), OK);
    assert_int_equal(s.batch, 6);
    s.batch = AUTO;
    s.grad_accum = SETTINGS_MOST_SEQUENCES;
    assert_int_equal(plan_mesh(m, &s, 2, 2), ERR_INVALID);
    assert_non_null(strstr(status_message(), "sequences on each of 2 data-parallel ranks are more than the 1048576"));
    model_destroy(m);
}

/* Settings leave open the right meshes of 4 ranks, two on a host. */
static void open_meshes(void **state)
{
    (void)state;
    struct model *m;
    struct plan_request s;
    struct mesh found[16];
    assert_int_equal(cell_model(FAMILY_LLAMA, 2, &m), OK); /* 4 heads on 2 KV heads */
    static const struct {
        struct shape given;
        int64_t batch;
        int per_host, n; /* ranks per host; number of open meshes, 0: the mesh is not open */
    } cases[] = {
        {{AUTO, AUTO, AUTO}, 4, 4, 6},    {{AUTO, AUTO, AUTO}, 4, 2, 5}, /* a ulysses=4 group would be on two hosts */
        {{AUTO, AUTO, AUTO}, 3, 4, 5},    {{AUTO, AUTO, AUTO}, 1, 4, 3}, /* there are not more data-parallel groups than sequences */
        {{AUTO, AUTO, AUTO}, AUTO, 4, 3}, {{2, AUTO, AUTO}, 4, 4, 2},    /* without a batch dp stays 1 */
        {{AUTO, 2, AUTO}, 4, 4, 2},       {{AUTO, AUTO, 1}, 4, 4, 3},    {{AUTO, 2, 1}, 4, 4, 0}, {{1, 2, 2}, 4, 4, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mesh_settings(&s, &cases[i].given, 3, F32);
        s.batch = cases[i].batch;
        assert_int_equal(plan_mesh(m, &s, 4, cases[i].per_host), OK);
        assert_int_equal(s.open_degrees != 0, cases[i].n > 0);
        if (cases[i].n == 0)
            continue;
        const int n = plan_meshes(m, &s, found, 16);
        int own = 0;
        assert_int_equal(n, cases[i].n);
        for (int k = 0; k < n; k++) {
            struct plan_request taken = s;
            plan_take_mesh(&taken, &found[k], 1);
            assert_int_equal(mesh_ranks(&taken.mesh), 4);
            assert_int_equal(taken.grad_accum, ceil_div(s.batch, taken.mesh.degree[MESH_DP]));
            own += mesh_equal(&found[k], &s.mesh);
        }
        assert_int_equal(own, 1);
    }
    model_destroy(m);
}

/* The groups of every lane divide the ranks, and a rank's index in its group follows from the lane's dimensions alone. */
static void lanes(void **state)
{
    (void)state;
    enum { SHARING = 3 * 4 * 2, PLACES = 2 * SHARING * 5 };
    const struct mesh mesh = {{[MESH_DP] = 3, [MESH_ULYSSES] = 4, [MESH_RING] = 2, [MESH_TP] = 2, [MESH_PP] = 5, [MESH_EP] = 6}};
    const int members[COMM_LANES] = {[LANE_WORLD - LANE_WORLD] = PLACES,
                                     [LANE_ULYSSES - LANE_WORLD] = 4,
                                     [LANE_RING - LANE_WORLD] = 2,
                                     [LANE_EP - LANE_WORLD] = 6,
                                     [LANE_EXPERTS - LANE_WORLD] = 2 * SHARING / 6,
                                     [LANE_TP - LANE_WORLD] = 2,
                                     [LANE_ZERO - LANE_WORLD] = SHARING,
                                     [LANE_STAGE - LANE_WORLD] = 2 * SHARING,
                                     [LANE_PP - LANE_WORLD] = 5,
                                     [LANE_SEQUENCE - LANE_WORLD] = 8};
    const int strides[COMM_LANES] = {[LANE_WORLD - LANE_WORLD] = 1,        [LANE_ULYSSES - LANE_WORLD] = 2,
                                     [LANE_RING - LANE_WORLD] = 8,         [LANE_EP - LANE_WORLD] = 1,
                                     [LANE_EXPERTS - LANE_WORLD] = 6,      [LANE_TP - LANE_WORLD] = 1,
                                     [LANE_ZERO - LANE_WORLD] = 2,         [LANE_STAGE - LANE_WORLD] = 1,
                                     [LANE_PP - LANE_WORLD] = 2 * SHARING, [LANE_SEQUENCE - LANE_WORLD] = 2};
    for (int l = LANE_WORLD; l < LANES; l++) {
        int taken[PLACES] = {0};
        for (int place = 0; place < PLACES; place++) {
            const struct mesh_group g = mesh_group_of(&mesh, (enum lane)l, place);
            assert_int_equal(g.members, members[lane_comm((enum lane)l)]);
            assert_int_equal(g.members, mesh_members(&mesh, (enum lane)l));
            assert_int_equal(g.stride, strides[lane_comm((enum lane)l)]); /* ranks that exchange heads stand beside each other */
            assert_int_equal(g.first + g.member * g.stride, place);
            assert_int_equal(mesh_group_of(&mesh, (enum lane)l, g.first).member, 0);
            assert_int_equal(mesh_group_of(&mesh, (enum lane)l, g.first).first, g.first);
            taken[g.first + g.member * g.stride]++;
        }
        for (int place = 0; place < PLACES; place++)
            assert_int_equal(taken[place], 1);
    }
}

/* --- Experts that ranks share out --- */

enum { EXPERTS = 8, USED = 3, LAYERS_SHARED = 2 };

static struct model *model_with_experts(int experts)
{
    struct model_config c;
    struct model *m;
    assert_int_equal(model_preset("moe-20m", &c), OK);
    c.vocab = 96;
    c.dim = 64;
    c.heads = c.kv_heads = 4;
    c.head_dim = 16;
    c.layers = LAYERS_SHARED;
    c.experts = experts;
    c.experts_used = USED;
    c.expert_ffn = c.ffn = 24;
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    return m;
}

/* Bytes that a rank sends of a message that has `bytes` bytes for all members. */
static int64_t apart(int64_t bytes, int ep)
{
    return bytes / ep * (ep - 1);
}

/* Returns the bytes of a step's messages to and from experts, which are equally busy: rows and weights, results; again in the
 * backward pass, with the gradients of results, of rows and of weights; and each time the offsets. */
static int64_t bytes_to_experts(const struct strategy *s, int ep)
{
    int64_t bytes = 0;
    for (int64_t at = 0; at < s->rows; at += s->key.row_chunk) {
        const int64_t pairs = min_i64(s->key.row_chunk, s->rows - at) * USED, row = 64 * dtype_size(s->key.dtype);
        bytes += 5 * apart(pairs * row, ep) + 3 * apart(pairs * 4, ep) + 2 * (ep - 1) * (EXPERTS + 1) * 4;
    }
    return LAYERS_SHARED * bytes;
}

static struct instr *first_of(struct program *p, enum op_kind op)
{
    int i = 0;
    while (p->instrs[i].op != op)
        i++;
    return &p->instrs[i];
}

/* Every fault of an instruction by which rows travel is rejected. */
static void faults_are_rejected(struct program *p, enum op_kind op)
{
    struct instr *in = first_of(p, op);
    struct op_attrs *a = &program_call(p, in)->attrs;
    const struct op_attrs sound = *a;
    assert_int_equal(program_verify(p), OK);
    a->comm.share++;
    assert_int_equal(program_verify(p), ERR_CORRUPT);
    *a = sound;
    a->comm.n--;
    assert_int_equal(program_verify(p), ERR_CORRUPT);
    *a = sound;
    a->comm.type += 2;
    assert_int_equal(program_verify(p), ERR_CORRUPT);
    *a = sound;
    a->comm.element /= 2;
    assert_int_equal(program_verify(p), ERR_CORRUPT);
    *a = sound;
    in->lane = LANE_WORLD;
    assert_int_equal(program_verify(p), ERR_CORRUPT);
    in->lane = LANE_EP;
    assert_int_equal(program_verify(p), OK);
}

/* Returns the number of a rank's groups of experts, of which the norm's sums travel if nothing is sharded. */
static int64_t groups_of_experts(const struct model *m, const struct strategy *s)
{
    int64_t n = 0;
    for (int u = 0; u < m->n_units; u++)
        n += model_unit_has_experts(m, u) ? plan_groups(m, s, u, m->units[u].trained_elements) : 0;
    return n;
}

/* Meshes with experts shared out are verified at every stage, rows take the bytes of the formula, and ranks with the same
 * experts share their state. */
static void experts_shared(void **state)
{
    (void)state;
    static const int meshes[][4] = {{2, 1, 1, 2}, {4, 1, 1, 2}, {1, 2, 2, 4}, {2, 1, 2, 2}, {1, 4, 1, 4}};
    struct model *m = model_with_experts(EXPERTS);
    for (int i = 0; i < 5; i++)
        for (int zero = 0; zero <= 3; zero++) {
            struct plan_request s;
            const int ep = meshes[i][3];
            mesh_settings(&s, &(struct shape){meshes[i][0], meshes[i][1], meshes[i][2]}, zero, zero % 2 ? BF16 : F32);
            s.mesh.degree[MESH_EP] = ep;
            s.eval_every = 1;
            struct plan *plan = planned(m, &s);
            struct program *step = plan->programs[PLAN_UPDATE_STEP];
            all_verify(plan, &s, NULL);
            assert_int_equal(plan_verify_ranks(plan), OK);
            assert_int_equal(sent(step, LANE_EP) - (zero == 0 ? (ep - 1) * 8 * groups_of_experts(m, &plan->strategy) : 0),
                             bytes_to_experts(&plan->strategy, ep));
            assert_int_equal(sent(step, LANE_EXPERTS) > 0, mesh_ranks(&s.mesh) > ep);
            if (i == 0 && zero == 3) {
                faults_are_rejected(step, OP_DISPATCH);
                faults_are_rejected(step, OP_RETURN);
            }
            plan_destroy(plan);
        }
    model_destroy(m);
}

static void refuses_experts(const struct model *m, int ranks, int ep, const char *words)
{
    struct plan_request s;
    mesh_settings(&s, &(struct shape){ranks, 1, 1}, 3, F32);
    s.mesh.degree[MESH_EP] = ep;
    assert_int_equal(plan_mesh(m, &s, ranks, ranks), ERR_INVALID);
    if (!strstr(status_message(), words))
        fail_msg("%s", status_message());
}

static void degrees_of_experts(void **state)
{
    (void)state;
    struct model *m = model_with_experts(6), *dense;
    refuses_experts(m, 4, 3, "--mesh: ep=3 does not divide the 4 ranks");
    refuses_experts(m, 4, 4, "--mesh: ep=4 does not divide the model's 6 experts: take ep=2, 3, 6");
    assert_int_equal(cell_model(FAMILY_LLAMA, 2, &dense), OK);
    refuses_experts(dense, 2, 2, "has none: leave ep out");
    model_destroy(dense);
    model_destroy(m);
}

/* Planning may share experts out between whole layers, and not beside slices of layers, which have all experts. */
static void open_experts(void **state)
{
    (void)state;
    struct model *m, *normed = model_with_experts(EXPERTS);
    struct model_config c = normed->config;
    c.family = FAMILY_MIXTRAL; /* without norms over all heads, which slices do not have */
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    for (int tp = 1; tp <= 2; tp++) {
        struct plan_request s;
        mesh_settings(&s, &(struct shape){AUTO, AUTO, AUTO}, 3, F32);
        s.batch = 4;
        s.mesh.degree[MESH_EP] = AUTO;
        s.mesh.degree[MESH_TP] = tp;
        assert_int_equal(plan_mesh(m, &s, 4, 4), OK);
        assert_int_equal(s.open_degrees >> MESH_EP & 1, tp == 1);
    }
    model_destroy(m);
    model_destroy(normed);
}

/* Slices divide heads and row chunks, and go with settings whose bits do not depend on them. */
static void degrees_of_slices(void **state)
{
    struct model *m;
    struct plan_request s;
    (void)state;
    assert_int_equal(cell_model(FAMILY_LLAMA, 2, &m), OK);
    for (int fault = 0; fault < 4; fault++) {
        static const char *const words[] = {NULL, "--optim-dtype bf16 with --mesh tp=2",
                                            "rows=33 is not divided by tp=2: take rows=34", "ranks"};
        mesh_settings(&s, &(struct shape){2, 1, 1}, 3, F32);
        s.mesh.degree[MESH_TP] = fault == 3 ? 3 : 2;
        s.optim_dtype = fault == 1 ? BF16 : F32;
        s.row_chunk = fault == 2 ? 33 : 0;
        const enum status st = plan_mesh(m, &s, 4, 4);
        assert_int_equal(st, words[fault] ? ERR_INVALID : OK);
        if (words[fault] && !strstr(status_message(), words[fault]))
            fail_msg("%s", status_message());
    }
    model_destroy(m);
}

/* Planning may put together a group's sequences, halved again and again; a balancing loss, which would become another one, forbids it.
 * A resumed run's number is lowered where a group has fewer sequences. */
static void packings(void **state)
{
    (void)state;
    static const int64_t of_six[] = {1, 2, 3, 6, 0}, of_three[] = {1, 2, 3, 0};
    struct model *m;
    struct plan_request s, t;
    mesh_settings(&s, &(struct shape){AUTO, AUTO, AUTO}, 3, F32);
    assert_int_equal(cell_model(FAMILY_LLAMA, 2, &m), OK);
    s.batch = 6;
    s.micro_batch = AUTO;
    t = s;
    assert_int_equal(plan_mesh(m, &t, 1, 1), OK);
    assert_true(t.packing_is_open && t.micro_batch == 1);
    for (int i = 0; i < 5; i++)
        assert_int_equal(plan_packing(&t, &t.mesh, i), of_six[i]);
    t = s;
    t.mesh.degree[MESH_DP] = 2;
    assert_int_equal(plan_mesh(m, &t, 2, 2), OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(plan_packing(&t, &t.mesh, i), of_three[i]);
    t.micro_batch = 6;
    assert_int_equal(plan_mesh(m, &t, 2, 2), ERR_INVALID);
    t.packing_is_recalled = 1;
    assert_int_equal(plan_mesh(m, &t, 2, 2), OK);
    assert_true(t.micro_batch == 3 && t.grad_accum == 1 && !t.packing_is_open);
    model_destroy(m);
    m = model_with_experts(EXPERTS);
    m->config.router_aux = 0.01;
    m->config.router_aux_used = 1;
    t = s;
    assert_int_equal(plan_mesh(m, &t, 1, 1), OK);
    assert_true(!t.packing_is_open && t.micro_batch == 1);
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lanes),
                                       cmocka_unit_test(degrees_of_slices),
                                       cmocka_unit_test(experts_shared),
                                       cmocka_unit_test(degrees_of_experts),
                                       cmocka_unit_test(open_experts),
                                       cmocka_unit_test(open_meshes),
                                       cmocka_unit_test(verified),
                                       cmocka_unit_test(verified_anywhere),
                                       cmocka_unit_test(sequence_volumes),
                                       cmocka_unit_test(zero_volumes),
                                       cmocka_unit_test(shards_shrink),
                                       cmocka_unit_test(degrees),
                                       cmocka_unit_test(packings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
