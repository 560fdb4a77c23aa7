/* Runs a case of tests/golden on this machine's GPU in three placements, for tools/gpu-check.sh: `engine_golden_gpu CASE | --all
 * | --illegal-address`. With --all it runs every case, resident.
 *
 * Results in bf16 are compared with PyTorch in fp64; all placements give the same bits. LTRAIN_GOLDEN names the folder of cases.
 * Exit status 77: no GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "device/plugin.h"
#include "engine/backend_cpu.h"
#include "engine/cuda_target.h"
#include "engine/golden_compare.h"
#include "engine/rig.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *name;
static struct target target;

static void on_host(struct settings *s)
{
    s->plan.params = s->plan.grads = s->plan.optim = s->plan.acts = OFFLOAD_CPU;
    s->plan.alpha = 0.5;
}

static void on_drives(struct settings *s)
{
    s->plan.params = s->plan.grads = s->plan.optim = s->plan.acts = s->plan.passing = OFFLOAD_NVME;
    s->plan.alpha = 0;
}

static double apart(double have, double want)
{
    return fabs(have - want) / fabs(want);
}

/* Runs the case, prints the worst differences of loss and norm over all steps, and returns the hash of its state. */
static uint64_t run(void (*change)(struct settings *))
{
    struct golden g;
    struct rig r;
    struct model *model;
    double loss, norm, worst[2] = {0};
    uint64_t digest;
    if (golden_open(name, &g) != OK)
        fail_msg("%s", status_message());
    rig_defaults(&r, g.seq_len);
    r.gpu = target;
    r.settings.gpu = AUTO;
    r.settings.plan.device = DEVICE_CUDA;
    r.settings.plan.dtype = BF16;
    r.settings.plan.threads = target.threads;
    if (change)
        change(&r.settings);
    if (golden_model(&g, &model) != OK || rig_start(&r, model) != OK || golden_load(&g, r.session) != OK)
        fail_msg("%s", status_message());
    double gradient = 0;
    const struct golden_marks marks = golden_bf16_marks(name);
    for (int step = 0; step < GOLDEN_STEPS; step++) {
        if (rig_step(&r, &g.sequence, 1, &loss, &norm) != OK)
            fail_msg("%s", status_message());
        worst[0] = fmax(worst[0], apart(loss, g.loss[step]));
        worst[1] = fmax(worst[1], apart(norm, g.norm[step]));
        if (step == 0)
            gradient = golden_compare(&r, g.file, STATE_GRAD, "grad", marks.gradient);
    }
    assert_int_equal(rig_flush(&r), OK);
    const double parameters = golden_compare(&r, g.file, STATE_MASTER, "step5", marks.parameters);
    print_message("%s on %s: gradients %.2g, loss %.2g, norm %.2g, parameters %.2g apart\n", name, r.session->backend->name,
                  gradient, worst[0], worst[1], parameters);
    assert_true(gradient <= marks.gradient && worst[0] <= marks.loss && worst[1] <= marks.norm && parameters <= marks.parameters);
    assert_int_equal(rig_digest(&r, &digest), OK);
    rig_stop(&r);
    golden_close(&g);
    return digest;
}

static void three_placements(void **state)
{
    (void)state;
    const uint64_t resident = run(NULL);
    assert_true(run(on_host) == resident);
    assert_true(run(on_drives) == resident);
}

/* Runs every case in LTRAIN_GOLDEN, or else in the source's folder. */
static void every_case(void **state)
{
    (void)state;
    const char *given = getenv("LTRAIN_GOLDEN"), *root = getenv("LTRAIN_SOURCE_ROOT");
    char folder[500], path[800];
    struct dirent **entries;
    int tried = 0;
    snprintf(folder, sizeof folder, "%s%s", given ? given : root ? root : ".", given ? "" : "/tests/golden");
    const int n = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s/golden.json", folder, entries[i]->d_name);
        if (access(path, R_OK) == 0) {
            name = entries[i]->d_name;
            run(NULL);
            tried++;
        }
        free(entries[i]);
    }
    free(entries);
    assert_true(tried >= 60);
}

static op_kernel *embed;

/* Reads the table from an address where neither the device nor the host ever has memory, so that drivers which map host pages for
 * kernels find none there. */
static enum status embed_from_nowhere(const struct op_attrs *attrs, void *const *arg, void *stream)
{
    void *moved[OP_MAX_ARGS];
    memcpy(moved, arg, (size_t)op_arg_count(OP_EMBED) * sizeof *moved);
    moved[1] = (void *)(uintptr_t)4096; /* NOLINT(performance-no-int-to-ptr) */
    return embed(attrs, moved, stream);
}

/* With LTRAIN_CUDA_SYNC=1 the message names the instruction that reads from the bad address. */
static void an_illegal_address(void **state)
{
    (void)state;
    struct golden g;
    struct rig r;
    struct model *model;
    double loss, norm;
    setenv("LTRAIN_CUDA_SYNC", "1", 1);
    if (golden_open("llama-gqa", &g) != OK)
        fail_msg("%s", status_message());
    rig_defaults(&r, g.seq_len);
    r.gpu = target;
    r.settings.gpu = AUTO;
    r.settings.plan.device = DEVICE_CUDA;
    r.settings.plan.dtype = BF16;
    r.settings.plan.threads = target.threads;
    if (golden_model(&g, &model) != OK || rig_start(&r, model) != OK || golden_load(&g, r.session) != OK)
        fail_msg("%s", status_message());
    embed = r.session->backend->kernels[OP_EMBED];
    r.session->backend->kernels[OP_EMBED] = embed_from_nowhere;
    assert_int_not_equal(rig_step(&r, &g.sequence, 1, &loss, &norm), OK);
    print_message("said: %s\n", status_message());
    assert_non_null(strstr(status_message(), "cudaErrorIllegalAddress"));
    assert_non_null(strstr(status_message(), ": embed"));
    rig_stop(&r);
    golden_close(&g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(three_placements)}, all[] = {cmocka_unit_test(every_case)},
                            faults[] = {cmocka_unit_test(an_illegal_address)};
    const struct device_plugin *plugin;
    struct device_facts facts;
    int n;
    name = argc > 1 ? argv[1] : "llama-gqa";
    if (!device_plugin_expected() || device_plugin_load(&plugin) != OK) {
        printf("skipped: no GPU: %s\n", status_message());
        return 77;
    }
    if (plugin->count(&n) != OK || plugin->describe(0, &facts) != OK) {
        printf("%s\n", plugin->sentence());
        return 1;
    }
    target = facts.capability > 0 ? cuda_target(facts.capability, facts.processors, 1) : backend_cpu_target(1);
    if (strcmp(name, "--illegal-address") == 0)
        return cmocka_run_group_tests(faults, NULL, NULL);
    if (strcmp(name, "--all") == 0)
        return cmocka_run_group_tests(all, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
