/* Tests checkpoints: any placement loads those of any other; whatever fails or is killed, a complete checkpoint is found; wrong
 * ones are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/directory.h"
#include "base/rng.h"
#include "base/sys.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/files.h"
#include "engine/rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { S = 96, SEED = 5 };

static char run[64]; /* the current test's run directory */
static struct comm *self;

/* ---- helpers ---- */

static void must(enum status st)
{
    if (st != OK)
        fail_msg("%s", status_message());
}

static void __attribute__((format(printf, 1, 2))) shell(const char *format, ...)
{
    char command[512];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    assert_int_equal(system(command), 0);
}

/* Makes the run's directory on a disk for tests with kills. Other tests save hundreds of times, and on a shared disk each save
 * may take 50 ms. */
static int new_run_on_disk(void **state)
{
    (void)state;
    strcpy(run, "/tmp/ltrain-ckpt-XXXXXX");
    return mkdtemp(run) ? 0 : -1;
}

static int new_run(void **state)
{
    strcpy(run, "/dev/shm/ltrain-ckpt-XXXXXX");
    return mkdtemp(run) ? 0 : new_run_on_disk(state);
}

static int drop_run(void **state)
{
    (void)state;
    sys_inject_clear();
    shell("rm -rf %s", run);
    return 0;
}

static struct model_config small_config(void)
{
    return (struct model_config){.family = FAMILY_LLAMA,
                                 .vocab = 50,
                                 .dim = 24,
                                 .ffn = 40,
                                 .layers = 2,
                                 .heads = 2,
                                 .kv_heads = 1,
                                 .head_dim = 16,
                                 .max_positions = 512,
                                 .tied = 1,
                                 .norm_eps = 1e-5f,
                                 .init_std = 0.02f,
                                 .rope_theta = 10000,
                                 .name = "small"};
}

typedef void placement(struct settings *s);

static void resident(struct settings *s)
{
    (void)s;
}

static void host(struct settings *s)
{
    s->plan.params = s->plan.grads = s->plan.optim = s->plan.acts = OFFLOAD_CPU;
    s->plan.alpha = 0.5;
}

static void nvme(struct settings *s)
{
    s->plan.params = s->plan.grads = s->plan.optim = s->plan.acts = OFFLOAD_NVME;
    s->plan.device = DEVICE_CPU_DISCRETE;
    s->plan.alpha = 0;
}

static void groups_of_3000(struct settings *s)
{
    s->plan.optim = OFFLOAD_CPU;
    s->plan.group = 3000;
}

static void start(struct rig *r, placement *place, enum dtype dtype, const char *freeze, const struct model_config *config)
{
    struct model_config c = config ? *config : small_config();
    struct model *model;
    rig_defaults(r, S);
    r->settings.plan.dtype = dtype;
    place(&r->settings);
    must(model_create(&c, &freeze, freeze != NULL, &model));
    assert_int_equal(rig_start(r, model), OK);
    must(session_initialise(r->session, SEED));
}

static void train(struct rig *r, int first, int n, double *loss)
{
    for (int i = 0; i < n; i++) {
        struct sequence q;
        double norm;
        sequence_random(&q, S, r->model->config.vocab, (uint64_t)(100 + first + i), NULL);
        must(rig_step(r, &q, 1, &loss[i], &norm));
        sequence_free(&q);
    }
    must(rig_flush(r));
}

static uint64_t digest(struct rig *r)
{
    uint64_t d = 0;
    must(rig_digest(r, &d));
    return d;
}

static struct checkpoint_info info_of(int64_t step)
{
    return (struct checkpoint_info){
        .step = step, .cursor = (uint64_t)(3 * step), .updates = step, .seed = ~(uint64_t)0, .numerics = "rows=32 \"key\""};
}

static void save(struct rig *r, int64_t step, int keep)
{
    struct checkpoint_info info = info_of(step);
    must(checkpoint_save(r->session, run, &info, NULL, keep));
}

/* Checks that the last failure's message is one sentence and mentions `part`. */
static void must_say(const char *part)
{
    const char *text = status_message();
    if (!strstr(text, part) || strchr(text, '\n') || !text[0])
        fail_msg("'%s' does not mention '%s', or is no single sentence", text, part);
}

/* Finds a checkpoint, expects no note, and loads it. */
static struct checkpoint_info find_and_load(struct rig *r)
{
    char path[256], note[256];
    struct checkpoint_info info;
    must(checkpoint_find(self, run, path, sizeof path, &info, note, sizeof note));
    assert_string_equal(note, "");
    must(checkpoint_load(r->session, path));
    return info;
}

/* ---- placements ---- */

static void check_move(placement *from, placement *to, enum dtype dtype, const char *freeze, const struct model_config *config)
{
    struct rig a, b;
    double whole[4], resumed[2];
    start(&a, from, dtype, freeze, config);
    train(&a, 0, 2, whole);
    save(&a, 2, 2);
    uint64_t want = digest(&a);
    train(&a, 2, 2, whole + 2); /* flushed after two steps, as in the resumed run */
    start(&b, to, dtype, freeze, config);
    must(session_initialise(b.session, SEED + 1));
    assert_true(digest(&b) != want);
    struct checkpoint_info info = find_and_load(&b), saved = info_of(2);
    assert_memory_equal(&info, &saved, sizeof info);
    assert_true(digest(&b) == want);
    b.updates = info.updates;
    train(&b, 2, 2, resumed);
    if (a.settings.plan.group == b.settings.plan.group) { /* groups are in the numerics key */
        assert_memory_equal(resumed, whole + 2, sizeof resumed);
        assert_true(digest(&b) == digest(&a));
    }
    rig_stop(&a);
    rig_stop(&b);
}

