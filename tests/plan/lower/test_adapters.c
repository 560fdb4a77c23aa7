/* Tests that adapters keep no activations of tokens x rank: A x and s B^T dy exist only for the row chunk being computed, forward
 * and backward. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "plan/fit.h"
#include "plan/search/problem.h"

#include <stdlib.h>
#include <string.h>

enum {
    CHUNK = 32, /* rows */
    TILES = 7,  /* A x and s B^T dy of three maps (q, k and v), and a sum of slices */
};

static const int64_t limits[TIERS] = {AMPLE, AMPLE, AMPLE};

/* Plans Llama with adapters of all linear maps, all activations on the device or on drives. */
static struct plan *plan_of(int rank, double dropout, int64_t tokens, enum offload acts)
{
    char text[64];
    struct model *m = wide_model(FAMILY_LLAMA, 2);
    struct model_config c = m->config;
    struct plan_request s;
    struct plan *plan;
    model_destroy(m);
    snprintf(text, sizeof text, "r=%d,dropout=%g", rank, dropout);
    assert_int_equal(lora_parse("--lora", text, &c.lora), OK);
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    cell_settings(&s, tokens, F32);
    s.lora = c.lora;
    s.acts = acts;
    s.row_chunk = CHUNK;
    s.effort = EFFORT_QUICK;
    if (plan_create(m, &s, limits, &plan) != OK)
        fail_msg("%s", status_message());
    assert_true(plan->fits && plan->strategy.key.row_chunk == CHUNK);
    model_destroy(m);
    return plan;
}

/* First and last use of a buffer, in the order of the instructions. */
struct span {
    int first, last;
};

/* Returns the most bytes of buffers with spans that are alive at one instruction. */
static int64_t most_alive(const struct program *p, const struct span *span)
{
    int64_t most = 0;
    for (int i = 0; i < p->n_instrs; i++) {
        int64_t alive = 0;
        for (int b = 0; b < p->n_buffers; b++)
            alive += span[b].first <= i && i <= span[b].last ? round_up(p->buffers[b].bytes, BUFFER_ALIGN) : 0;
        most = alive > most ? alive : most;
    }
    return most;
}

/* Checks that every operand with `rank` columns is in a separate buffer that no program keeps. Counts these operands by phase. */
static void check_tiles(const struct program *p, int rank, int64_t seen[PHASES])
{
    struct span *span = malloc((size_t)p->n_buffers * sizeof *span);
    for (int b = 0; b < p->n_buffers; b++)
        span[b] = (struct span){p->n_instrs, -1};
    for (int i = 0; i < p->n_instrs; i++)
        for (int k = 0; k < p->instrs[i].n_operands; k++) {
            const struct operand *o = &p->operands[p->instrs[i].first_operand + k];
            if (o->tensor < 0 || strncmp(p->tensors[o->tensor].name, "adapter.", 8) != 0 ||
                strstr(p->tensors[o->tensor].name, "mask"))
                continue;
            const struct buffer *b = &p->buffers[o->buffer];
            if (b->persistent || b->tier != TIER_DEVICE || b->bytes > round_up((int64_t)CHUNK * rank * 4, BUFFER_ALIGN))
                fail_msg("%s: %s is in %lld bytes of the %s%s", p->name, p->tensors[o->tensor].name, (long long)b->bytes,
                         tier_name(b->tier), b->persistent ? ", which stay" : "");
            seen[p->instrs[i].phase]++;
            span[o->buffer].first = span[o->buffer].first < i ? span[o->buffer].first : i;
            span[o->buffer].last = i;
        }
    assert_true(most_alive(p, span) <= TILES * round_up((int64_t)CHUNK * rank * 4, BUFFER_ALIGN));
    for (int i = 0; i < p->n_live_in + p->n_live_out; i++) {
        const struct binding *b = i < p->n_live_in ? &p->live_in[i] : &p->live_out[i - p->n_live_in];
        assert_null(strstr(p->tensors[b->tensor].name, "adapter."));
    }
    free(span);
}

