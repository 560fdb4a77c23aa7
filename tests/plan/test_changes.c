/* What a refusal suggests does fit, and nothing that was left out would be less slow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/units.h"
#include "machine/hardware.h"
#include "plan/cells.h"
#include "plan/report/advise.h"
#include "plan/report/advise_text.h"
#include "plan/report/proposals.h"
#include "plan/search/probe.h"

#include <math.h>
#include <stdlib.h>

enum { AMPLE = 1 << 30 };

static struct model *model_for(void)
{
    struct model *m;
    assert_int_equal(cell_model(FAMILY_LLAMA, 2, &m), OK);
    return m;
}

static struct plan *plan_for(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS])
{
    struct plan *plan;
    if (plan_create(m, s, limit, &plan) != OK)
        fail_msg("%s", status_message());
    return plan;
}

/* Types the flags in. */
static void apply(const char *flags, struct plan_request *s)
{
    char text[128], *next = NULL;
    snprintf(text, sizeof text, "%s", flags);
    for (char *flag = strtok_r(text, " ", &next); flag; flag = strtok_r(NULL, " ", &next)) {
        const char *value = strtok_r(NULL, " ", &next);
        assert_non_null(value);
        if (strcmp(flag, "--offload") == 0 && strcmp(value, "auto") == 0)
            s->params = s->grads = s->optim = s->acts = s->passing = OFFLOAD_AUTO;
        else if (strcmp(flag, "--alpha") == 0 && strcmp(value, "auto") == 0)
            s->alpha = AUTO;
        else if (strcmp(flag, "--prefetch") == 0 && strcmp(value, "auto") == 0)
            s->prefetch = AUTO;
        else if (strcmp(flag, "--update") == 0 && strcmp(value, "auto") == 0)
            s->update = UPDATE_AUTO;
        else if (strcmp(flag, "--keep-inputs") == 0)
            s->keep_inputs = strcmp(value, "auto") == 0 ? AUTO : atoi(value);
        else if (strcmp(flag, "--dtype") == 0 && strcmp(value, "bf16") == 0)
            s->dtype = BF16;
        else if (strcmp(flag, "--tiles") == 0 && strcmp(value, "auto") == 0)
            s->row_chunk = s->head_tile = s->loss_tile = s->group = AUTO;
        else if (strcmp(flag, "--seq-len") == 0)
            assert_int_equal(units_parse_count(flag, value, &s->seq_len), OK);
        else
            fail_msg("nobody knows '%s %s'", flag, value);
    }
}

/* Each with the figures that were said, the first one's exactly; the fastest first. */
static void check_all(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS], const struct changes *c)
{
    for (int i = 0; i < c->n; i++) {
        const struct change *x = &c->by_cost[i];
        struct plan_request changed = *s;
        apply(x->say, &changed);
        struct plan *plan = plan_for(m, &changed, limit);
        if (!plan->fits)
            fail_msg("'%s' does not fit", x->say);
        assert_int_equal(x->exact, i == 0);
        if (i == 0) {
            assert_true(plan->seconds == x->seconds);
            assert_memory_equal(plan->arena, x->arena, sizeof x->arena);
        } else if (x->seconds < 0.65 * plan->seconds || x->seconds > 1.2 * plan->seconds) /* one program's trials: a whole
                                                                            set may have to fetch later */
            fail_msg("'%s' is said to take %g s and takes %g s", x->say, x->seconds, plan->seconds);
        if (i > 1 && c->by_cost[i - 1].shortens == x->shortens && !x->shortens)
            assert_true(c->by_cost[i - 1].seconds <= x->seconds);
        plan_destroy(plan);
    }
}

/* All ways to leave what is fixed to the planner; the fastest of them that fits. */
static double best_by_hand(const struct model *m, const struct plan_request *s, const int64_t limit[TIERS])
{
    static const char *const flags[] = {"--offload auto", "--alpha auto", "--offload auto --alpha auto"};
    double best = 1e300;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        struct plan_request changed = *s;
        apply(flags[i], &changed);
        struct plan *plan = plan_for(m, &changed, limit);
        if (plan->fits && plan->seconds < best)
            best = plan->seconds;
        plan_destroy(plan);
    }
    return best;
}

