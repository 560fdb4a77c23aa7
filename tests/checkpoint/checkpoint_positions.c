/* Part of checkpoint_ranks: a table of learned positions that is longer than the run. Unused rows stay unchanged in every
 * checkpoint and export. A longer run uses more rows, a shorter one leaves them alone. The file from which unused rows are copied
 * must exist. */
#include "checkpoint/checkpoint_ranks.h"

#include "data/safetensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT = 90, LONG = 200, TABLE = 500, DIM = 32, STEPS = 2, SEED = 3 };
static const char *const WPE = "transformer.wpe.weight";

/* ---- runs ---- */

/* Starts a session. positions: number in use; 0: all. */
static void begin(struct rig *r, const struct layout *l, enum dtype dtype, int64_t tokens, int64_t positions)
{
    struct settings *s = &r->settings;
    struct model_config config = {.family = FAMILY_GPT2,
                                  .vocab = 96,
                                  .dim = DIM,
                                  .ffn = 128,
                                  .layers = 1,
                                  .heads = 2,
                                  .kv_heads = 2,
                                  .head_dim = 16,
                                  .max_positions = TABLE,
                                  .positions = positions,
                                  .tied = 1,
                                  .norm_eps = 1e-5f,
                                  .init_std = 0.1f,
                                  .name = "gpt2"};
    struct model *m;
    must(comm_set_mesh(comm, &l->mesh), "mesh");
    rig_defaults(r, tokens);
    s->plan.mesh = l->mesh;
    s->plan.zero = l->zero;
    s->plan.dtype = dtype;
    s->plan.grad_accum = ceil_div(BATCH, s->plan.mesh.degree[MESH_DP]);
    s->plan.batch = BATCH;
    s->lr = 1e-2;
    s->plan.threads = 1;
    if (l->nvme) {
        s->plan.params = s->plan.grads = s->plan.optim = s->plan.acts = OFFLOAD_NVME;
        s->plan.alpha = 0;
        s->plan.device = DEVICE_CPU_DISCRETE;
    }
    r->comm = comm;
    must(model_create(&config, NULL, 0, &m), "model");
    must(rig_start(r, m), "start");
}

static void train(struct rig *r, int first, double loss[STEPS])
{
    int64_t tokens = r->settings.plan.seq_len;
    for (int i = 0; i < STEPS; i++) {
        struct sequence batch[BATCH];
        double norm;
        for (int b = 0; b < BATCH; b++)
            sequence_random(&batch[b], tokens, 96, (uint64_t)(100 + BATCH * (first + i) + b), NULL);
        must(rig_step(r, batch, BATCH, &loss[i], &norm), "step");
        for (int b = 0; b < BATCH; b++)
            sequence_free(&batch[b]);
    }
    must(rig_flush(r), "flush");
}

static enum status try_save(struct rig *r, const char *run, int64_t step)
{
    struct checkpoint_info info = info_of(step);
    return checkpoint_save(r->session, run, &info, NULL, 1);
}

static void load(struct rig *r, const char *run, char path[300])
{
    struct checkpoint_info info;
    char note[256];
    must(checkpoint_find(comm, run, path, 300, &info, note, sizeof note), "find");
    must(checkpoint_load(r->session, path), "load");
    r->updates = info.updates;
}

/* ---- rows of files ---- */

/* Returns rows [first, end) of a tensor of PATH/FILE; the caller frees them. */
static float *rows_of(const char *path, const char *file, const char *tensor, int64_t first, int64_t end)
{
    struct st_file *f;
    struct st_info info;
    char name[400];
    float *x = malloc((size_t)((end - first) * DIM) * sizeof *x);
    snprintf(name, sizeof name, "%s/%s", path, file);
    must(st_open(name, &f), "open");
    must(st_find(f, tensor, &info), "find");
    CHECK(info.n_dims == 2 && info.shape[0] == TABLE && info.shape[1] == DIM, "%s of %s has another shape", tensor, name);
    must(st_read_f32(f, tensor, first * DIM, (end - first) * DIM, x), "read");
    st_close(f);
    return x;
}

static void rows_are(const char *path, const char *file, const char *prefix, int64_t first, int64_t end, const float *want)
{
    char tensor[64];
    snprintf(tensor, sizeof tensor, "%s%s", prefix, WPE);
    float *have = rows_of(path, file, tensor, first, end);
    CHECK(memcmp(have, want, (size_t)((end - first) * DIM) * sizeof *have) == 0, "%s of %s/%s has other rows %d to %d", tensor,
          path, file, (int)first, (int)end - 1);
    free(have);
}

