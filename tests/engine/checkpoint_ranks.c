/* Checkpoints of several ranks, to be started under mpiexec: saved on one mesh and resumed on others, failures and kills of one
 * rank. Started by test_checkpoint_ranks.sh.
 *
 * Usage: checkpoint_ranks save|resume|faults|kill DIR [--long | SEED]. */
#include "engine/rig.h"

#include "base/clock.h"
#include "base/rng.h"
#include "base/sys.h"
#include "comm/launch.h"
#include "engine/checkpoint.h"
#include "plan/cells.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#include <xxhash.h>

enum { S = 90, STEPS = 3, BATCH = 4 };

static struct comm *comm;
static int rank, size, failures;
static const char *dir;

#define CHECK(x, ...)                                                       \
    do {                                                                    \
        if (!(x)) {                                                         \
            failures++;                                                     \
            fprintf(stderr, "rank %d of %d: not ok: %s: ", rank, size, #x); \
            fprintf(stderr, __VA_ARGS__);                                   \
            fputc('\n', stderr);                                            \
        }                                                                   \
    } while (0)

/* What cannot go on ends all ranks. */
static void must(enum status st, const char *what)
{
    if (st == OK)
        return;
    fprintf(stderr, "rank %d of %d: not ok: %s: %s\n", rank, size, what, status_message());
    comm_fail(comm, st, status_message());
    comm_destroy(comm);
    _exit(1);
}

/* ---- runs ---- */

struct layout {
    struct mesh mesh;
    int zero, nvme;
};

static void start(struct rig *r, const struct layout *l, enum dtype dtype, int layers, uint64_t seed)
{
    struct model *m;
    struct settings *s = &r->settings;
    must(comm_set_mesh(comm, &l->mesh), "mesh");
    rig_defaults(r, S);
    s->dp = l->mesh.dp;
    s->ulysses = l->mesh.ulysses;
    s->ring = l->mesh.ring;
    s->zero = l->zero;
    s->dtype = dtype;
    s->grad_accum = ceil_div(BATCH, s->dp);
    s->batch = BATCH;
    s->lr = 1e-2;
    s->threads = 1;
    if (l->nvme) {
        s->params = s->grads = s->optim = s->acts = OFFLOAD_NVME;
        s->alpha = 0;
        s->device = DEVICE_CPU_DISCRETE;
    }
    r->comm = comm;
    must(cell_model(FAMILY_LLAMA, layers, &m), "model");
    must(rig_start(r, m), "start");
    must(session_initialise(r->session, seed), "initialise");
}

/* STEPS steps with data of their own, the update not left pending. */
static void train(struct rig *r, int first, double loss[STEPS])
{
    for (int i = 0; i < STEPS; i++) {
        struct sequence batch[BATCH];
        double norm;
        for (int b = 0; b < BATCH; b++)
            sequence_random(&batch[b], S, 96, (uint64_t)(100 + BATCH * (first + i) + b), NULL);
        must(rig_step(r, batch, BATCH, &loss[i], &norm), "step");
        for (int b = 0; b < BATCH; b++)
            sequence_free(&batch[b]);
    }
    must(rig_flush(r), "flush");
}

/* ---- digests that do not depend on who holds what: sums over elements ---- */

struct digest {
    uint64_t sum;
    int64_t elements;
    int kind; /* under which elements count */
};

static enum status add_elements(void *user, int unit, int64_t first, int64_t n, float *data)
{
    struct digest *d = user;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &data[i], 4);
        const uint64_t element[3] = {(uint64_t)(unit * 8 + d->kind), (uint64_t)(first + i), bits};
        d->sum += XXH3_64bits(element, sizeof element);
    }
    d->elements += n;
    return OK;
}

/* Over all ranks; what every rank holds whole must be equal on all of them. fp32 masters count as parameters. */
static uint64_t digest_kind(struct rig *r, enum state_kind kind)
{
    struct digest d = {.kind = kind == STATE_MASTER && r->settings.dtype == F32 ? STATE_PARAM : kind};
    uint64_t *all = calloc((size_t)size, sizeof *all), sum = 0;
    int sharded = session_sharded(r->session, kind);
    for (int u = 0; u < r->model->n_units; u++)
        must(session_visit(r->session, u, kind, STATE_READ, add_elements, &d), "visit");
    must(comm_gather(comm, &d.sum, sizeof d.sum, all), "gather");
    for (int i = 0; i < size; i++) {
        sum = sharded || i == 0 ? sum + all[i] : sum;
        CHECK(sharded || all[i] == all[0], "rank %d's copy of kind %d differs from rank 0's", i, kind);
    }
    free(all);
    return sum;
}