/* Everything resident, in ever less memory: another offload, then smaller tiles or storage, then a shorter sequence. */
static void refusals(void **state)
{
    (void)state;
    struct model *m = model_for();
    int placements = 0, numerics = 0, lengths = 0;
    /* device: of what everything resident needs, which the attention kernels' workspace has a part in: with AMX, or without
     * AVX-512, bf16 helps further */
    static const struct {
        int64_t tokens, rows;
        double device;
    } cases[] = {{256, 128, 0.75},  {256, 128, 0.54},  {256, 128, 0.5},   {256, 128, 0.46}, {1024, 512, 0.26},
                 {1024, 512, 0.24}, {1024, 512, 0.21}, {1024, 512, 0.18}, {256, 128, 0.02}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE};
        struct plan_request s;
        struct changes c;
        cell_settings(&s, cases[i].tokens, F32);
        s.row_chunk = cases[i].rows;
        s.loss_tile = cases[i].rows / 2;
        struct plan *plan = plan_for(m, &s, limit);
        limit[TIER_DEVICE] = (int64_t)(cases[i].device * (double)plan->arena[TIER_DEVICE]);
        plan_destroy(plan);
        plan = plan_for(m, &s, limit);
        assert_int_equal(plan->fits, 0);
        assert_int_equal(changes_find(plan, m, &s, &c), OK);
        check_all(m, &s, limit, &c);
        double by_hand = best_by_hand(m, &s, limit);
        if (by_hand < 1e300)
            assert_true(c.n > 0 && c.by_cost[0].seconds <= 1.01 * by_hand); /* fewer flags are said for 1% */
        assert_int_equal(changes_refuse(plan, &s, &c), ERR_NOFIT);
        const char *sentence = status_message();
        print_message("%s\n", sentence);
        assert_true(!strstr(sentence, "slower") &&
                    !strstr(sentence, "fast")); /* what does not fit takes no time to compare with */
        for (int t = 0; t < TIERS; t++) {       /* every tier that is too small */
            char on[32];
            snprintf(on, sizeof on, " on the %s and ", tier_name((enum tier)t));
            assert_int_equal(strstr(sentence, on) != NULL, plan->arena[t] > limit[t]);
        }
        if (c.n > 0 && !strstr(sentence, c.by_cost[0].say))
            fail_msg("'%s' is not in: %s", c.by_cost[0].say, sentence);
        placements += c.n > 0 && by_hand < 1e300;
        numerics += c.n > 0 && by_hand == 1e300 && !c.by_cost[0].shortens;
        lengths += c.n > 0 && c.by_cost[0].shortens;
        if (c.n == 0) {
            assert_non_null(strstr(sentence, "nor a shorter --seq-len (even 64 tokens need "));
            assert_non_null(strstr(sentence, ": give more there (--"));
        }
        plan_destroy(plan);
    }
    print_message("refusals helped by placement %d, by rounding %d, by length %d\n", placements, numerics, lengths);
    assert_true(placements > 2 && numerics > 0 && lengths > 0);
    model_destroy(m);
}

/* Settings that the planner can better are told so; those of its own choice are not. */
static void faster(void **state)
{
    (void)state;
    struct model *m = model_for();
    struct plan_request s;
    struct changes c;
    const int64_t limit[TIERS] = {AMPLE, AMPLE, AMPLE};
    cell_settings(&s, 512, F32);
    s.device = DEVICE_CPU_DISCRETE;
    s.acts = OFFLOAD_CPU;
    s.link_gbps = 1e-3;
    struct plan *plan = plan_for(m, &s, limit);
    assert_true(plan->fits);
    assert_int_equal(changes_find(plan, m, &s, &c), OK);
    assert_true(c.n > 0 && c.by_cost[0].seconds < plan->seconds / 1.02);
    check_all(m, &s, limit, &c);
    plan_destroy(plan);
    model_destroy(m);
}

