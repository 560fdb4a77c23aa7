/* Tests loading of weights into sessions: the same bits wherever the state is placed and whatever the number of reading threads,
 * and one sentence for any failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/sys.h"
#include "engine/rig.h"
#include "engine/weights.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { S = 64, MOST = 256 };

static char directory[] = "/tmp/ltrain-loading-XXXXXX";
static char path[128];

/* ---- reads, one of them after a change of the file ---- */

static int touch_at; /* number of reads until the file is changed, counted down */

/* Replaces the C library's pread, which programs with large-file support call by this name. */
ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    if (touch_at > 0 && --touch_at == 0) {
        const struct timespec later[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
        futimens(fd, later);
    }
    return syscall(SYS_pread64, fd, to, n, at);
}

/* ---- files and sessions ---- */

static struct model *make_model(void)
{
    struct model_config c;
    struct model *m;
    assert_int_equal(model_preset("tiny", &c), OK);
    c.layers = 2;
    c.vocab = 96;
    assert_int_equal(model_create(&c, NULL, 0, &m), OK);
    return m;
}

/* Returns a value computed from the parameter's and the element's numbers, so that any two tensors differ. */
static float value_of(int param, int64_t i)
{
    return ldexpf((float)((param * 7919 + i * 104729) % 16777213 - 8388607), -24);
}

/* Writes the model's weights, one element of which has a special value. */
static void write_file(const struct model *m, enum dtype type, int special, float value)
{
    static struct st_decl decls[MOST];
    struct st_writer *w;
    for (int i = 0; i < m->n_params; i++) {
        const struct model_param *p = &m->params[i];
        decls[i] = (struct st_decl){p->name, type, p->shape[1] ? 2 : 1, {p->shape[0], p->shape[1]}};
    }
    assert_int_equal(st_create(path, decls, m->n_params), OK);
    assert_int_equal(st_write_open(path, decls, m->n_params, &w), OK);
    for (int i = 0; i < m->n_params; i++) {
        const int64_t n = m->params[i].elements;
        float *x = malloc((size_t)n * sizeof *x);
        for (int64_t k = 0; k < n; k++)
            x[k] = value_of(i, k);
        if (i == special)
            x[n / 2] = value;
        assert_int_equal(st_write_f32(w, i, 0, n, x), OK);
        free(x);
    }
    assert_int_equal(st_write_finish(w), OK);
}

static const struct place {
    const char *name;
    enum offload params;
    enum device_kind device;
} places[] = {{"resident", OFFLOAD_NONE, DEVICE_CPU},
              {"on the host", OFFLOAD_CPU, DEVICE_CPU_DISCRETE},
              {"resident, out of reach", OFFLOAD_NONE, DEVICE_CPU_DISCRETE},
              {"on drives", OFFLOAD_NVME, DEVICE_CPU_DISCRETE}};
enum { PLACES = sizeof places / sizeof *places };

static void start(struct rig *r, const struct place *place, enum dtype dtype, int threads)
{
    rig_defaults(r, S);
    r->settings.plan.params = place->params;
    r->settings.plan.optim = place->params;
    r->settings.plan.device = place->device;
    r->settings.plan.dtype = dtype;
    r->settings.plan.threads = threads;
    assert_int_equal(rig_start(r, make_model()), OK);
}

static float rounded(enum dtype type, float x)
{
    return type == BF16 ? bf16_to_float(bf16_from_float(x)) : x;
}

/* Checks that parameters and masters are those of the file, and moments are zero. */
static void check_state(struct rig *r, enum dtype file, enum dtype dtype)
{
    for (int u = 0; u < r->model->n_units; u++) {
        const struct model_unit *unit = &r->model->units[u];
        float *have[STATE_GRAD];
        for (int k = 0; k < STATE_GRAD; k++) {
            have[k] = calloc((size_t)unit->elements, sizeof(float));
            assert_int_equal(rig_state(r, u, (enum state_kind)k, have[k]), OK);
        }
        for (int i = unit->first_param; i < unit->first_param + unit->n_params; i++) {
            const struct model_param *p = &r->model->params[i];
            for (int64_t k = 0; k < p->elements; k++) {
                const float stored = rounded(file, value_of(i, k));
                assert_true(have[STATE_PARAM][p->offset + k] == rounded(dtype, stored));
                assert_true(dtype == F32 || have[STATE_MASTER][p->offset + k] == stored);
                assert_true(have[STATE_M][p->offset + k] == 0 && have[STATE_V][p->offset + k] == 0);
            }
        }
        for (int k = 0; k < STATE_GRAD; k++)
            free(have[k]);
    }
}