/* Checks the table from row SHORT on: parameters, masters, moments. */
static void unmet_rows_are(const char *path, enum dtype dtype, const float *stored, const float *master, const float *zero)
{
    rows_are(path, "model.safetensors", "", SHORT, TABLE, stored);
    rows_are(path, "optimizer.safetensors", "m.", SHORT, TABLE, zero);
    rows_are(path, "optimizer.safetensors", "v.", SHORT, TABLE, zero);
    if (dtype == BF16)
        rows_are(path, "optimizer.safetensors", "master.", SHORT, TABLE, master);
}

/* ---- checks ---- */

static int same_file(const char *a, const char *b, const char *name)
{
    char command[1024];
    snprintf(command, sizeof command, "cmp %s/%s %s/%s >&2", a, name, b, name);
    return system(command) == 0;
}

/* Unused rows stay unchanged, from initial values and from an export: with weight decay, saved, exported, resumed and saved
 * again. */
static void rows_are_kept(const struct layout *l, enum dtype dtype, const char *base)
{
    enum { N = (TABLE - SHORT) * DIM };
    struct rig a, b;
    char run[150], other[150], export[150], path[300], again[300];
    double loss[STEPS];
    uint64_t saved[3], resumed[3];
    float *master = malloc(N * sizeof *master), *stored = malloc(N * sizeof *stored), *zero = calloc(N, sizeof *zero);
    snprintf(run, sizeof run, "%s/run", base);
    snprintf(other, sizeof other, "%s/other", base);
    snprintf(export, sizeof export, "%s/export", base);
    begin(&a, l, dtype, SHORT, SHORT);
    CHECK(a.settings.weight_decay > 0, "rows are to be kept from decay");
    must(session_initialise(a.session, SEED), "initialise");
    model_init_param(a.model, a.model->pos_embed, SEED, SHORT * DIM, N, master);
    for (int i = 0; i < N; i++)
        stored[i] = dtype == BF16 ? bf16_to_float(bf16_from_float(master[i])) : master[i];
    train(&a, 0, loss);
    must(checkpoint_export(a.session, export, NULL, EXPORT_ONE_FILE), "export");
    must(try_save(&a, run, STEPS), "save");
    must(try_save(&a, run, STEPS + 1), "save"); /* this save copies rows from the checkpoint before, which is then removed */
    digest(&a, saved);
    begin(&b, l, dtype, SHORT, SHORT);
    load(&b, run, path);
    digest(&b, resumed);
    CHECK(memcmp(saved, resumed, sizeof saved) == 0, "%s: the state is not what was saved", base);
    must(try_save(&b, other, STEPS + 1), "save again");
    load(&b, other, again);
    if (rank == 0) {
        unmet_rows_are(path, dtype, stored, master, zero);
        rows_are(export, "model.safetensors", "", SHORT, TABLE, stored);
        CHECK(same_file(path, again, "model.safetensors") && same_file(path, again, "optimizer.safetensors"),
              "%s: saved again it differs", base);
    }
    must(session_load(b.session, export), "load the export");
    train(&b, 0, loss);
    must(try_save(&b, other, STEPS + 2), "save what began with the export");
    load(&b, other, again);
    if (rank == 0)
        unmet_rows_are(again, dtype, stored, stored, zero);
    rig_stop(&a);
    rig_stop(&b);
    free(master);
    free(stored);
    free(zero);
}

/* Trains from the state that stage - 1 left in BASE/KIND-N, or from initial values, and saves the state of this stage. path: its
 * checkpoint. */
static void train_stage(const struct layout *l, const char *base, int stage, int64_t tokens, int whole, double loss[STEPS],
                        char path[300])
{
    struct rig r;
    char run[150];
    const char *kind = whole ? "whole" : "sized";
    begin(&r, l, F32, tokens, whole ? 0 : tokens);
    r.settings.weight_decay = 0;
    snprintf(run, sizeof run, "%s/%s-%d", base, kind, stage - 1);
    if (stage == 0)
        must(session_initialise(r.session, SEED), "initialise");
    else
        load(&r, run, path);
    train(&r, STEPS * stage, loss);
    snprintf(run, sizeof run, "%s/%s-%d", base, kind, stage);
    must(try_save(&r, run, r.updates), "save");
    load(&r, run, path);
    rig_stop(&r);
}