static void digest(struct rig *r, uint64_t out[3])
{
    uint64_t param = digest_kind(r, STATE_PARAM), master = digest_kind(r, STATE_MASTER);
    if (r->settings.dtype == F32)
        CHECK(master == 0 || master == param, "masters are not the parameters");
    out[0] = r->settings.dtype == F32 ? param : param ^ master;
    out[1] = digest_kind(r, STATE_M);
    out[2] = digest_kind(r, STATE_V);
}

/* ---- saved on 8 ranks, resumed on others ---- */

static const struct saved {
    const char *name;
    struct layout on8;
    enum dtype dtype;
} saves[] = {
    {"fp32-zero3-2d", {{2, 2, 2}, 3, 1}, F32},  {"bf16-zero3-dp", {{8, 1, 1}, 3, 0}, BF16},
    {"bf16-zero1-sp", {{1, 4, 2}, 1, 1}, BF16}, {"fp32-zero2-ring", {{2, 1, 4}, 2, 0}, F32},
    {"fp32-zero0", {{4, 2, 1}, 0, 0}, F32},
};
enum { SAVES = sizeof saves / sizeof *saves };

/* What the resumed runs are compared with. */
struct truth {
    uint64_t digest[3];
    double loss[STEPS];
};

static struct checkpoint_info info_of(int64_t step)
{
    struct checkpoint_info info;
    memset(&info, 0, sizeof info);
    info.step = info.updates = step;
    info.cursor = (uint64_t)(BATCH * step);
    info.seed = 7;
    strcpy(info.numerics, "any");
    return info;
}

static void truth_path(char path[256], const struct saved *c)
{
    snprintf(path, 256, "%s/%s.truth", dir, c->name);
}

static void save_cell(const struct saved *c)
{
    struct rig r;
    char path[256];
    double loss[STEPS];
    struct truth t;
    struct checkpoint_info info = info_of(STEPS);
    start(&r, &c->on8, c->dtype, 2, 3);
    train(&r, 0, loss);
    snprintf(path, sizeof path, "%s/%s", dir, c->name);
    must(checkpoint_save(r.session, path, &info, 1), "save");
    digest(&r, t.digest);
    train(&r, STEPS, t.loss);
    rig_stop(&r);
    truth_path(path, c);
    FILE *f = rank == 0 ? fopen(path, "w") : NULL;
    CHECK(rank != 0 || (f && fwrite(&t, sizeof t, 1, f) == 1 && fclose(f) == 0), "%s", path);
}

static int same_files(const char *a, const char *b, const char *name)
{
    char command[1024];
    snprintf(command, sizeof command, "cmp %s/%s %s/%s >&2", a, name, b, name);
    return system(command) == 0;
}

/* Loads, compares the state with what was saved, saves it again: the same bytes; trains on. */
static void resume_cell(const struct saved *c, const struct layout *l, int number)
{
    struct rig r;
    char run[200], again[220], path[300], second[300], note[256];
    struct truth t;
    struct checkpoint_info info, want = info_of(STEPS);
    double loss[STEPS];
    uint64_t got[3];
    truth_path(path, c);
    FILE *f = fopen(path, "r");
    CHECK(f && fread(&t, sizeof t, 1, f) == 1, "%s", path);
    if (f)
        fclose(f);
    snprintf(run, sizeof run, "%s/%s", dir, c->name);
    snprintf(again, sizeof again, "%s-again-%d-%d", run, size, number);
    start(&r, l, c->dtype, 2, 99);
    must(checkpoint_find(comm, run, path, sizeof path, &info, note, sizeof note), "find");
    CHECK(note[0] == 0 && memcmp(&info, &want, sizeof info) == 0, "%s", note);
    must(checkpoint_load(r.session, path), "load");
    digest(&r, got);
    CHECK(memcmp(got, t.digest, sizeof got) == 0, "%s: the state is not what was saved", c->name);
    must(checkpoint_save(r.session, again, &info, 1), "save again");
    must(checkpoint_find(comm, again, second, sizeof second, &info, note, sizeof note), "find again");
    if (rank == 0)
        CHECK(same_files(path, second, "model.safetensors") && same_files(path, second, "optimizer.safetensors") &&
                  same_files(path, second, "manifest.json"),
              "%s: saved again it differs", c->name);
    r.updates = info.updates;
    train(&r, STEPS, loss);
    /* fp32: sums in another order, carried through three steps; bf16 rounds differently wherever sums differ */
    double tolerance = c->dtype == F32 ? 1e-5 : 2e-2;
    for (int i = 0; i < STEPS; i++)
        CHECK(fabs(loss[i] - t.loss[i]) <= tolerance * fabs(t.loss[i]), "%s: loss of step %d is %.9g, was %.9g", c->name, i,
              loss[i], t.loss[i]);
    rig_stop(&r);
}