static void moves_fp32(void **state)
{
    (void)state;
    check_move(nvme, resident, F32, NULL, NULL);
    check_move(resident, host, F32, NULL, NULL);
    check_move(nvme, groups_of_3000, F32, NULL, NULL);
    check_move(groups_of_3000, nvme, F32, NULL, NULL);
}

static void moves_bf16(void **state)
{
    (void)state;
    check_move(nvme, resident, BF16, NULL, NULL);
    check_move(host, nvme, BF16, NULL, NULL);
    check_move(resident, groups_of_3000, BF16, NULL, NULL);
}

static void moves_frozen(void **state)
{
    (void)state;
    check_move(nvme, host, F32, "model.layers.0.*", NULL);
    check_move(resident, nvme, BF16, "*mlp*", NULL);
    check_move(host, groups_of_3000, BF16, "*embed*", NULL);
}

static void moves_gpt2(void **state)
{
    (void)state;
    struct model_config c = {.family = FAMILY_GPT2,
                             .vocab = 50,
                             .dim = 32,
                             .ffn = 128,
                             .layers = 1,
                             .heads = 2,
                             .kv_heads = 2,
                             .head_dim = 16,
                             .max_positions = 128,
                             .tied = 0,
                             .norm_eps = 1e-5f,
                             .activation = GELU_TANH,
                             .init_std = 0.02f,
                             .name = "gpt2"};
    check_move(nvme, host, F32, NULL, &c);
    check_move(host, resident, BF16, "*bias", &c);
}

/* ---- dtypes ---- */

static float *state_of(struct rig *r, int unit, enum state_kind kind)
{
    float *x = calloc((size_t)r->model->units[unit].elements, sizeof *x);
    must(rig_state(r, unit, kind, x));
    return x;
}

static void assert_same(float *a, float *b, int64_t n)
{
    assert_memory_equal(a, b, (size_t)n * sizeof *a);
    free(a);
    free(b);
}

static void fp32_into_bf16_and_back(void **state)
{
    (void)state;
    const char *freeze = "*mlp*";
    struct rig a, b;
    double loss[2];
    start(&a, nvme, F32, freeze, NULL);
    train(&a, 0, 2, loss);
    save(&a, 2, 1);
    start(&b, host, BF16, freeze, NULL);
    find_and_load(&b);
    for (int u = 0; u < a.model->n_units; u++) {
        const struct model_unit *unit = &a.model->units[u];
        assert_same(state_of(&a, u, STATE_PARAM), state_of(&b, u, STATE_MASTER), unit->trained_elements);
        assert_same(state_of(&a, u, STATE_M), state_of(&b, u, STATE_M), unit->elements);
        assert_same(state_of(&a, u, STATE_V), state_of(&b, u, STATE_V), unit->elements);
        float *rounded = state_of(&a, u, STATE_PARAM);
        for (int64_t i = 0; i < unit->elements; i++)
            rounded[i] = bf16_to_float(bf16_from_float(rounded[i]));
        assert_same(rounded, state_of(&b, u, STATE_PARAM), unit->elements);
    }
    train(&b, 2, 1, loss);
    save(&b, 3, 1);
    find_and_load(&a);
    for (int u = 0; u < a.model->n_units; u++) {
        const struct model_unit *unit = &a.model->units[u];
        float *want = state_of(&b, u, STATE_PARAM), *master = state_of(&b, u, STATE_MASTER);
        memcpy(want, master, (size_t)unit->trained_elements * sizeof *want); /* frozen masters were rounded once */
        free(master);
        assert_same(want, state_of(&a, u, STATE_PARAM), unit->elements);
        assert_same(state_of(&b, u, STATE_V), state_of(&a, u, STATE_V), unit->elements);
    }
    rig_stop(&a);
    rig_stop(&b);
}

static void host_bf16_moments(struct settings *s)
{
    host(s);
    s->plan.optim_dtype = BF16;
}

static void nvme_bf16_moments(struct settings *s)
{
    nvme(s);
    s->plan.optim_dtype = BF16;
}

static void moments_load_into_either_type(void **state)
{
    (void)state;
    struct rig a, b, c;
    double loss[2], again[2];
    start(&a, nvme, F32, NULL, NULL);
    train(&a, 0, 2, loss);
    save(&a, 2, 1);
    start(&b, host_bf16_moments, F32, NULL, NULL);
    find_and_load(&b);
    for (int u = 0; u < a.model->n_units; u++)
        for (int kind = STATE_M; kind <= STATE_V; kind++) {
            int64_t n = a.model->units[u].elements;
            float *rounded = state_of(&a, u, (enum state_kind)kind);
            for (int64_t i = 0; i < n; i++)
                rounded[i] = bf16_to_float(bf16_from_float(rounded[i]));
            assert_same(rounded, state_of(&b, u, (enum state_kind)kind), n);
        }
    train(&b, 2, 1, loss);
    save(&b, 3, 1);
    find_and_load(&a);
    assert_true(digest(&a) == digest(&b)); /* compared as fp32 values */
    start(&c, nvme_bf16_moments, F32, NULL, NULL);
    find_and_load(&c);
    c.updates = b.updates;
    train(&b, 3, 2, loss);
    train(&c, 3, 2, again);
    assert_true(digest(&b) == digest(&c));
    rig_stop(&a);
    rig_stop(&b);
    rig_stop(&c);
}

