/* A rank of a simulated cluster runs `ltrain` with the options of its cluster's form. */
#include "cluster.h"

#include "checkpoint/checkpoint.h"
#include "settings/read.h"
#include "train/signals.h"
#include "train/train.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define PATIENCE "0.5" /* seconds for which ranks wait for each other */
#define COMMON                                                                                                              \
    " --data ../ids.bin --token-type u16 --eval-data ../held.bin --eval-every 2 --seq-len 64 --batch 4 --steps 4 --lr 1e-2" \
    " --eps 1e-3 --tiles rows=32,loss=32,group=1000 --threads 1 --effort quick --stop step --nvme-path drive --out run"
#define PLACE " --comm-timeout " PATIENCE " --device-mem 1G --host-mem 1G --nvme-max 1G"
#define HOST " --device cpu:discrete --offload cpu --alpha 0 --micro-batch 1"
#define NVME " --device cpu:discrete --offload nvme --alpha 0 --micro-batch 1"
#define DEVICE " --device cpu --offload none"
#define DENSE " --model ../dense"
#define EXPERTS " --model ../experts"
#define ADAPTERS DENSE " --lora r=2,dropout=0.25"

static const struct form {
    const char *name;
    int ranks, partner;                /* partner: form that may go on with its checkpoints */
    const char *model, *mesh, *places; /* options */
} forms[] = {
    {"2 ranks, dp 2, ZeRO 3", 2, 4, DENSE, "dp=2 --zero 3", DEVICE},
    {"2 ranks, ring 2, ZeRO 3, host", 2, 5, DENSE, "ring=2 --zero 3", HOST},
    {"2 ranks, ulysses 2, ZeRO 1", 2, 6, DENSE, "ulysses=2 --zero 1", DEVICE},
    {"2 ranks, tp 2, ZeRO 2, nvme", 2, 7, DENSE, "tp=2 --zero 2", NVME},
    {"4 ranks, dp 2, ring 2, ZeRO 3", 4, 1, DENSE, "dp=2,ring=2 --zero 3", DEVICE},
    {"4 ranks, ulysses 2, ring 2, ZeRO 2", 4, 2, DENSE, "ulysses=2,ring=2 --zero 2", DEVICE},
    {"4 ranks, dp 4, ZeRO 1, host", 4, 13, DENSE, "dp=4 --zero 1", HOST},
    {"4 ranks, dp 2, tp 2, ZeRO 0", 4, 8, DENSE, "dp=2,tp=2 --zero 0", DEVICE},
    {"1 rank, nvme", 1, 14, DENSE, "dp=1", NVME},
    {"2 ranks, ring 2, ZeRO 3, nvme, bf16", 2, 10, DENSE " --dtype bf16", "ring=2 --zero 3", NVME},
    {"4 ranks, dp 4, ZeRO 2, bf16", 4, 9, DENSE " --dtype bf16", "dp=4 --zero 2", DEVICE},
    {"2 ranks, ep 2, ZeRO 3, experts", 2, 12, EXPERTS, "dp=2,ep=2 --zero 3", DEVICE},
    {"4 ranks, dp 4, ep 2, ZeRO 0, experts", 4, 11, EXPERTS, "dp=4,ep=2 --zero 0", DEVICE},
    {"2 ranks, pp 2", 2, 0, DENSE, "pp=2", DEVICE},
    {"4 ranks, pp 2, dp 2, host", 4, 3, DENSE, "pp=2,dp=2", HOST},
    {"2 ranks, dp 2, ZeRO 3, adapters", 2, 16, ADAPTERS, "dp=2 --zero 3", DEVICE},
    {"4 ranks, ring 2, dp 2, ZeRO 1, adapters, host", 4, 15, ADAPTERS, "ring=2,dp=2 --zero 1", HOST},
    {"2 ranks, ulysses 2, ZeRO 2, adapters beside NF4, nvme", 2, 18, ADAPTERS " --base nf4", "ulysses=2 --zero 2", NVME},
    {"1 rank, adapters beside NF4", 1, 17, ADAPTERS " --base nf4", "dp=1", DEVICE},
};
enum { FORMS = sizeof forms / sizeof *forms };

/* The life that is being led. */
static struct {
    const struct form *form;
    enum cluster_saves saves;
    int resumes;
    uint64_t seed;
    struct outcome *out;
} now;