static void resume_all(void)
{
    static const struct mesh meshes[][2] = {
        {{1, 1, 1}, {1, 1, 1}}, {{1, 2, 1}, {2, 1, 1}}, {{3, 1, 1}, {1, 1, 3}}, {{2, 1, 2}, {1, 2, 2}}};
    for (int i = 0; i < SAVES; i++) {
        struct layout l = {meshes[size - 1][i % 2], (size + i) % 4, (size + i) % 2};
        resume_cell(&saves[i], &l, i);
    }
}

/* ---- one rank fails ---- */

/* Two states, told apart by info.updates, saved in turn; a third session loads whatever is found. */
static struct rig rigs[2], loaded;
static uint64_t known[2][3], last_id;
static int64_t next_id = 1;

static void rigs_start(const struct layout *l)
{
    for (int i = 0; i < 2; i++) {
        start(&rigs[i], l, BF16, 1, 1 + (uint64_t)i);
        digest(&rigs[i], known[i]);
    }
    start(&loaded, l, BF16, 1, 9);
}

static void rigs_stop(void)
{
    rig_stop(&rigs[0]);
    rig_stop(&rigs[1]);
    rig_stop(&loaded);
}

/* Every third save is one of the same step again. */
static enum status save_next(const char *run)
{
    int64_t id = next_id++;
    struct checkpoint_info info = info_of(id - id / 3);
    info.cursor = (uint64_t)id;
    info.updates = id % 2;
    return checkpoint_save(rigs[id % 2].session, run, &info, 1);
}

/* All ranks have the same status and the same sentence. */
static void check_same(enum status st, const char *what)
{
    struct said {
        int64_t status;
        char text[200];
    } mine = {.status = st}, *all = calloc((size_t)size, sizeof *all);
    if (st != OK)
        snprintf(mine.text, sizeof mine.text, "%s", status_message());
    must(comm_gather(comm, &mine, sizeof mine, all), "gather");
    for (int i = 0; i < size && rank == 0; i++)
        CHECK(memcmp(&all[i], &all[0], sizeof mine) == 0, "%s: rank %d says %d (%s), rank 0 %d (%s)", what, i, (int)all[i].status,
              all[i].text, (int)all[0].status, all[0].text);
    free(all);
}

/* What is found is whole, and of one of the saves from `oldest` on. */
static void check_found(const char *run, uint64_t oldest)
{
    char path[300], note[512];
    struct checkpoint_info info;
    uint64_t got[3];
    must(checkpoint_find(comm, run, path, sizeof path, &info, note, sizeof note), "find");
    must(checkpoint_load(loaded.session, path), "load");
    digest(&loaded, got);
    CHECK(memcmp(got, known[info.updates], sizeof got) == 0 && info.updates == (int64_t)(info.cursor % 2), "%s is damaged", path);
    CHECK(info.cursor >= oldest, "found the save %d, expected %d or later: %s", (int)info.cursor, (int)oldest, note);
    last_id = info.cursor;
}

static const struct fault {
    enum sys_call call;
    int error, harmless;
} faults[] = {
    {SYS_OPEN, EMFILE, 0},      {SYS_CLOSE, EIO, 0},        {SYS_PREAD, EIO, 0},     {SYS_PREAD, SYS_SHORT, 1},
    {SYS_PWRITE, ENOSPC, 0},    {SYS_PWRITE, SYS_SHORT, 1}, {SYS_FSYNC, EIO, 0},     {SYS_RENAME, EIO, 0},
    {SYS_UNLINK, EACCES, 0},    {SYS_MKDIR, ENOSPC, 0},     {SYS_MALLOC, ENOMEM, 0}, {SYS_STATVFS, EIO, 1},
    {SYS_FALLOCATE, ENOSPC, 0},
};

/* Arms a fault on one rank; the number of calls of that kind so far decides whether it came (all ranks learn it). */
static void arm(const struct fault *f, int victim, int n)
{
    sys_inject_clear();
    if (rank == victim)
        sys_inject(f->call, n, f->error);
}