/* Every layer input is asked for, on a host that lacks room for two of them. */
static void fewer_inputs(void **state)
{
    (void)state;
    struct model *m;
    struct plan_request s;
    struct changes c;
    int64_t limit[TIERS] = {AMPLE, AMPLE, 0};
    int found = 0;
    assert_int_equal(cell_model(FAMILY_LLAMA, 6, &m), OK);
    cell_settings(&s, 512, F32);
    s.acts = OFFLOAD_CPU;
    s.alpha = 0;
    s.keep_inputs = 1;
    struct plan *plan = plan_for(m, &s, limit);
    assert_true(plan->fits);
    limit[TIER_DEVICE] = plan->arena[TIER_DEVICE];
    limit[TIER_HOST] = plan->arena[TIER_HOST] - 2 * 512 * 64 * 4; /* two layers' inputs */
    plan_destroy(plan);
    plan = plan_for(m, &s, limit);
    assert_false(plan->fits);
    assert_int_equal(changes_find(plan, m, &s, &c), OK);
    check_all(m, &s, limit, &c);
    for (int i = 0; i < c.n; i++) {
        print_message("%s: %g s\n", c.by_cost[i].say, c.by_cost[i].seconds);
        found += strncmp(c.by_cost[i].say, "--keep-inputs ", 14) == 0;
    }
    assert_true(found > 0);
    plan_destroy(plan);
    model_destroy(m);
}

/* What is looked at fits as a plan, which is as fast or a little faster. */
static void glances(void **state)
{
    (void)state;
    struct model *m = model_for();
    for (int i = 0; i < 4; i++) {
        struct plan_request s;
        struct candidate c;
        int64_t limit[TIERS] = {2500000 - 500000 * i, AMPLE, i % 2 ? AMPLE : 0};
        cell_settings(&s, 512, i % 4 < 2 ? F32 : BF16);
        s.params = s.grads = s.optim = s.acts = s.passing = OFFLOAD_AUTO;
        s.alpha = AUTO;
        s.device = DEVICE_CPU_DISCRETE;
        s.link_gbps = i % 3 ? 0 : 0.05;
        struct plan *plan = plan_for(m, &s, limit);
        assert_int_equal(glance_seconds(m, &s, limit, 0.1, &c), OK);
        assert_int_equal(c.excess <= 1, plan->fits);
        if (plan->fits && (c.seconds < 0.97 * plan->seconds || c.seconds > 1.1 * plan->seconds))
            fail_msg("case %d: a look says %g s, the plan takes %g s", i, c.seconds, plan->seconds);
        assert_int_equal(glance_fits(m, &s, limit, &c), OK);
        assert_int_equal(c.excess <= 1, plan->fits);
        print_message("%d: %s\n", i, plan->fits ? "fits" : "does not fit");
        plan_destroy(plan);
    }
    model_destroy(m);
}

/* For a machine that is not here, everything left to the planner. */
static void settings_elsewhere(struct hardware *h, struct plan_request *s)
{
    static char name[] = "a100-40";
    cell_settings(s, 1024, BF16);
    s->device = DEVICE_CUDA;
    s->machine = name;
    s->hardware = h;
    s->device_mem = s->host_mem = s->nvme_max = AUTO;
    s->row_chunk = s->head_tile = s->loss_tile = AUTO;
    s->params = s->grads = s->optim = s->acts = s->passing = OFFLOAD_AUTO;
    s->alpha = s->prefetch = AUTO;
    s->update = UPDATE_AUTO;
    assert_int_equal(hardware_preset(s->machine, h), OK);
}