int cluster_forms(void)
{
    return FORMS;
}

const char *cluster_name(int form)
{
    return forms[form].name;
}

int cluster_ranks(int form)
{
    return forms[form].ranks;
}

int cluster_partner(int form)
{
    return forms[form].partner;
}

/* ---- a rank ---- */

enum { WORDS = 96, TEXT = 2048 };

/* Writes the rank's command line, as words. Returns their number. */
static int write_command(char text[TEXT], char *word[WORDS])
{
    const struct form *f = now.form;
    int n = 0;
    if (now.resumes)
        snprintf(text, TEXT, "--resume run --mesh %s%s" PLACE, f->mesh, f->places);
    else
        snprintf(text, TEXT, "%s" COMMON " --mesh %s%s" PLACE " --save-every %d --keep %d", f->model, f->mesh, f->places,
                 now.saves == SAVES_ALL ? 1 : 2, now.saves == SAVES_ALL ? CLUSTER_STEPS : 1);
    for (char *rest, *w = strtok_r(text, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
        word[n++] = w;
    return n;
}

static enum status command(struct comm *comm, const struct settings_flags *flags, int *signal_number)
{
    struct settings s;
    TRY(train_read_settings(comm, flags, SETTINGS_TRAIN, &s));
    enum status st = comm_agree(comm, train_resolve_model(&s, "", NULL));
    if (st == OK)
        st = train_run(&s, comm,
                       &(struct train_hooks){.write_config = settings_write_yaml, .version = "simulated", .command = "ltrain"},
                       signal_number);
    settings_free(&s);
    return st;
}

/* Leaves the others as cli/ranks.c does: a failure is told to them, and said. */
static int leave(struct comm *comm, int rank, enum status st)
{
    char *said = now.out->said[rank];
    snprintf(said, sizeof now.out->said[rank], "%s", st == OK ? "" : status_message());
    if (comm && !comm_broken(comm) && (st == OK || comm_agreed(comm))) {
        if (comm_barrier(comm) == OK) {
            comm_destroy(comm);
            return st != OK;
        }
        if (st == OK)
            snprintf(said, sizeof now.out->said[rank], "%s", status_message());
        st = st == OK ? ERR_PEER : st;
    }
    if (comm)
        comm_fail(comm, st, said);
    return 1;
}

static int live(int rank)
{
    struct comm *comm = NULL;
    struct settings_flags *flags;
    char text[TEXT], *word[WORDS];
    int signal_number = 0;
    const int n = write_command(text, word);
    const struct launch launch = {
        .rank = rank, .size = now.form->ranks, .local_rank = rank, .local_size = now.form->ranks, .host = "simulated"};
    enum status st = settings_flags_parse(n, word, &flags);
    if (st == OK)
        st = comm_create(&launch, strtod(PATIENCE, NULL), &comm);
    if (st == OK) {
        signals_join(comm);
        st = command(comm, flags, &signal_number);
    }
    const int failed = leave(comm, rank, st);
    now.out->signalled |= !failed && signal_number;
    return failed;
}

/* ---- what is seen of it ---- */

enum status __real_checkpoint_save(struct session *s, const char *run, const struct checkpoint_info *info,
                                   const struct checkpoint_texts *texts, int keep);
enum status __wrap_checkpoint_save(struct session *s, const char *run, const struct checkpoint_info *info,
                                   const struct checkpoint_texts *texts, int keep);
enum status __wrap_checkpoint_save(struct session *s, const char *run, const struct checkpoint_info *info,
                                   const struct checkpoint_texts *texts, int keep)
{
    const int rank = world_rank();
    int64_t unseen[2], *at = unseen;
    for (int k = CLUSTER_SAVES - 1; k >= 0; k--)
        if (now.out->save_at[rank][k][0] == 0)
            at = now.out->save_at[rank][k];
    at[0] = world_points(rank);
    TRY(__real_checkpoint_save(s, run, info, texts, keep));
    at[1] = world_points(rank);
    if (strcmp(run, "run") == 0)
        now.out->saved = max_i64(now.out->saved, info->step);
    return OK;
}

enum status __real_session_create(const struct model *m, struct plan *const *plans, int n_plans, const struct settings *s,
                                  struct comm *comm, const char *const *paths, int n_paths, struct session **out);
enum status __wrap_session_create(const struct model *m, struct plan *const *plans, int n_plans, const struct settings *s,
                                  struct comm *comm, const char *const *paths, int n_paths, struct session **out);
/* Gives each rank of each life orders of its own. */
enum status __wrap_session_create(const struct model *m, struct plan *const *plans, int n_plans, const struct settings *s,
                                  struct comm *comm, const char *const *paths, int n_paths, struct session **out)
{
    TRY(__real_session_create(m, plans, n_plans, s, comm, paths, n_paths, out));
    (*out)->chaos = 1 + now.seed * 1000 + (uint64_t)world_rank() * 100;
    return OK;
}

void cluster_live(int form, enum cluster_saves saves, uint64_t seed, const struct faults *faults, struct outcome *out)
{
    uint64_t hash;
    char said[1024];
    memset(out, 0, sizeof *out);
    now.form = &forms[form];
    now.saves = saves;
    now.seed = seed;
    now.out = out;
    out->began = cluster_look("run", &hash, said, sizeof said);
    now.resumes = out->began > 0;
    out->hangs = world_run(seed, now.form->ranks, faults, live) != 0;
    for (int r = 0; r < now.form->ranks; r++) {
        out->life[r] = world_life(r);
        out->points[r] = world_points(r);
    }
}

/* ---- what it leaves ---- */

static uint64_t hash_file(const char *dir, const char *name)
{
    char path[4200], bytes[65536];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "re");
    XXH3_state_t *x = XXH3_createState();
    XXH3_64bits_reset(x);
    for (size_t n; f && (n = fread(bytes, 1, sizeof bytes, f)) > 0;)
        XXH3_64bits_update(x, bytes, n);
    if (f)
        fclose(f);
    const uint64_t hash = f ? XXH3_64bits_digest(x) : 0;
    XXH3_freeState(x);
    return hash;
}

static uint64_t hash_checkpoint(const char *path)
{
    return hash_file(path, "model.safetensors") ^ 31 * hash_file(path, "optimizer.safetensors");
}

int cluster_look(const char *run, uint64_t *hash, char *said, int size)
{
    struct comm *self;
    struct checkpoint_info info;
    char path[4096], note[1024];
    *hash = 0;
    if (comm_create_self(&self) != OK)
        return 0;
    const enum status st = checkpoint_find(self, run, path, sizeof path, &info, note, sizeof note);
    snprintf(said, (size_t)size, "%s", st == OK ? note : status_message());
    comm_destroy(self);
    if (st != OK)
        return 0;
    *hash = hash_checkpoint(path);
    return (int)info.step;
}

/* Reads a line of the log. Returns "" or says what is wrong. */
static const char *read_line(const char *line, int64_t *last, struct course *out)
{
    json_t *o = json_loads(line, 0, NULL);
    const int64_t step = json_integer_value(json_object_get(o, "step"));
    const json_t *loss = json_object_get(o, "loss"), *evaluated = json_object_get(o, "eval_loss");
    const char *wrong = "";
    if (!o || step <= *last || step > CLUSTER_STEPS || !json_is_real(loss)) {
        wrong = o ? "a step stands there twice or out of order" : "a line is torn";
    } else {
        out->loss[step] = json_real_value(loss);
        out->evaluated[step] = evaluated ? json_real_value(evaluated) : NAN;
        *last = step;
    }
    json_decref(o);
    return wrong;
}

const char *cluster_read(struct course *out)
{
    char line[16384], path[64];
    int64_t last = 0;
    const char *wrong = "";
    FILE *f = fopen("run/metrics.jsonl", "re");
    for (int s = 0; s <= CLUSTER_STEPS; s++) {
        out->loss[s] = out->evaluated[s] = NAN;
        snprintf(path, sizeof path, "run/checkpoints/step-%06d", s);
        out->state[s] = hash_checkpoint(path);
    }
    while (f && !wrong[0] && fgets(line, sizeof line, f))
        wrong = read_line(line, &last, out);
    if (f)
        fclose(f);
    out->model = hash_file("run/hf", "model.safetensors") ^ hash_file("run/hf", "adapter_model.safetensors");
    return wrong;
}