static void check_export(enum dtype dtype)
{
    struct rig a, b;
    double loss[1];
    char dir[128];
    struct model_config c;
    snprintf(dir, sizeof dir, "%s/export-%d", run, dtype);
    start(&a, nvme, dtype, NULL, NULL);
    must(checkpoint_export(a.session, dir, NULL, EXPORT_ONE_FILE));
    train(&a, 0, 1, loss);
    must(checkpoint_export(a.session, dir, NULL, EXPORT_ONE_FILE)); /* replaces the former export */
    must(model_config_read(dir, &c));
    assert_string_equal(c.name, strrchr(dir, '/') + 1);
    start(&b, host, dtype, NULL, &c);
    must(session_load(b.session, dir));
    for (int u = 0; u < a.model->n_units; u++)
        assert_same(state_of(&a, u, STATE_PARAM), state_of(&b, u, STATE_PARAM), a.model->units[u].elements);
    shell("test \"$(ls %s | tr '\\n' ' ')\" = 'config.json model.safetensors '", dir);
    assert_int_equal(checkpoint_export(a.session, "/proc/nowhere", NULL, EXPORT_ONE_FILE), ERR_IO);
    must_say("/proc/nowhere");
    rig_stop(&a);
    rig_stop(&b);
}

/* An export in files of limited size has an index; an export in one file replaces it, and the reverse. */
static void exports_in_parts(void **state)
{
    (void)state;
    struct rig a, b;
    char dir[128];
    struct model_config c;
    snprintf(dir, sizeof dir, "%s/export-parts", run);
    start(&a, nvme, F32, NULL, NULL);
    must(checkpoint_export(a.session, dir, NULL, EXPORT_ONE_FILE));
    must(checkpoint_export(a.session, dir, NULL, 10000));
    shell("cd %s; test -f model-00001-of-0000$(ls model-* | wc -l).safetensors && test ! -e model.safetensors && "
          "test $(ls model-* | wc -l) -gt 2 && "
          "grep -q '\"total_size\"' model.safetensors.index.json",
          dir);
    must(model_config_read(dir, &c));
    start(&b, host, F32, NULL, &c);
    must(session_load(b.session, dir));
    for (int u = 0; u < a.model->n_units; u++)
        assert_same(state_of(&a, u, STATE_PARAM), state_of(&b, u, STATE_PARAM), a.model->units[u].elements);
    must(checkpoint_export(b.session, dir, NULL, EXPORT_ONE_FILE));
    shell("test \"$(ls %s | tr '\\n' ' ')\" = 'config.json model.safetensors '", dir);
    rig_stop(&a);
    rig_stop(&b);
}

static void exports(void **state)
{
    (void)state;
    check_export(F32);
    check_export(BF16);
}

/* ---- keeping checkpoints ---- */

static void assert_names(const char *names)
{
    shell("cd %s/checkpoints && got=\"$(ls | tr '\\n' ' ')\" && { test \"$got\" = '%s' || { echo \"$got\"; false; }; }", run,
          names);
}

/* Writes a NaN into the last element of the state, in whichever tier it is. */
static enum status spoil(void *user, int unit, int64_t first, int64_t n, float *data)
{
    int64_t *last = user;
    (void)unit;
    for (int64_t i = 0; i < n; i++)
        data[i] = first + i == *last ? NAN : 0.5f;
    return OK;
}

/* The newest checkpoint without NaN stays, even if only one is kept. */
static void check_not_finite(placement *place, enum dtype dtype, enum state_kind kind, const char *what)
{
    struct rig a, b;
    double loss[2];
    char dir[128];
    start(&a, place, dtype, NULL, NULL);
    train(&a, 0, 1, loss);
    save(&a, 1, 1);
    uint64_t want = digest(&a);
    train(&a, 1, 1, loss);
    int unit = model_unit_of_layer(a.model->config.layers - 1);
    int64_t last = a.model->units[unit].elements - 1;
    must(session_visit(a.session, unit, kind, STATE_WRITE, spoil, &last));
    struct checkpoint_info info = info_of(2);
    assert_int_equal(checkpoint_save(a.session, run, &info, NULL, 1), ERR_DIVERGED);
    must_say(what);
    must_say("post_attention_layernorm.weight has NaN (element 23)");
    shell("test \"$(ls %s/checkpoints | tr '\\n' ' ')\" = 'latest step-000001 '", run);
    if (kind == STATE_PARAM) {
        snprintf(dir, sizeof dir, "%s/export", run);
        assert_int_equal(checkpoint_export(a.session, dir, NULL, EXPORT_ONE_FILE), ERR_DIVERGED);
        must_say("post_attention_layernorm.weight has NaN (element 23)");
        shell("test ! -e %s", dir);
    }
    start(&b, host, dtype, NULL, NULL);
    assert_int_equal(find_and_load(&b).step, 1);
    assert_true(digest(&b) == want);
    rig_stop(&a);
    rig_stop(&b);
    shell("rm -r %s/checkpoints", run);
}

static void only_finite_state_is_saved(void **state)
{
    (void)state;
    check_not_finite(resident, F32, STATE_PARAM, "model.layers.1.");
    check_not_finite(nvme, F32, STATE_M, "the first moment of model.layers.1.");
    check_not_finite(host, F32, STATE_V, "the second moment of model.layers.1.");
    check_not_finite(nvme, BF16, STATE_MASTER, "the master of model.layers.1.");
    check_not_finite(resident, BF16, STATE_PARAM, "model.layers.1.");
    check_not_finite(host_bf16_moments, F32, STATE_V, "the second moment of model.layers.1.");
}