static int fired(const struct fault *f, int victim, int n)
{
    double calls = rank == victim ? (double)sys_count(f->call) : 0;
    sys_inject_clear();
    must(comm_sum(comm, &calls, 1), "sum");
    return calls >= n;
}

/* Every number up to 8, then fewer and fewer (all with --long). */
static int next_number(int n, int all)
{
    return n + (all ? 1 : 1 + n / 8);
}

/* The n-th call of a kind fails on one rank while all save. */
static void sweep_save(const struct fault *f, int victim, int all, const char *run)
{
    int failed = 0;
    for (int n = 1, came = 1; came; n = next_number(n, all)) {
        arm(f, victim, n);
        enum status st = save_next(run);
        came = fired(f, victim, n);
        check_same(st, "save");
        CHECK(st == OK || (came && !f->harmless), "call %d, number %d on rank %d: %s", f->call, n, victim, status_message());
        failed += st != OK;
        check_found(run, st == OK ? (uint64_t)next_id - 1 : last_id);
    }
    /* opening, reading, writing, syncing and allocating is done by every rank, and cannot fail unnoticed */
    CHECK(f->harmless || f->call == SYS_UNLINK || failed > 0 ||
              (victim > 0 && (f->call == SYS_RENAME || f->call == SYS_MKDIR || f->call == SYS_FALLOCATE)),
          "call %d never failed a save on rank %d", f->call, victim);
}

/* The same while all find and load: a wrong one is never taken. */
static void sweep_load(const struct fault *f, int victim, int all, const char *run)
{
    int failed = 0;
    for (int n = 1, came = 1; came; n = next_number(n, all)) {
        char path[300], note[512];
        struct checkpoint_info info;
        uint64_t got[3];
        arm(f, victim, n);
        enum status st = checkpoint_find(comm, run, path, sizeof path, &info, note, sizeof note);
        if (st == OK)
            st = checkpoint_load(loaded.session, path);
        came = fired(f, victim, n);
        check_same(st, "load");
        CHECK(st == OK || (came && !f->harmless), "call %d, number %d on rank %d: %s", f->call, n, victim, status_message());
        failed += st != OK;
        if (st == OK)
            digest(&loaded, got);
        CHECK(st != OK || memcmp(got, known[info.updates], sizeof got) == 0, "call %d, number %d on rank %d: damaged", f->call, n,
              victim);
    }
    CHECK(f->harmless || failed > 0, "call %d never failed a load on rank %d", f->call, victim);
}

/* A rank that is given another directory than rank 0, even one with an old step-N.partial, does not see rank 0's. */
static void check_unshared(const char *run)
{
    char other[220], path[300], note[512];
    struct checkpoint_info info = info_of(50), found;
    snprintf(other, sizeof other, "%s-other", run);
    for (int stale = 0; stale < 2; stale++) {
        if (rank == 1 && stale) {
            char command[1000];
            snprintf(command, sizeof command,
                     "mkdir -p %s/checkpoints && cp -r $(ls -d %s/checkpoints/step-?????? | tail -n 1) "
                     "%s/checkpoints/step-000050.partial",
                     other, run, other);
            CHECK(system(command) == 0, "%s", command);
        }
        enum status st = checkpoint_save(rigs[0].session, rank == 1 ? other : run, &info, 1);
        check_same(st, "unshared");
        CHECK(st == ERR_INVALID && strstr(status_message(), "rank 1: ") &&
                  strstr(status_message(), "file system that all ranks share"),
              "%s", status_message());
    }
    check_found(run, last_id);
    enum status st = checkpoint_find(comm, rank == 1 ? other : run, path, sizeof path, &found, note, sizeof note);
    CHECK(st == ERR_INVALID && strstr(status_message(), "file system that all ranks share"), "%s", status_message());
}

/* The newest is damaged where only rank 1 hashes: all fall back on the one before. */
static void check_damage(const char *run)
{
    char path[300], file[340], note[512];
    struct checkpoint_info info;
    struct stat s;
    must(save_next(run), "save");
    check_found(run, (uint64_t)next_id - 1);
    int64_t id = next_id++;
    info = info_of(1000000); /* beyond all the others */
    info.cursor = (uint64_t)id;
    must(checkpoint_save(rigs[id % 2].session, run, &info, 2), "save");
    must(checkpoint_find(comm, run, path, sizeof path, &info, note, sizeof note), "find");
    snprintf(file, sizeof file, "%s/optimizer.safetensors", path);
    must(comm_barrier(comm), "barrier");
    FILE *f = rank == 0 && stat(file, &s) == 0 ? fopen(file, "r+") : NULL;
    CHECK(rank != 0 || (f && fseek(f, s.st_size - 5, SEEK_SET) == 0 && fputc('x', f) != EOF && fclose(f) == 0), "%s", file);
    must(comm_barrier(comm), "barrier");
    enum status st = checkpoint_load(loaded.session, path);
    check_same(st, "damaged");
    CHECK(st == ERR_CORRUPT && strstr(status_message(), "optimizer.safetensors is damaged"), "%s", status_message());
    must(checkpoint_find(comm, run, path, sizeof path, &info, note, sizeof note), "find");
    CHECK(info.cursor == (uint64_t)id - 1 && strstr(note, "optimizer.safetensors is damaged"), "%s", note);
}

