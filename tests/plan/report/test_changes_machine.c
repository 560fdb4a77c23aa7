/* Tests proposals for a named machine: more memory, drives, devices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "machine/hardware.h"
#include "plan/report/advise.h"
#include "plan/report/advise_proposals.h"
#include "plan/report/changes.h"

/* Sets a named machine, with everything else left to the planner. */
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

/* Plans on ever smaller devices, until nothing fits. */
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

/* For a named machine memory and devices are proposed; a second call proposes the same. */
static void more_of_something(void **state)
{
    (void)state;
    struct model *m = model_for();
    struct plan_request s;
    struct hardware h;
    struct advice c, again;
    int memory = 0, devices = 0;
    settings_elsewhere(&h, &s);
    h.nvme_mem = h.drives = 0; /* without drives only the host is left */
    h.host_mem = 1 << 20;
    struct plan *plan = first_misfit(m, &s, &h);
    assert_int_equal(advise_find(plan, m, &s, &c), OK);
    assert_int_equal(advise_find(plan, m, &s, &again), OK);
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

/* Drives that --nvme-max or --nvme none rules out are proposed before more devices; the proposed flag fits when typed instead of
 * the given one. */
static void drives_kept_away(void **state)
{
    (void)state;
    static const char *const says[] = {"--nvme-max auto", "--nvme-max auto", "--nvme 1x5.95GB/s"};
    struct model *m = model_for();
    for (int i = 0; i < 3; i++) {
        struct plan_request s;
        struct hardware h;
        struct advice c;
        int64_t limit[TIERS];
        int at = -1;
        settings_elsewhere(&h, &s);
        s.nvme_max = i == 1 ? 65536 : 0;
        s.nvme_drives = i == 2 ? 0 : AUTO;
        hardware_override(&h, &s);
        h.host_mem = 1 << 20;
        struct plan *plan = first_misfit(m, &s, &h);
        int64_t device_mem = h.device_mem;
        assert_int_equal(advise_find(plan, m, &s, &c), OK);
        for (int k = 0; k < c.n; k++) {
            if (strcmp(c.by_cost[k].say, says[i]) == 0)
                at = k;
            assert_true(k == 0 || c.by_cost[k - 1].shortens || c.by_cost[k].gives_more >= c.by_cost[k - 1].gives_more ||
                        c.by_cost[k].shortens);
        }
        assert_true(at >= 0 && c.by_cost[at].gives_more == GIVES_MEMORY);
        plan_destroy(plan);
        assert_int_equal(hardware_preset(s.machine, &h), OK);
        s.nvme_max = AUTO; /* set by the typed flag */
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

/* More memory than a GPU has is never proposed; all of it may be. */
static void whole_card(void **state)
{
    (void)state;
    struct model *m = model_for();
    struct plan_request s;
    struct hardware h;
    struct advice c;
    int64_t limit[TIERS];
    int all = 0;
    settings_elsewhere(&h, &s);
    s.device_mem = 1 << 19;
    hardware_override(&h, &s);
    hardware_limits(&h, 1, limit);
    struct plan *plan = plan_for(m, &s, limit);
    assert_false(plan->fits);
    assert_int_equal(advise_find(plan, m, &s, &c), OK);
    for (int k = 0; k < c.n; k++) {
        all += strcmp(c.by_cost[k].say, "--device-mem auto") == 0;
        assert_true(strncmp(c.by_cost[k].say, "--device-mem ", 13) != 0 || all);
    }
    assert_int_equal(all, 1);
    plan_destroy(plan);
    model_destroy(m);
}

/* More devices are tried as a larger machine of that name, whose host has memory for each device. */
static void more_devices_are_a_machine(void **state)
{
    (void)state;
    struct hardware h, other;
    struct plan_request s;
    struct plan p = {.strategy.ranks = 1};
    struct proposal_setup t;
    int64_t limit[TIERS];
    char name[32] = "";
    int found = 0;
    struct model *m = model_for();
    settings_elsewhere(&h, &s);
    struct advisor x = {.p = &p, .m = m, .s = &s};
    hardware_limits(&h, 1, p.limit);
    for (int i = 0; i < proposals_n; i++) {
        if (!proposal_start(&x, i, s.seq_len, &t) || sscanf(t.change.say, "--machine %31s", name) != 1)
            continue;
        assert_int_equal(hardware_preset(name, &other), OK);
        hardware_override(&other, &s);
        hardware_limits(&other, t.s.mesh.degree[MESH_DP] * t.s.mesh.degree[MESH_ULYSSES] * t.s.mesh.degree[MESH_RING], limit);
        assert_memory_equal(t.limit, limit, sizeof limit);
        assert_true(limit[TIER_HOST] == p.limit[TIER_HOST]); /* each rank has as much memory as before */
        found++;
    }
    assert_int_equal(found, 2);
    model_destroy(m);
}

/* If a given mesh leaves devices idle, a mesh for all devices is proposed, and no further devices, which that mesh would not use
 * either. */
static void idle_devices_are_offered(void **state)
{
    (void)state;
    struct hardware h;
    struct plan_request s;
    struct plan p = {.strategy.ranks = 2};
    struct proposal_setup t;
    int found = 0, dp, ulysses, ring;
    struct model *m = model_for();
    settings_elsewhere(&h, &s);
    assert_int_equal(hardware_preset("4xa100-40", &h), OK);
    s.machine = "4xa100-40";
    s.mesh.degree[MESH_DP] = s.mesh.degree[MESH_RING] = 1;
    s.mesh.degree[MESH_ULYSSES] = 2;
    s.open_degrees = 0;
    struct advisor x = {.p = &p, .m = m, .s = &s};
    hardware_limits(&h, 2, p.limit);
    for (int i = 0; i < proposals_n; i++) {
        if (!proposal_start(&x, i, s.seq_len, &t))
            continue;
        assert_null(strstr(t.change.say, "--machine"));
        if (sscanf(t.change.say, "--mesh dp=%d,ulysses=%d,ring=%d", &dp, &ulysses, &ring) != 3)
            continue;
        assert_int_equal(dp * ulysses * ring, 4);
        assert_true(t.s.mesh.degree[MESH_DP] == dp && t.s.mesh.degree[MESH_ULYSSES] == ulysses &&
                    t.s.mesh.degree[MESH_RING] == ring);
        found++;
    }
    assert_int_equal(found, 1);
    model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(more_of_something), cmocka_unit_test(drives_kept_away),
                                       cmocka_unit_test(more_devices_are_a_machine), cmocka_unit_test(idle_devices_are_offered),
                                       cmocka_unit_test(whole_card)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