static void keeps_the_last(void **state)
{
    (void)state;
    struct rig r;
    char path[256], note[256];
    struct checkpoint_info info;
    start(&r, resident, F32, NULL, NULL);
    assert_int_equal(checkpoint_find(self, run, path, sizeof path, &info, note, sizeof note), ERR_INVALID);
    must_say("has no checkpoint");
    for (int64_t step = 1; step <= 5; step++)
        save(&r, step, 2);
    assert_names("latest step-000004 step-000005 ");
    assert_int_equal(find_and_load(&r).step, 5);
    /* remains of killed saves are removed; checkpoints of later steps stay until the run has passed them */
    shell("cd %s/checkpoints && cp -r step-000004 step-000009.partial && cp -r step-000004 step-000002.old && touch "
          "step-000009.partial/x",
          run);
    save(&r, 3, 1);
    assert_names("latest step-000003 step-000004 step-000005 ");
    assert_int_equal(find_and_load(&r).step, 3);
    save(&r, 1234567, 1);
    assert_names("latest step-1234567 ");
    save(&r, 1234567, 1);
    assert_names("latest step-1234567 ");
    assert_int_equal(find_and_load(&r).step, 1234567);
    rig_stop(&r);
}

/* Sets the run back to a step, as a user does by hand, and loads it. */
static void set_back(struct rig *r, int step)
{
    shell("echo step-%06d >%s/checkpoints/latest", step, run);
    assert_int_equal(find_and_load(r).step, step);
}

static void must_find(int64_t step, const char *words)
{
    char path[256], note[512];
    struct checkpoint_info info;
    must(checkpoint_find(self, run, path, sizeof path, &info, note, sizeof note));
    assert_int_equal(info.step, step);
    if (!strstr(note, words))
        fail_msg("\"%s\" is not said in: %s", words, note);
}

/* If a checkpoint is damaged, the run falls back to the checkpoint's ancestors, not to later steps of an abandoned branch. */
static void falls_back_along_its_branch(void **state)
{
    (void)state;
    struct rig r;
    start(&r, resident, F32, NULL, NULL);
    for (int64_t step = 1; step <= 8; step++)
        save(&r, step, 99);
    set_back(&r, 2);
    save(&r, 4, 99);
    save(&r, 6, 99);
    set_back(&r, 4); /* the run is set back again, so that step 6 belongs to an abandoned branch, too */
    save(&r, 7, 99);
    shell("echo x >>%s/checkpoints/step-000007/model.safetensors", run);
    must_find(4, "taking step-000004 instead");
    shell("echo x >>%s/checkpoints/step-000004/optimizer.safetensors", run);
    must_find(2, "step-000007/model.safetensors");
    shell("rm %s/checkpoints/step-000007/manifest.json", run);
    /* the branch is unknown now, so the last remaining save counts */
    must_find(6, "step-000007/manifest.json is missing; taking step-000006 instead, perhaps of another branch of the run");
    shell("rm -r %s/checkpoints/step-000007", run);
    must_find(6, "taking step-000006 instead");
    shell("rm -r %s/checkpoints/step-000006; rm %s/checkpoints/latest", run, run);
    must_find(2, "taking step-000002"); /* follows the last save (step 4), which is damaged */
    rig_stop(&r);
}

/* If no manifest tells the branch of `latest`, later steps than its own are still not taken for its past. */
static void unknown_branch_ends_at_latest(void **state)
{
    (void)state;
    struct rig r;
    start(&r, resident, F32, NULL, NULL);
    for (int64_t step = 2; step <= 8; step += 2)
        save(&r, step, 99);
    shell("echo x >%s/checkpoints/step-000008/manifest.json", run);
    must_find(6, "step-000008/manifest.json is damaged: it is not a JSON object; taking step-000006 instead");
    save(&r, 8, 99);
    set_back(&r, 2);
    save(&r, 4, 99);
    save(&r, 6, 99);
    shell("for s in 4 6; do echo x >%s/checkpoints/step-00000$s/manifest.json; done", run);
    must_find(2, "taking step-000002 instead, perhaps of another branch of the run");
    shell("rm -r %s/checkpoints/step-000006", run);
    must_find(2, "taking step-000002 instead, perhaps of another branch of the run");
    shell("rm -r %s/checkpoints/step-000002", run);
    must_find(8, "taking step-000008 instead");
    rig_stop(&r);
}

/* --keep keeps the run's own ancestors rather than abandoned branches. */
static void keeps_its_branch(void **state)
{
    (void)state;
    struct rig r;
    start(&r, resident, F32, NULL, NULL);
    for (int64_t step = 1; step <= 4; step++)
        save(&r, step, 99);
    set_back(&r, 1);
    save(&r, 6, 2); /* 2, 3 and 4 are on the other branch */
    assert_names("latest step-000001 step-000006 ");
    shell("echo x >>%s/checkpoints/step-000006/model.safetensors", run);
    must_find(1, "taking step-000001 instead");
    rig_stop(&r);
}