/* On ever smaller devices, until nothing fits. */
static struct plan *first_misfit(const struct model *m, const struct plan_request *s, struct hardware *h)
{
    int64_t limit[TIERS];
    struct plan *plan = NULL;
    h->device_mem = 3 << 20;
    do {
        plan_destroy(plan);
        h->device_mem = h->device_mem * 7 / 8;
        hardware_limits(h, 1, limit);
        plan = plan_for(m, s, limit);
    } while (plan->fits);
    return plan;
}

/* Of a machine that is not here, what is bought: memory, devices. Asked again, it is the same. */
static void more_of_something(void **state)
{
    (void)state;
    struct model *m = model_for();
    struct plan_request s;
    struct hardware h;
    struct changes c, again;
    int memory = 0, devices = 0;
    settings_elsewhere(&h, &s);
    h.nvme_mem = h.drives = 0; /* nowhere to go but to the host */
    h.host_mem = 1 << 20;
    struct plan *plan = first_misfit(m, &s, &h);
    assert_int_equal(changes_find(plan, m, &s, &c), OK);
    assert_int_equal(changes_find(plan, m, &s, &again), OK);
    assert_memory_equal(&c, &again, sizeof c);
    for (int k = 0; k < c.n; k++) {
        print_message("%s: %g s\n", c.by_cost[k].say, c.by_cost[k].seconds);
        memory += strncmp(c.by_cost[k].say, "--host-mem ", 11) == 0;
        devices += strncmp(c.by_cost[k].say, "--machine ", 10) == 0;
    }
    assert_true(memory == 1 && devices == 1);
    plan_destroy(plan);
    model_destroy(m);
}

/* Drives that --nvme-max or --nvme none keeps away come before more devices, and fit when typed in its place. */
static void drives_kept_away(void **state)
{
    (void)state;
    static const char *const says[] = {"--nvme-max auto", "--nvme-max auto", "--nvme 1x5.95GB/s"};
    struct model *m = model_for();
    for (int i = 0; i < 3; i++) {
        struct plan_request s;
        struct hardware h;
        struct changes c;
        int64_t limit[TIERS];
        int at = -1;
        settings_elsewhere(&h, &s);
        s.nvme_max = i == 1 ? 65536 : 0;
        s.nvme_drives = i == 2 ? 0 : AUTO;
        hardware_override(&h, &s);
        h.host_mem = 1 << 20;
        struct plan *plan = first_misfit(m, &s, &h);
        int64_t device_mem = h.device_mem;
        assert_int_equal(changes_find(plan, m, &s, &c), OK);
        for (int k = 0; k < c.n; k++) {
            if (strcmp(c.by_cost[k].say, says[i]) == 0)
                at = k;
            assert_true(k == 0 || c.by_cost[k - 1].shortens || c.by_cost[k].gives_more >= c.by_cost[k - 1].gives_more ||
                        c.by_cost[k].shortens);
        }
        assert_true(at >= 0 && c.by_cost[at].gives_more == GIVES_MEMORY);
        plan_destroy(plan);
        assert_int_equal(hardware_preset(s.machine, &h), OK);
        s.nvme_max = AUTO; /* typed */
        s.nvme_drives = i == 2 ? 1 : AUTO;
        s.nvme_gbps = 5.95;
        s.device_mem = device_mem;
        s.host_mem = 1 << 20;
        hardware_override(&h, &s);
        hardware_limits(&h, 1, limit);
        plan = plan_for(m, &s, limit);
        assert_true(plan->fits);
        plan_destroy(plan);
    }
    model_destroy(m);
}

/* More of a card than it has is not proposed, all of it is. */
static void whole_card(void **state)
{
    (void)state;
    struct model *m = model_for();
    struct plan_request s;
    struct hardware h;
    struct changes c;
    int64_t limit[TIERS];
    int all = 0;
    settings_elsewhere(&h, &s);
    s.device_mem = 1 << 19;
    hardware_override(&h, &s);
    hardware_limits(&h, 1, limit);
    struct plan *plan = plan_for(m, &s, limit);
    assert_false(plan->fits);
    assert_int_equal(changes_find(plan, m, &s, &c), OK);
    for (int k = 0; k < c.n; k++) {
        all += strcmp(c.by_cost[k].say, "--device-mem auto") == 0;
        assert_true(strncmp(c.by_cost[k].say, "--device-mem ", 13) != 0 || all);
    }
    assert_int_equal(all, 1);
    plan_destroy(plan);
    model_destroy(m);
}