/* Checks that rows beyond the short run keep their parameters and moments. */
static void left_alone(const char *before, const char *after)
{
    static const char *const prefix[] = {"", "m.", "v."};
    for (int k = 0; k < 3; k++) {
        const char *file = k ? "optimizer.safetensors" : "model.safetensors";
        char tensor[64];
        int moved = 0;
        snprintf(tensor, sizeof tensor, "%s%s", prefix[k], WPE);
        float *x = rows_of(before, file, tensor, SHORT, LONG);
        for (int i = 0; i < (LONG - SHORT) * DIM; i++)
            moved += x[i] != 0;
        CHECK(moved > (LONG - SHORT) * DIM / 2, "the longer run did not meet rows of %s", tensor);
        rows_are(after, file, prefix[k], SHORT, LONG, x);
        free(x);
    }
}

/* A run with sequences of SHORT, then of LONG tokens, equals a run that uses the whole table from the beginning. Rows that no
 * sequence reaches have neither gradient nor moments; without weight decay they stay unchanged in that run, too.
 *
 * A further run with SHORT leaves rows with moments alone (if they were in use, moments would still move them), and LONG uses
 * them again. */
static void lengths_change(const struct layout *l, const char *base)
{
    static const int64_t tokens[] = {SHORT, LONG};
    char path[2][300], before[300], again[300];
    double loss[2][STEPS];
    struct rig r;
    for (int stage = 0; stage < 2; stage++) {
        for (int whole = 0; whole < 2; whole++)
            train_stage(l, base, stage, tokens[stage], whole, loss[whole], path[whole]);
        for (int i = 0; i < STEPS; i++) /* rounding differs, since sums of squared gradients are divided into other groups */
            CHECK(fabs(loss[0][i] - loss[1][i]) <= 1e-6 * loss[1][i],
                  "stage %d: loss of step %d is %.9g, with the whole table %.9g", stage, i, loss[0][i], loss[1][i]);
    }
    snprintf(before, sizeof before, "%s", path[0]);
    train_stage(l, base, 2, SHORT, 0, loss[0], path[0]);
    if (rank == 0)
        left_alone(before, path[0]);
    begin(&r, l, F32, LONG, LONG);
    snprintf(again, sizeof again, "%s/sized-2", base);
    load(&r, again, path[0]);
    must(try_save(&r, base, r.updates), "save");
    load(&r, base, again);
    if (rank == 0)
        CHECK(same_file(path[0], again, "model.safetensors") && same_file(path[0], again, "optimizer.safetensors"),
              "what a longer run takes in is not what was saved");
    rig_stop(&r);
}

/* Checks the message of a save whose source of unused rows is gone, changed or damaged; the rig's source is `path`. */
static void save_fails(struct rig *r, const char *run, const char *path, const char *why)
{
    enum status st = try_save(r, run, 9);
    CHECK(st != OK && strstr(status_message(), path) && strstr(status_message(), WPE) && strstr(status_message(), why) &&
              !strchr(status_message(), '\n'),
          "status %d: %s", st, st == OK ? "" : status_message());
}

/* Runs a command on rank 0 once all ranks have arrived: a rank may still be reading the file that the command changes. */
static void on_rank_0(const char *format, const char *path)
{
    char command[1024];
    snprintf(command, sizeof command, format, path);
    must(comm_barrier(comm), "barrier");
    CHECK(rank != 0 || system(command) == 0, "%s", command);
    must(comm_barrier(comm), "barrier");
}

/* Returns the bytes that all ranks have read so far; negative: the kernel does not tell. */
static double bytes_read(void)
{
    long long n = -1;
    FILE *f = fopen("/proc/self/io", "re");
    if (f && fscanf(f, "rchar: %lld", &n) != 1)
        n = -1;
    if (f)
        fclose(f);
    double sum = n < 0 ? -1e18 : (double)n;
    must(comm_sum(comm, &sum, 1), "sum");
    return sum;
}

/* Each save reads the files it has written, to hash them. The checkpoint before is hashed once; after that, only the bytes copied
 * from it are read, a third of the files here. Changes to it are still noticed. */