/* Remains of killed saves and exports are removed before anything is saved, since their space may be needed. */
static void leftovers_go_first(void **state)
{
    (void)state;
    struct rig r;
    int64_t step;
    struct checkpoint_info info = info_of(3);
    start(&r, resident, F32, NULL, NULL);
    save(&r, 1, 2);
    save(&r, 2, 2);
    shell("cd %s/checkpoints && cp -r step-000001 step-000003.partial && cp -r step-000001 step-000004.old.partial && "
          "cp -r step-000001 step-000002.old && mkdir -p ../hf/export.partial && touch ../hf/export.partial/x ../hf/config.json",
          run);
    assert_int_equal(checkpoint_count(run, &step), 2);
    assert_int_equal(step, 2);
    checkpoint_remove_dead(run);
    assert_names("latest step-000001 step-000002 step-000002.old ");
    shell("test \"$(ls %s/hf)\" = config.json", run);
    shell("cd %s/checkpoints && cp -r step-000001 step-000005.partial", run);
    sys_inject_clear();
    sys_inject(SYS_FALLOCATE, 1, ENOSPC);
    assert_int_equal(checkpoint_save(r.session, run, &info, NULL, 2), ERR_IO);
    sys_inject_clear();
    assert_names("latest step-000001 step-000002 step-000002.old ");
    rig_stop(&r);
}

/* A checkpoint was moved to an archive and replaced by a link: the link may be removed, the archive stays. */
static void leaves_what_is_behind_links(void **state)
{
    (void)state;
    struct rig r;
    start(&r, resident, F32, NULL, NULL);
    save(&r, 1, 2);
    save(&r, 2, 2);
    shell("cd %s && mkdir archive && mv checkpoints/step-000001 archive && ln -s ../archive/step-000001 checkpoints && "
          "ln -s ../archive/step-000001 checkpoints/step-000009.partial",
          run);
    save(&r, 3, 1);
    assert_names("latest step-000003 ");
    shell("test $(ls %s/archive/step-000001 | wc -l) = 7", run);
    shell("cd %s && mv checkpoints/step-000003 archive && ln -s ../archive/step-000003 checkpoints", run);
    save(&r, 3, 1); /* the same step again */
    assert_names("latest step-000003 ");
    shell("test $(ls %s/archive/step-000003 | wc -l) = 7", run);
    rig_stop(&r);
}

static void latest_is_not_trusted(void **state)
{
    (void)state;
    static const char *const damage[] = {
        "rm latest", "echo nonsense >latest",  "echo ../../etc >latest", "echo step-000007 >latest",
        ": >latest", "rm latest; mkdir latest"};
    struct rig r;
    char path[256], note[256];
    struct checkpoint_info info;
    start(&r, resident, F32, NULL, NULL);
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        save(&r, 1, 2);
        save(&r, 2, 2);
        shell("cd %s/checkpoints && %s", run, damage[i]);
        must(checkpoint_find(self, run, path, sizeof path, &info, note, sizeof note));
        assert_int_equal(info.step, 2);
        assert_non_null(strstr(note, "taking step-000002"));
    }
    /* killed between the two renames of a replacement */
    shell("cd %s/checkpoints && rm -rf latest step-000001 && mv step-000002 step-000002.old && mkdir step-000002.partial", run);
    save(&r, 5, 1);
    shell("cd %s/checkpoints && mv step-000005 step-000005.old", run);
    must(checkpoint_find(self, run, path, sizeof path, &info, note, sizeof note));
    assert_int_equal(info.step, 5);
    assert_non_null(strstr(note, "step-000005.old"));
    save(&r, 5, 1);
    assert_names("latest step-000005 ");
    rig_stop(&r);
}

/* ---- damaged checkpoints ---- */

/* Damage to step 2, and the file that the message must name. */
static const struct {
    const char *command, *names;
} wrongs[] = {
    {"truncate -s -1 model.safetensors", "model.safetensors"},
    {"truncate -s 100 optimizer.safetensors", "optimizer.safetensors"},
    {"truncate -s 0 config.json", "config.json"},
    {"echo >>model.safetensors", "model.safetensors"},
    {"rm model.safetensors", "model.safetensors is missing"},
    {"rm optimizer.safetensors", "optimizer.safetensors is missing"},
    {"rm config.json", "config.json is missing"},
    {"rm manifest.json", "manifest.json is missing"},
    {"truncate -s -1 manifest.json", "manifest.json is damaged"},
    {": >manifest.json", "manifest.json is damaged"},
    {"echo '[1, 2]' >manifest.json", "manifest.json is damaged"},
    {"echo '{}' >manifest.json", "manifest.json is damaged"},
    {"head -c 300 /dev/urandom >manifest.json", "manifest.json is damaged"},
    {"cp ../step-000001/manifest.json manifest.json", "model.safetensors is damaged"},
};

static void flip_byte(const char *path, off_t at)
{
    unsigned char c;
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &c, 1, at), 1);
    c ^= 1;
    assert_int_equal(pwrite(fd, &c, 1, at), 1);
    close(fd);
}

/* Checks that loading the damaged step 2 says why and changes nothing, and that finding falls back on step 1 and notes it. */
static void check_refused(struct rig *r, const char *path, const char *names)
{
    char found[256], note[512];
    struct checkpoint_info info;
    uint64_t before = digest(r);
    assert_int_equal(checkpoint_load(r->session, path), ERR_CORRUPT);
    must_say(names);
    assert_true(digest(r) == before);
    must(checkpoint_find(self, run, found, sizeof found, &info, note, sizeof note));
    assert_int_equal(info.step, 1);
    assert_non_null(strstr(note, names));
    assert_non_null(strstr(note, "taking step-000001 instead"));
}