static void tiles_at_work(void **state)
{
    (void)state;
    enum { RANK = 64 };
    for (int k = 0; k < 4; k++) {
        struct plan *plan = plan_of(RANK, k & 1 ? 0.1 : 0, 1024, k & 2 ? OFFLOAD_NVME : OFFLOAD_NONE);
        int64_t seen[PHASES] = {0};
        for (int i = 0; i < PLAN_PROGRAMS; i++)
            if (plan->programs[i])
                check_tiles(plan->programs[i], RANK, seen);
        assert_true(seen[PHASE_FORWARD] > 0 && seen[PHASE_BACKWARD] > 0);
        plan_destroy(plan);
    }
}

/* A larger rank needs more memory for activations only for those tiles, whatever the length of sequences. */
static void no_memory_of_tokens(void **state)
{
    (void)state;
    enum { SMALL = 4, LARGE = 64 };
    for (int64_t tokens = 256; tokens <= 1024; tokens *= 4)
        for (int drives = 0; drives < 2; drives++) {
            struct plan *small = plan_of(SMALL, 0, tokens, drives ? OFFLOAD_NVME : OFFLOAD_NONE);
            struct plan *large = plan_of(LARGE, 0, tokens, drives ? OFFLOAD_NVME : OFFLOAD_NONE);
            for (int t = 0; t < TIERS; t++) {
                const int64_t kept = large->peak[t][CLASS_ACT] - small->peak[t][CLASS_ACT],
                              work = large->peak[t][CLASS_WORK] - small->peak[t][CLASS_WORK];
                assert_int_equal(kept, 0);
                assert_true(work <= (t == TIER_DEVICE ? TILES * round_up((int64_t)CHUNK * LARGE * 4, BUFFER_ALIGN) : 0));
            }
            plan_destroy(small);
            plan_destroy(large);
        }
}

/* A model of 12 layers, of which adapters or --freeze leave some to be trained. */
struct some {
    const char *lora, *freeze[3];
};

static void open_some(const struct some *x, struct plan_request *s, struct model **m)
{
    struct model *plain = wide_model(FAMILY_LLAMA, 12);
    struct model_config c = plain->config;
    cell_settings(s, 256, F32);
    model_destroy(plain);
    if (x->lora)
        assert_int_equal(lora_parse("--lora", x->lora, &c.lora), OK);
    s->lora = c.lora;
    for (s->freeze.n = 0; s->freeze.n < 3 && x->freeze[s->freeze.n]; s->freeze.n++)
        s->freeze.item[s->freeze.n] = (char *)x->freeze[s->freeze.n];
    s->params = s->grads = s->optim = s->acts = s->passing = OFFLOAD_AUTO;
    s->effort = EFFORT_QUICK;
    assert_int_equal(model_create(&c, x->freeze, s->freeze.n, m), OK);
}

/* Checks that the shortened model's names are those of trained layers. */
static void stands_for(const struct model *m, const struct plan_request *s)
{
    enum { LAYERS = 3 };
    struct problem p;
    struct model *few;
    int of_kind[MODEL_KINDS];
    problem_set(&p, m, s, limits);
    for (int closed_form = 0; closed_form < 2; closed_form++) {
        assert_int_equal(closed_form ? problem_few(&p, LAYERS, 0, 0, of_kind, &few) : problem_shortened(&p, LAYERS, &few), OK);
        assert_true(few->trained_params > 0 && few->config.layers == LAYERS);
        model_destroy(few);
    }
}

/* Plans are found wherever the trained layers are, though trials have fewer layers than the numbers in names. */
static void some_layers_trained(void **state)
{
    (void)state;
    static const struct some of[] = {{"r=2,layers-to-transform=11", {NULL}},
                                     {"r=2,targets=q_proj,layers-to-transform=5,6", {NULL}},
                                     {"r=2,layers-to-transform=0", {NULL}},
                                     {NULL, {"model.layers.7.*"}},
                                     {NULL, {"model.layers.[!9].*", "model.layers.1?.*", "[!m]*"}},
                                     {NULL, {"model.[!l]*", "lm_head*", "model.layers.[1-9]*"}}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct plan_request s;
        struct model *m;
        struct plan *plan;
        open_some(&of[i], &s, &m);
        stands_for(m, &s);
        if (plan_create(m, &s, limits, &plan) != OK)
            fail_msg("%s", status_message());
        assert_true(plan->fits);
        plan_destroy(plan);
        model_destroy(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiles_at_work), cmocka_unit_test(no_memory_of_tokens),
                                       cmocka_unit_test(some_layers_trained)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