/* Far beyond everything, it is said without a plan, with a length that fits; what is near is left to planning. */
static void beyond_everything(void **state)
{
    (void)state;
    struct model *m = model_for();
    struct plan_request s;
    int64_t limit[TIERS] = {4 << 20, 64 << 20, 64 << 20}, tokens;
    struct candidate c;
    cell_settings(&s, 1 << 20, BF16);
    s.params = s.grads = s.optim = s.acts = s.passing = OFFLOAD_AUTO;
    s.alpha = s.keep_inputs = AUTO;
    s.update = UPDATE_AUTO;
    s.row_chunk = s.head_tile = s.loss_tile = AUTO;
    assert_int_equal(changes_refuse_early(m, &s, limit), ERR_NOFIT);
    print_message("%s\n", status_message());
    const char *shorter = strstr(status_message(), "--seq-len ");
    assert_non_null(shorter);
    char length[32];
    assert_int_equal(sscanf(shorter, "--seq-len %31[0-9k]", length), 1);
    assert_int_equal(units_parse_count("seq-len", length, &tokens), OK);
    s.seq_len = tokens;
    assert_int_equal(changes_refuse_early(m, &s, limit), OK);
    assert_int_equal(glance_fits(m, &s, limit, &c), OK);
    assert_true(c.excess <= 1);
    s.seq_len = 2 * tokens;
    assert_int_equal(changes_refuse_early(m, &s, limit), OK);
    model_destroy(m);
}

/* Lengths whose buffers no program has room for are refused like others, by as many times as much as a part of them needs. */
static void beyond_programs(void **state)
{
    (void)state;
    struct model_config config;
    struct model *m;
    struct plan_request s;
    const int64_t limit[TIERS] = {4ll << 30, 16ll << 30, 64ll << 30};
    double need[2];
    assert_int_equal(model_preset("25m", &config), OK);
    assert_int_equal(model_create(&config, NULL, 0, &m), OK);
    for (int i = 0; i < 2; i++) {
        char unit[8];
        plan_request_defaults(&s, 1ll << (26 + 4 * i));
        assert_int_equal(changes_refuse_early(m, &s, limit), ERR_NOFIT);
        print_message("%s\n", status_message());
        assert_int_equal(sscanf(status_message(), "the plan needs %lf %7s on the device", &need[i], unit), 2);
        need[i] *= strcmp(unit, "TiB") == 0 ? 1024 : 1;
    }
    assert_true(fabs(need[1] / need[0] - 16) < 1); /* two digits are said */
    model_destroy(m);
}

/* All tiers that are too small are named, with digits that tell need and limit apart, and what a change needs of each. */
static void several_tiers(void **state)
{
    (void)state;
    struct plan_request s;
    struct changes c = {.n = 1};
    struct plan p = {.arena = {57ll << 30, (64ll << 30) + (30 << 20), 1}, .limit = {38ll << 30, 64ll << 30, 1 << 30}};
    plan_request_defaults(&s, 64);
    s.host_mem = 64ll << 30;
    p.seconds = p.tokens = 1;
    c.by_cost[0] = (struct change){.say = "--dtype bf16", .exact = 1, .seconds = 1980, .arena = {30ll << 30, 20ll << 30, 0}};
    assert_int_equal(changes_refuse(&p, &s, &c), ERR_NOFIT);
    assert_string_equal(status_message(),
                        "the plan needs 57 GiB on the device and 38 GiB are free (--device-mem), 64.03 GiB on the host and 64.00 "
                        "GiB are given (--host-mem). --dtype bf16 would need 30 GiB on the device and 20 GiB on the host; a step "
                        "would take 33 min.");
}