static void damage_is_named(void **state)
{
    (void)state;
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "config.json", "manifest.json"};
    struct rig r;
    double loss[1];
    char path[256], file[300], note[512];
    struct checkpoint_info info;
    start(&r, resident, F32, NULL, NULL);
    save(&r, 1, 2);
    train(&r, 0, 1, loss);
    save(&r, 2, 2);
    snprintf(path, sizeof path, "%s/checkpoints/step-000002", run);
    shell("cp -r %s %s/good", path, run);
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        shell("cd %s && %s", path, wrongs[i].command);
        check_refused(&r, path, wrongs[i].names);
        shell("rm -r %s && cp -r %s/good %s", path, run, path);
    }
    for (int i = 0; i < 4; i++) {
        struct stat s;
        snprintf(file, sizeof file, "%s/%s", path, files[i]);
        assert_int_equal(stat(file, &s), 0);
        for (off_t at = 0; at < s.st_size; at += i == 3 ? 1 : s.st_size / 5) { /* every byte of the manifest */
            flip_byte(file, at);
            check_refused(&r, path, files[i]);
            flip_byte(file, at);
        }
    }
    assert_int_equal(find_and_load(&r).step, 2);
    shell("rm %s/manifest.json %s/checkpoints/step-000001/config.json", path, run);
    assert_int_equal(checkpoint_find(self, run, path, sizeof path, &info, note, sizeof note), ERR_INVALID);
    must_say("has no whole checkpoint");
    rig_stop(&r);
}

static void other_models_are_refused(void **state)
{
    (void)state;
    struct model_config other[7];
    const char *const says[] = {"hidden size is 24 there and 32",
                                "number of layers is 2 there and 1",
                                "tied head is yes there and no in this run",
                                "rope_theta",
                                "key-value heads",
                                "model family is llama there and gpt2 in this run",
                                "sliding window is none there and 16"};
    struct rig a, b;
    char path[256];
    for (int i = 0; i < 7; i++)
        other[i] = small_config();
    other[0].dim = 32;
    other[1].layers = 1;
    other[2].tied = 0;
    other[3].rope_theta = 500000;
    other[4].kv_heads = 2;
    other[5].family = FAMILY_GPT2, other[5].dim = 32, other[5].kv_heads = 2, other[5].rope_theta = 0;
    other[6].window = 16;
    start(&a, resident, F32, NULL, NULL);
    save(&a, 1, 1);
    rig_stop(&a);
    snprintf(path, sizeof path, "%s/checkpoints/step-000001", run);
    for (int i = 0; i < 7; i++) {
        start(&b, resident, F32, NULL, &other[i]);
        assert_int_equal(checkpoint_load(b.session, path), ERR_INVALID);
        must_say(says[i]);
        rig_stop(&b);
    }
    start(&b, resident, F32, "model.layers.1.mlp.up_proj.weight", NULL);
    assert_int_equal(checkpoint_load(b.session, path), ERR_INVALID);
    must_say("trained model.layers.1.mlp.up_proj.weight, which this run freezes");
    save(&b, 1, 1);
    rig_stop(&b);
    start(&b, resident, F32, NULL, NULL);
    assert_int_equal(checkpoint_load(b.session, path), ERR_INVALID);
    must_say("had model.layers.1.mlp.up_proj.weight frozen, which this run trains");
    rig_stop(&b);
}

/* ---- failures and kills while saving ---- */

/* Two sessions whose states, distinguished by info.updates, are saved alternately; a third session loads the checkpoint that is
 * found. */
struct turns {
    struct rig rig[2], loaded;
    uint64_t digest[2], last, id; /* last: cursor of the checkpoint that was found last; id: id of the last save */
    int64_t step;
    int noted; /* 1: the checkpoint found last is not the one that `latest` names */
};

static void turns_start(struct turns *t)
{
    double loss[2];
    memset(t, 0, sizeof *t);
    for (int i = 0; i < 2; i++) {
        start(&t->rig[i], resident, BF16, NULL, NULL);
        train(&t->rig[i], 0, 1 + i, loss);
        t->digest[i] = digest(&t->rig[i]);
    }
    start(&t->loaded, resident, BF16, NULL, NULL);
    assert_true(t->digest[0] != t->digest[1]);
}

static void turns_stop(struct turns *t)
{
    rig_stop(&t->rig[0]);
    rig_stop(&t->rig[1]);
    rig_stop(&t->loaded);
}

/* Saves the next state; every third save repeats a step. */
static enum status turns_save(struct turns *t)
{
    t->id++;
    t->step += t->id % 3 != 0;
    struct checkpoint_info info = info_of(t->step);
    info.cursor = t->id;
    info.updates = (int64_t)(t->id % 2);
    return checkpoint_save(t->rig[t->id % 2].session, run, &info, NULL, 1);
}

/* Checks that the checkpoint found last, or the one just saved, is found and complete. */
static void turns_check(struct turns *t, int saved)
{
    char path[256], note[512];
    struct checkpoint_info info;
    must(checkpoint_find(self, run, path, sizeof path, &info, note, sizeof note));
    must(checkpoint_load(t->loaded.session, path));
    assert_true(digest(&t->loaded) == t->digest[info.updates]);
    assert_int_equal(info.updates, info.cursor % 2);
    if (info.cursor != t->id && (saved || info.cursor != t->last))
        fail_msg("found the save %d, expected %d or before it %d", (int)info.cursor, (int)t->id, (int)t->last);
    t->last = info.cursor;
    /* only a replacement may leave `latest` naming a missing checkpoint */
    if (note[0] && (saved || (t->id % 3 != 0 && !t->noted)))
        fail_msg("save %d: %s", (int)t->id, note);
    t->noted = note[0] != 0;
}

