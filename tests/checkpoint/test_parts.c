/* Tests sessions of parts of a model: they load what a session of the whole model has saved, and together save the same files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/files.h"
#include "checkpoint/manifest.h"
#include "checkpoint/state.h"
#include "engine/rig.h"
#include "model/part.h"
#include "plan/cells.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { S = 64, STEPS = 2, MARK = 77 };
static const struct shard_form one_file;

static void must(enum status st)
{
    if (st != OK)
        fail_msg("%s", status_message());
}

static void start(struct rig *r, struct model *m, enum dtype dtype)
{
    rig_defaults(r, S);
    r->settings.plan.dtype = dtype;
    r->settings.plan.group = 3000;
    r->settings.plan.threads = 1;
    must(rig_start(r, m));
}

static void train(struct rig *r)
{
    for (int i = 0; i < STEPS; i++) {
        struct sequence q;
        double loss, norm;
        sequence_random(&q, S, 96, (uint64_t)(1 + i), NULL);
        must(rig_step(r, &q, 1, &loss, &norm));
        sequence_free(&q);
    }
    must(rig_flush(r));
}

static void compare_files(const char *a, const char *b, const char *name)
{
    char command[600];
    snprintf(command, sizeof command, "cmp %s/%s %s/%s", a, name, b, name);
    assert_int_equal(system(command), 0);
}

static void make_directory(const char *run, const char *name, char dir[256])
{
    snprintf(dir, 256, "%s/%s", run, name);
    must(ckpt_make_dir(dir));
    must(ckpt_mark(dir, MARK));
}

/* Saves the whole, loads it into sessions of all parts, one after another, and saves these; the files are the same. */
static void check(const char *run, enum model_family family, enum dtype dtype, int stages, int slices)
{
    struct model *whole;
    struct rig r;
    char saved[256], again[256];
    must(cell_model(family, 4, &whole));
    make_directory(run, "whole", saved);
    make_directory(run, "parts", again);
    start(&r, whole, dtype);
    must(session_initialise(r.session, 3));
    train(&r);
    must(state_create(r.session, saved, CKPT_CONFIG, &one_file));
    must(model_config_write(saved, &whole->config, dtype));
    must(state_write(r.session, saved, MARK, CKPT_CONFIG, &one_file));
    must(state_create(r.session, again, CKPT_CONFIG, &one_file));
    for (int k = 0; k < stages * slices; k++) {
        struct model_part part;
        struct model *m;
        struct rig own;
        must(model_stage(whole, k / slices, stages, k % slices, slices, &part));
        must(model_part_create(whole, &part, &m));
        start(&own, m, dtype);
        must(state_read(own.session, saved));
        own.session->origin = r.session->origin;
        must(state_write(own.session, again, MARK, CKPT_CONFIG, &one_file));
        rig_stop(&own);
    }
    rig_stop(&r);
    for (int i = 0; i < CKPT_CONFIG; i++)
        compare_files(saved, again, ckpt_file_names[i]);
}

static void parts(void **state)
{
    (void)state;
    char run[64], command[100];
    for (int i = 0; i < 4; i++) {
        strcpy(run, "/dev/shm/ltrain-parts-XXXXXX");
        assert_non_null(mkdtemp(run));
        check(run, i == 3 ? FAMILY_GPT2 : FAMILY_LLAMA, i == 1 ? BF16 : F32, i == 2 ? 3 : 2, i == 2 || i == 3 ? 1 : 2);
        snprintf(command, sizeof command, "rm -rf %s", run);
        assert_int_equal(system(command), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