/* 32 layers of tiny chunks, too many to be tried whole: the length that is named fits, one an eighth longer does not. */
static void nearly_the_longest(void **state)
{
    (void)state;
    const int64_t limit[TIERS] = {10 << 20, 50 << 20, 0};
    struct plan_request s;
    struct changes c;
    struct model *m;
    assert_int_equal(cell_model(FAMILY_LLAMA, 32, &m), OK);
    cell_settings(&s, 4096, F32);
    s.params = s.grads = s.optim = s.acts = s.passing = OFFLOAD_AUTO;
    s.alpha = s.keep_inputs = AUTO;
    s.update = UPDATE_AUTO;
    struct plan *p = plan_for(m, &s, limit);
    assert_false(p->fits);
    assert_int_equal(changes_find(p, m, &s, &c), OK);
    plan_destroy(p);
    assert_true(c.n > 0 && c.by_cost[c.n - 1].shortens);
    apply(c.by_cost[c.n - 1].say, &s);
    print_message("%lld tokens\n", (long long)s.seq_len);
    for (int fits = 1; fits >= 0; fits--) {
        p = plan_for(m, &s, limit);
        assert_int_equal(p->fits, fits);
        plan_destroy(p);
        s.seq_len += s.seq_len / 8;
    }
    model_destroy(m);
}

/* A shorter sequence needs fewer learned positions, too: what is said of it is what its own model needs. */
static void shorter_has_fewer_positions(void **state)
{
    (void)state;
    const int64_t limit[TIERS] = {4 << 20, 4 << 20, 0};
    struct plan_request s;
    struct changes c;
    struct model *m, *sized;
    assert_int_equal(long_table_model(&m), OK);
    cell_settings(&s, 1 << 15, F32);
    assert_int_equal(model_create_for(m, s.seq_len, NULL, 0, &sized), OK);
    model_destroy(m);
    m = sized;
    struct plan *p = plan_for(m, &s, limit);
    assert_false(p->fits);
    assert_int_equal(changes_find(p, m, &s, &c), OK);
    plan_destroy(p);
    assert_true(c.n > 0 && c.by_cost[c.n - 1].shortens);
    s.params = s.grads = s.optim = s.acts = s.passing = OFFLOAD_AUTO; /* as the proposal has it */
    s.alpha = s.keep_inputs = AUTO;
    s.update = UPDATE_AUTO;
    apply(c.by_cost[c.n - 1].say, &s);
    print_message("%lld tokens\n", (long long)s.seq_len);
    p = plan_for(m, &s, limit);
    assert_false(p->fits); /* with the table of the longer one */
    plan_destroy(p);
    assert_int_equal(model_create_for(m, s.seq_len, NULL, 0, &sized), OK);
    p = plan_for(sized, &s, limit);
    assert_true(p->fits);
    assert_true(p->arena[TIER_DEVICE] <= limit[TIER_DEVICE] && p->arena[TIER_HOST] <= limit[TIER_HOST]);
    plan_destroy(p);
    model_destroy(sized);
    model_destroy(m);
}

/* More devices are looked at as the machine that is named: its host has memory for each of them. */
static void more_devices_are_a_machine(void **state)
{
    (void)state;
    struct hardware h, other;
    struct plan_request s;
    struct plan p = {.strategy.ranks = 1};
    struct trial t;
    int64_t limit[TIERS];
    char name[32] = "";
    int found = 0;
    struct model *m = model_for();
    settings_elsewhere(&h, &s);
    struct seeker x = {.p = &p, .m = m, .s = &s};
    hardware_limits(&h, 1, p.limit);
    for (int i = 0; i < proposals_n; i++) {
        if (!proposal_start(&x, i, s.seq_len, &t) || sscanf(t.change.say, "--machine %31s", name) != 1)
            continue;
        assert_int_equal(hardware_preset(name, &other), OK);
        hardware_override(&other, &s);
        hardware_limits(&other, t.s.dp * t.s.ulysses * t.s.ring, limit);
        assert_memory_equal(t.limit, limit, sizeof limit);
        assert_true(limit[TIER_HOST] == p.limit[TIER_HOST]); /* as much for each of them */
        found++;
    }
    assert_int_equal(found, 2);
    model_destroy(m);
}