static void fail_all(int all)
{
    char run[200];
    struct layout l = {{size, 1, 1}, 2, 0};
    snprintf(run, sizeof run, "%s/faults", dir);
    rigs_start(&l);
    must(save_next(run), "save");
    check_found(run, 1);
    for (int victim = 1; victim >= 0; victim--)
        for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
            const struct fault *f = &faults[i];
            if (all || victim == 1 || f->call == SYS_RENAME || f->call == SYS_MKDIR || f->call == SYS_FSYNC ||
                f->call == SYS_PWRITE)
                sweep_save(f, victim, all, run);
            if (f->call == SYS_OPEN || f->call == SYS_PREAD || f->call == SYS_MALLOC)
                sweep_load(f, victim, all, run);
        }
    must(save_next(run), "save");
    check_found(run, (uint64_t)next_id - 1);
    check_unshared(run);
    check_damage(run);
    rigs_stop();
}

/* ---- one rank is killed ---- */

static void on_alarm(int number)
{
    (void)number;
    kill(getpid(), SIGKILL);
}

/* Checks what the former trial has left, then saves again and again until the victim is killed. DIR/done holds the last save that
 * is known to be whole. */
static void be_killed(uint64_t seed)
{
    char run[200], path[220], text[32];
    struct layout l = {{1, 2, size / 2}, 3, 0};
    snprintf(run, sizeof run, "%s/kills", dir);
    snprintf(path, sizeof path, "%s/done", dir);
    rigs_start(&l);
    FILE *f = fopen(path, "r");
    if (f) { /* empty if rank 0 was killed while writing it */
        if (!fgets(text, sizeof text, f))
            strcpy(text, "1");
        fclose(f);
        check_found(run, strtoull(text, NULL, 10));
    }
    must(comm_barrier(comm), "barrier"); /* before rank 0 writes it anew */
    next_id = (int64_t)last_id + 10;     /* later than any that was begun */
    double began = clock_seconds();
    must(save_next(run), "save");
    check_found(run, (uint64_t)next_id - 1);
    double took = clock_seconds() - began;
    if (seed == 0) {
        rigs_stop();
        return;
    }
    if (rank == (int)(seed % (uint64_t)size)) {
        int64_t us = 1000 + (int64_t)(took * 1e6 * (double)rng_below(seed, 1, (uint64_t)getpid(), 2000) / 1000);
        signal(SIGALRM, on_alarm);
        setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {us / 1000000, us % 1000000}}, NULL);
    }
    for (;;) {
        f = rank == 0 ? fopen(path, "w") : NULL;
        if (f) {
            fprintf(f, "%lld", (long long)next_id - 1);
            fclose(f);
        }
        enum status st = save_next(run);
        if (st != OK) {
            fprintf(stderr, "rank %d: %s\n", rank, status_message());
            comm_destroy(comm);
            _exit(3);
        }
    }
}

int main(int argc, char **argv)
{
    struct launch launch;
    if (argc < 3 || launch_detect(NULL, &launch) != OK || comm_create(&launch, 60, &comm) != OK) {
        fprintf(stderr, "%s\n", status_message());
        return 1;
    }
    const char *what = argv[1], *more = argc > 3 ? argv[3] : "";
    rank = comm_rank(comm);
    size = comm_size(comm);
    dir = argv[2];
    if (strcmp(what, "save") == 0)
        for (int i = 0; i < SAVES; i++)
            save_cell(&saves[i]);
    else if (strcmp(what, "resume") == 0)
        resume_all();
    else if (strcmp(what, "faults") == 0)
        fail_all(strcmp(more, "--long") == 0);
    else
        be_killed(strtoull(more, NULL, 10));
    double all = failures;
    must(comm_sum(comm, &all, 1), "sum");
    comm_destroy(comm);
    return all > 0;
}
