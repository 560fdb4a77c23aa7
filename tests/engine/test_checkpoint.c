/* Checkpoints: any placement loads any other's, whatever fails or is killed on the way a whole one is found, wrong ones are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/sys.h"
#include "base/rng.h"
#include "engine/checkpoint.h"
#include "engine/rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { S = 96, SEED = 5 };

static char run[64]; /* the run's directory of the test at hand */

/* ---- helpers ---- */

static void must(enum status st)
{
    if (st != OK)
        fail_msg("%s", status_message());
}

static void shell(const char *format, ...)
{
    char command[512];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    assert_int_equal(system(command), 0);
}

static int new_run(void **state)
{
    (void)state;
    strcpy(run, "/tmp/ltrain-ckpt-XXXXXX");
    return mkdtemp(run) ? 0 : -1;
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
    return (struct model_config){.family = FAMILY_LLAMA, .vocab = 50, .dim = 24, .ffn = 40, .layers = 2, .heads = 2, .kv_heads = 1, .head_dim = 16,
                                 .max_positions = 512, .tied = 1, .norm_eps = 1e-5f, .init_std = 0.02f, .rope_theta = 10000, .name = "small"};
}

typedef void placement(struct settings *s);

static void resident(struct settings *s)
{
    (void)s;
}

static void host(struct settings *s)
{
    s->params = s->grads = s->optim = s->acts = OFFLOAD_CPU;
    s->alpha = 0.5;
    s->group = 640;
}

static void nvme(struct settings *s)
{
    s->params = s->grads = s->optim = s->acts = OFFLOAD_NVME;
    s->device = DEVICE_CPU_DISCRETE;
    s->alpha = 0;
    s->group = 3000;
}

static void start(struct rig *r, placement *place, enum dtype dtype, const char *freeze, const struct model_config *config)
{
    struct model_config c = config ? *config : small_config();
    struct model *model;
    rig_defaults(r, S);
    r->settings.dtype = dtype;
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
    return (struct checkpoint_info){.step = step, .cursor = (uint64_t)(3 * step), .updates = step, .seed = ~(uint64_t)0, .numerics = "rows=32 \"key\""};
}

static void save(struct rig *r, int64_t step, int keep)
{
    struct checkpoint_info info = info_of(step);
    must(checkpoint_save(r->session, run, &info, keep));
}

/* Finds, wants no note, loads. */
static struct checkpoint_info find_and_load(struct rig *r)
{
    char path[256], note[256];
    struct checkpoint_info info;
    must(checkpoint_find(run, path, sizeof path, &info, note, sizeof note));
    assert_string_equal(note, "");
    must(checkpoint_load(r->session, path));
    return info;
}

/* ---- placements ---- */

/* Flushing after each pair of steps is part of both runs: an update's place does not change numbers. */
static void check_move(placement *from, placement *to, enum dtype dtype, const char *freeze)
{
    struct rig a, b;
    double whole[4], resumed[2];
    start(&a, from, dtype, freeze, NULL);
    train(&a, 0, 2, whole);
    save(&a, 2, 2);
    uint64_t want = digest(&a);
    train(&a, 2, 2, whole + 2);
    start(&b, to, dtype, freeze, NULL);
    must(session_initialise(b.session, SEED + 1));
    struct checkpoint_info info = find_and_load(&b), saved = info_of(2);
    assert_memory_equal(&info, &saved, sizeof info);
    if (a.settings.group == b.settings.group)
        assert_true(digest(&b) == want);
    b.updates = info.updates;
    train(&b, 2, 2, resumed);
    assert_memory_equal(resumed, whole + 2, sizeof resumed);
    rig_stop(&a);
    rig_stop(&b);
}

static void moves_fp32(void **state)
{
    (void)state;
    check_move(nvme, resident, F32, NULL);
    check_move(resident, nvme, F32, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(moves_fp32, new_run, drop_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