static void origins_are_hashed_once(const struct layout *l, const char *base)
{
    struct rig r;
    char run[150], path[300], command[700];
    double read[4], bytes = 0;
    snprintf(run, sizeof run, "%s/hashed", base);
    begin(&r, l, F32, LONG, LONG);
    must(session_initialise(r.session, SEED), "initialise");
    for (int i = 0; i < 4; i++) {
        double before = bytes_read();
        must(try_save(&r, run, 1 + i), "save");
        read[i] = bytes_read() - before;
    }
    snprintf(path, sizeof path, "%s/checkpoints/step-000004", run);
    if (rank == 0) {
        snprintf(command, sizeof command, "du -bs %s | cut -f 1", path);
        FILE *f = popen(command, "r");
        CHECK(f && fscanf(f, "%lf", &bytes) == 1, "du");
        pclose(f);
        double copied = 3.0 * (TABLE - LONG) * DIM * sizeof(float);
        CHECK(read[0] < 0 || read[0] >= 0.9 * bytes, "a save reads %.0f of its own %.0f bytes", read[0], bytes);
        CHECK(read[1] < 0 || read[1] >= 1.9 * bytes, "the second save reads %.0f bytes; %.0f were to be hashed", read[1], bytes);
        for (int i = 2; i < 4; i++)
            CHECK(read[i] < 1.2 * bytes + 2 * copied, "save %d reads %.0f bytes; it writes %.0f and copies %.0f", i + 1, read[i],
                  bytes, copied);
    }
    on_rank_0("yes | dd of=%s/optimizer.safetensors bs=1000 seek=20 count=200 conv=notrunc iflag=fullblock 2>/dev/null", path);
    save_fails(&r, run, path, "is damaged");
    rig_stop(&r);
}

static void origins_are_missed(const struct layout *l, const char *base)
{
    struct rig r;
    char run[150], other[150], export[150], path[300];
    snprintf(run, sizeof run, "%s/missed", base);
    snprintf(other, sizeof other, "%s/missed-too", base);
    snprintf(export, sizeof export, "%s/missed-export", base);
    begin(&r, l, F32, SHORT, SHORT);
    CHECK(try_save(&r, run, 1) == ERR_INVALID, "there is no state");
    must(session_initialise(r.session, SEED), "initialise");
    must(checkpoint_export(r.session, export, NULL, EXPORT_ONE_FILE), "export");
    must(session_load(r.session, export), "load the export");
    on_rank_0("touch -d '2 days ago' %s/model.safetensors", export);
    save_fails(&r, run, export, "have changed");
    on_rank_0("rm -r %s", export);
    save_fails(&r, run, export, "No such file");
    CHECK(checkpoint_export(r.session, other, NULL, EXPORT_ONE_FILE) != OK && strstr(status_message(), export), "%s",
          status_message());
    must(session_initialise(r.session, SEED), "initialise");
    must(try_save(&r, run, 1), "save");
    load(&r, run, path);
    on_rank_0("printf x | dd of=%s/optimizer.safetensors bs=1 seek=90000 conv=notrunc 2>/dev/null", path);
    save_fails(&r, other, path, "is damaged");
    on_rank_0("rm -r %s", path);
    save_fails(&r, other, path, "is missing");
    rig_stop(&r);
}

void keep_positions(void)
{
    static const struct layout alone[] = {{{{1, 1, 1}}, 0, 0}, {{{1, 1, 1}}, 3, 1}};
    static const struct layout two[] = {{{{2, 1, 1}}, 3, 1}, {{{1, 2, 1}}, 1, 0}, {{{1, 1, 2}}, 0, 1}};
    const struct layout *l = size == 1 ? alone : two;
    int n = size == 1 ? 2 : 3;
    char base[100];
    for (int i = 0; i < n; i++)
        for (int dtype = 0; dtype < 2; dtype++) {
            snprintf(base, sizeof base, "%s/%d-%d-%d", dir, size, i, dtype);
            on_rank_0("mkdir %s", base);
            rows_are_kept(&l[i], dtype ? BF16 : F32, base);
        }
    for (int i = 0; i < n; i++) {
        snprintf(base, sizeof base, "%s/%d-%d", dir, size, i);
        on_rank_0("mkdir %s", base);
        lengths_change(&l[i], base);
    }
    origins_are_missed(&l[0], base);
    origins_are_hashed_once(&l[n - 1], base);
}