static void bits_are_the_files(void **state)
{
    static const enum dtype types[] = {F32, BF16};
    struct model *m = make_model();
    (void)state;
    for (int f = 0; f < 2; f++) {
        write_file(m, types[f], -1, 0);
        for (int p = 0; p < PLACES; p++)
            for (int d = 0; d < 2; d++)
                for (int threads = 1; threads <= 3; threads += 2) {
                    struct rig r;
                    start(&r, &places[p], types[d], threads);
                    assert_int_equal(session_initialise(r.session, 3), OK);
                    if (session_load(r.session, path) != OK)
                        fail_msg("%s: %s", places[p].name, status_message());
                    check_state(&r, types[f], types[d]);
                    assert_int_equal(session_check_memory(r.session), OK);
                    rig_stop(&r);
                }
    }
    model_destroy(m);
}

/* The message names the first bad value in the order of the model. A value too large for bf16 is reported as such. */
static void values_are_named(void **state)
{
    char words[160];
    struct model *m = make_model();
    const int param = m->n_params / 2;
    const int64_t element = m->params[param].elements / 2;
    (void)state;
    for (int p = 0; p < PLACES; p++)
        for (int k = 0; k < 2; k++) {
            struct rig r;
            write_file(m, F32, param, k ? FLT_MAX : NAN);
            start(&r, &places[p], BF16, 3);
            for (int again = 0; again < 3; again++) {
                assert_int_equal(session_load(r.session, path), ERR_INVALID);
                snprintf(words, sizeof words, "tensor %s has %s (element %lld)", m->params[param].name, k ? "3.40282e+38" : "NaN",
                         (long long)element);
                if (!strstr(status_message(), words) || (k && !strstr(status_message(), "which bf16 does not hold")))
                    fail_msg("'%s' does not say '%s'", status_message(), words);
            }
            rig_stop(&r);
        }
    model_destroy(m);
}

static void every_call_may_fail(void **state)
{
    static const struct {
        enum sys_call call;
        int error, harmless;
    } faults[] = {{SYS_OPEN, EMFILE, 0}, {SYS_PREAD, EIO, 0},     {SYS_PREAD, SYS_SHORT, 1}, {SYS_PREAD, EINTR, 1},
                  {SYS_STAT, EIO, 0},    {SYS_MALLOC, ENOMEM, 0}, {SYS_THREAD, EAGAIN, 1}};
    struct model *m = make_model();
    (void)state;
    write_file(m, BF16, -1, 0);
    for (int p = 0; p < PLACES; p += 3) {
        struct rig r;
        start(&r, &places[p], BF16, 3);
        for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
            int failures = 0, fired = 1;
            for (int n = 1; fired; n += 1 + n / 8) {
                sys_inject(faults[i].call, n, faults[i].error);
                status_fail(OK, "no sentence");
                const enum status st = session_load(r.session, path);
                fired = sys_count(faults[i].call) >= n;
                sys_inject_clear();
                assert_true(st == OK || (fired && !faults[i].harmless && strcmp(status_message(), "no sentence") != 0));
                failures += st != OK;
            }
            assert_true(failures > 0 || faults[i].harmless);
            check_state(&r, BF16, BF16);
        }
        rig_stop(&r);
    }
    model_destroy(m);
}

static void a_file_that_changes_is_noticed(void **state)
{
    struct model *m = make_model();
    struct rig r;
    (void)state;
    write_file(m, BF16, -1, 0);
    start(&r, &places[0], BF16, 1);
    assert_int_equal(session_load(r.session, path), OK);
    touch_at = 10; /* changes the file at the tenth read; the first two read the header */
    assert_int_equal(session_load(r.session, path), ERR_CORRUPT);
    assert_non_null(strstr(status_message(), "the files changed while they were read"));
    assert_int_equal(touch_at, 0);
    rig_stop(&r);
    model_destroy(m);
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(directory))
        return -1;
    snprintf(path, sizeof path, "%s/model.safetensors", directory);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_the_files),
        cmocka_unit_test(values_are_named),
        cmocka_unit_test(every_call_may_fail),
        cmocka_unit_test(a_file_that_changes_is_noticed),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