/* A mesh that is given and leaves devices idle: no more of them are offered, which it would not use either, but one for all. */
static void idle_devices_are_offered(void **state)
{
    (void)state;
    struct hardware h;
    struct plan_request s;
    struct plan p = {.strategy.ranks = 2};
    struct trial t;
    int found = 0, dp, ulysses, ring;
    struct model *m = model_for();
    settings_elsewhere(&h, &s);
    assert_int_equal(hardware_preset("4xa100-40", &h), OK);
    s.machine = "4xa100-40";
    s.dp = s.ring = 1;
    s.ulysses = 2;
    s.together = 0;
    struct seeker x = {.p = &p, .m = m, .s = &s};
    hardware_limits(&h, 2, p.limit);
    for (int i = 0; i < proposals_n; i++) {
        if (!proposal_start(&x, i, s.seq_len, &t))
            continue;
        assert_null(strstr(t.change.say, "--machine"));
        if (sscanf(t.change.say, "--mesh dp=%d,ulysses=%d,ring=%d", &dp, &ulysses, &ring) != 3)
            continue;
        assert_int_equal(dp * ulysses * ring, 4);
        assert_true(t.s.dp == dp && t.s.ulysses == ulysses && t.s.ring == ring);
        found++;
    }
    assert_int_equal(found, 1);
    model_destroy(m);
}

/* Changes in words: another length is compared by its tokens a second; what does not fit, with nothing. */
static void words(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n;
    struct changes c = {.n = 2, .tried = 2};
    struct plan p = {.fits = 1, .seconds = 10, .tokens = 1000};
    c.by_cost[0] = (struct change){.say = "--offload auto", .exact = 1, .seconds = 8, .per_second = 125};
    c.by_cost[1] = (struct change){.say = "--seq-len 4k", .exact = 1, .seconds = 5, .per_second = 160, .shortens = 1};
    for (p.fits = 1; p.fits >= 0; p.fits--) {
        FILE *f = open_memstream(&text, &n);
        changes_print(&p, &c, f);
        fclose(f);
        assert_int_equal(strstr(text, "8 s a step, 25% faster; device") != NULL, p.fits);
        assert_int_equal(strstr(text, "5 s a step, 1.6 times the tokens/s; device") != NULL, p.fits);
        free(text);
    }
    p.fits = 1;
    c.n = 0;
    for (c.tried = 1; c.tried < 3; c.tried++) {
        FILE *f = open_memstream(&text, &n);
        changes_print(&p, &c, f);
        fclose(f);
        assert_string_equal(text, c.tried == 1 ? "\nThe one change tried does not help.\n"
                                               : "\nNone of the 2 changes tried is 2% faster.\n");
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refusals),
                                       cmocka_unit_test(faster),
                                       cmocka_unit_test(fewer_inputs),
                                       cmocka_unit_test(glances),
                                       cmocka_unit_test(more_of_something),
                                       cmocka_unit_test(beyond_everything),
                                       cmocka_unit_test(beyond_programs),
                                       cmocka_unit_test(drives_kept_away),
                                       cmocka_unit_test(several_tiers),
                                       cmocka_unit_test(more_devices_are_a_machine),
                                       cmocka_unit_test(idle_devices_are_offered),
                                       cmocka_unit_test(words),
                                       cmocka_unit_test(whole_card),
                                       cmocka_unit_test(nearly_the_longest),
                                       cmocka_unit_test(shorter_has_fewer_positions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