/* Checks that no remains of killed saves are left. */
static void assert_pruned(const struct turns *t)
{
    char names[64];
    snprintf(names, sizeof names, "latest step-%06d ", (int)t->step);
    assert_names(names);
}

/* The n-th call of a kind may fail, for every n. */
static void any_call_may_fail(void **state)
{
    (void)state;
    static const struct {
        enum sys_call call;
        int error, harmless;
    } faults[] = {
        {SYS_OPEN, EMFILE, 0},      {SYS_CLOSE, EIO, 0},        {SYS_PREAD, EIO, 0},
        {SYS_PREAD, SYS_SHORT, 1},  {SYS_PWRITE, ENOSPC, 0},    {SYS_PWRITE, EINTR, 1},
        {SYS_PWRITE, SYS_SHORT, 1}, {SYS_FSYNC, EIO, 0},        {SYS_RENAME, EIO, 0},
        {SYS_UNLINK, EACCES, 0},    {SYS_MKDIR, ENOSPC, 0},     {SYS_MALLOC, ENOMEM, 0},
        {SYS_STATVFS, EIO, 1},      {SYS_FALLOCATE, ENOSPC, 0}, {SYS_FALLOCATE, EOPNOTSUPP, 1},
    };
    struct turns t;
    turns_start(&t);
    must(turns_save(&t));
    turns_check(&t, 1);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        int failures = 0, fired = 1;
        for (int n = 1; fired; n++) {
            sys_inject_clear();
            sys_inject(faults[i].call, n, faults[i].error);
            status_fail(OK, "no sentence");
            enum status st = turns_save(&t);
            fired = sys_count(faults[i].call) >= n;
            sys_inject_clear();
            assert_true(st == OK || (fired && !faults[i].harmless && strcmp(status_message(), "no sentence") != 0));
            failures += st != OK;
            turns_check(&t, st == OK);
        }
        if (!faults[i].harmless && faults[i].call != SYS_UNLINK)
            assert_true(failures > 0);
    }
    must(turns_save(&t));
    assert_pruned(&t);
    turns_stop(&t);
}

static int same_files(const char *a, const char *b, const char *name)
{
    char command[512];
    snprintf(command, sizeof command, "cmp -s %s/%s %s/%s", a, name, b, name);
    return system(command) == 0;
}

/* A save goes on if directories cannot be synced; a file's fsync that fails with the same error ends it. */
static void directories_may_have_no_fsync(void **state)
{
    (void)state;
    static const int none[] = {EINVAL, EBADF, ENOSYS, EOPNOTSUPP};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        sys_inject(SYS_FSYNC, 1, none[i]);
        must(directory_sync(run));
    }
    sys_inject(SYS_FSYNC, 1, EIO);
    assert_int_equal(directory_sync(run), ERR_IO);
    must_say("cannot sync the directory");
    char path[CKPT_PATH];
    must(ckpt_path(path, run, "text", ""));
    sys_inject(SYS_FSYNC, 1, EINVAL);
    assert_int_equal(ckpt_write_text(path, "words"), ERR_IO);
    sys_inject_clear();
}

/* The tokenizer's files are kept and exported: whatever fails, config.json never exists without them. */
static void texts_may_fail(void **state)
{
    static const struct {
        enum sys_call call;
        int error;
    } faults[] = {{SYS_OPEN, EMFILE}, {SYS_CLOSE, EIO},  {SYS_PREAD, EIO},    {SYS_PREAD, SYS_SHORT}, {SYS_PWRITE, ENOSPC},
                  {SYS_FSYNC, EIO},   {SYS_RENAME, EIO}, {SYS_MKDIR, ENOSPC}, {SYS_MALLOC, ENOMEM}};
    struct rig r;
    char from[128], kept[128], dir[128];
    (void)state;
    start(&r, resident, F32, NULL, NULL);
    snprintf(from, sizeof from, "%s/from", run);
    snprintf(kept, sizeof kept, "%s/kept", run);
    snprintf(dir, sizeof dir, "%s/hf", run);
    shell("mkdir %s && head -c 300000 /dev/urandom >%s/tokenizer.json && echo '{}' >%s/generation_config.json", from, from, from);
    must(model_config_write(from, &r.model->config, F32));
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        int failures = 0, fired = 1;
        for (int n = 1; fired; n++) {
            shell("rm -rf %s %s", kept, dir);
            sys_inject(faults[i].call, n, faults[i].error);
            status_fail(OK, "no sentence");
            enum status st = checkpoint_keep_texts(from, NULL, kept);
            if (same_files(from, kept, "config.json"))
                assert_true(same_files(from, kept, "tokenizer.json") && same_files(from, kept, "generation_config.json"));
            if (st == OK)
                st = checkpoint_export(r.session, dir, &(struct export_texts){.like = kept, .facts = "{}", .card = "# card"},
                                       EXPORT_ONE_FILE);
            fired = sys_count(faults[i].call) >= n;
            sys_inject_clear();
            assert_true(st == OK || (fired && strcmp(status_message(), "no sentence") != 0));
            if (st == OK)
                assert_true(same_files(from, dir, "tokenizer.json") && same_files(from, dir, "generation_config.json"));
            failures += st != OK;
        }
        assert_true(failures > 0 || faults[i].error == SYS_SHORT);
    }
    rig_stop(&r);
}

/* Faults while a checkpoint is looked for lead at worst to an older checkpoint with a note, or to a failure; never to a wrong
 * checkpoint. */
static void finding_may_fail(void **state)
{
    (void)state;
    static const enum sys_call calls[] = {SYS_OPEN, SYS_PREAD, SYS_MALLOC};
    struct turns t;
    char path[256], note[512];
    struct checkpoint_info info;
    turns_start(&t);
    must(turns_save(&t));
    for (int i = 0; i < 3; i++)
        for (int n = 1, fired = 1; fired; n++) {
            sys_inject_clear();
            sys_inject(calls[i], n, EIO);
            enum status st = checkpoint_find(self, run, path, sizeof path, &info, note, sizeof note);
            if (st == OK)
                st = checkpoint_load(t.loaded.session, path);
            fired = sys_count(calls[i]) >= n;
            sys_inject_clear();
            assert_true(st == OK ? digest(&t.loaded) == t.digest[1] : fired);
        }
    turns_check(&t, 1);
    turns_stop(&t);
}

/* The directory is listed again if a running run has removed listed checkpoints before they are examined. */
static void newest_looks_again(void **state)
{
    (void)state;
    struct rig r;
    char path[256];
    start(&r, resident, F32, NULL, NULL);
    assert_int_equal(checkpoint_newest(run, path, sizeof path), ERR_INVALID);
    must_say("has no checkpoint");
    save(&r, 1, 1);
    for (int n = 1, fired = 1; fired; n++) {
        sys_inject_clear();
        sys_inject(SYS_OPEN, n, ENOENT);
        must(checkpoint_newest(run, path, sizeof path));
        fired = sys_count(SYS_OPEN) >= n;
        sys_inject_clear();
        assert_non_null(strstr(path, "step-000001"));
    }
    shell("rm %s/checkpoints/step-000001/config.json", run);
    assert_int_equal(checkpoint_newest(run, path, sizeof path), ERR_INVALID);
    must_say("has no checkpoint");
    rig_stop(&r);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void kills(void **state)
{
    (void)state;
    struct turns t;
    int trials = getenv("LTRAIN_LONG") ? 50 : 10, killed = 0, took = 0;
    turns_start(&t);
    must(turns_save(&t));
    turns_check(&t, 1);
    double begin = seconds();
    must(turns_save(&t));
    double duration = seconds() - begin;
    turns_check(&t, 1);
    for (int i = 0; i < trials; i++) {
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(turns_save(&t) == OK ? 0 : 1);
        t.id++; /* repeats what the child counted in its own memory */
        t.step += t.id % 3 != 0;
        double wait = duration * (double)rng_below((uint64_t)getpid(), 1, (uint64_t)i, 1500) / 1000;
        nanosleep(&(struct timespec){.tv_sec = (time_t)wait, .tv_nsec = (long)((wait - (double)(time_t)wait) * 1e9)}, NULL);
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        killed += WIFSIGNALED(status);
        assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
        turns_check(&t, !WIFSIGNALED(status));
        took += t.last == t.id;
    }
    print_message("%d of %d saves of %.1f ms killed, %d in force\n", killed, trials, 1e3 * duration, took);
    must(turns_save(&t));
    turns_check(&t, 1);
    assert_pruned(&t);
    turns_stop(&t);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, new_run, drop_run)

/* The room for copied texts counts the files that are copied, templates by name too, and nothing else that lies there. */
static void bytes_of_texts(void **state)
{
    (void)state;
    const struct {
        const char *name;
        int bytes;
    } files[] = {{"config.json", 1},
                 {"tokenizer.json", 20},
                 {"weights.bin", 300},
                 {"additional_chat_templates/tool_use.jinja", 4000},
                 {"additional_chat_templates/rag.jinja", 50000},
                 {"additional_chat_templates/notes.txt", 600000},
                 {"additional_chat_templates/.jinja", 7000000}};
    shell("mkdir %s/additional_chat_templates %s/additional_chat_templates/directory.jinja", run, run);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        shell("truncate -s %d %s/%s", files[i].bytes, run, files[i].name);
    assert_int_equal(checkpoint_texts_bytes(run), 54021);
    shell("rm -r %s/additional_chat_templates", run);
    assert_int_equal(checkpoint_texts_bytes(run), 21);
    char path[128];
    snprintf(path, sizeof path, "%s/weights.bin", run);
    assert_int_equal(checkpoint_texts_bytes(path), 300); /* --tokenizer may name a file */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(moves_fp32),
        TEST(moves_bf16),
        TEST(moves_frozen),
        TEST(moves_gpt2),
        TEST(fp32_into_bf16_and_back),
        TEST(moments_load_into_either_type),
        TEST(exports),
        TEST(exports_in_parts),
        TEST(only_finite_state_is_saved),
        TEST(keeps_the_last),
        TEST(falls_back_along_its_branch),
        TEST(unknown_branch_ends_at_latest),
        TEST(keeps_its_branch),
        TEST(leftovers_go_first),
        TEST(leaves_what_is_behind_links),
        TEST(latest_is_not_trusted),
        TEST(damage_is_named),
        TEST(other_models_are_refused),
        TEST(any_call_may_fail),
        TEST(finding_may_fail),
        TEST(newest_looks_again),
        TEST(texts_may_fail),
        TEST(directories_may_have_no_fsync),
        TEST(bytes_of_texts),
        cmocka_unit_test_setup_teardown(kills, new_run_on_disk, drop_run),
    };
    if (comm_create_self(&self) != OK)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    comm_destroy(self);
    return failed;
}
