/* Runs seeds: in each a cluster lives once or twice with faults, then without; a whole checkpoint is found after each life, and the
 * last state has the bits of an undisturbed run.
 *
 * Usage: simulate [run SEED | bugs | [--from SEED] [--seeds N]]. Exits with 1 and names the seeds that fail. `run` tells what
 * happens in one seed; `bugs` plants protocol bugs, each of which some seed must find. */
#include "base/rng.h"

#include "cluster.h"
#include "extent.h"

#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_FORMS = 32, SECONDS = 60 /* real time after which a seed counts as hanging */ };

/* States of undisturbed runs of one form of cluster, with which the checkpoints of disturbed runs must agree. */
struct truth {
    uint64_t own[CLUSTER_SAVES + 1]; /* digest of the state at each save */
    uint64_t
        mixed[CLUSTER_SAVES + 1]; /* the same where the form's partner (cluster_partner) resumes the run from its first save */
    struct outcome life;
};

/* Memory in which processes of seeds leave their findings for the one that starts them. */
static struct shared {
    struct truth truth[MOST_FORMS];
    char text[4096];
    int counts[8];
} * shared;

enum count { KILLED, FAILED, RESUMED, ELSEWHERE, ANEW };
static const char *const count_names[] = {"killed", "failed with a sentence", "resumed", "on another mesh", "begun anew"};

static char dir[64];
static int tells;

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *where)
{
    (void)s, (void)kind, (void)where;
    return remove(path);
}

static void clear(void)
{
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    mkdir(dir, 0777);
}

static void __attribute__((format(printf, 1, 2), noreturn)) fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(shared->text, sizeof shared->text, format, args);
    va_end(args);
    fflush(stdout);
    _exit(1);
}

/* Runs a function in a process of its own, whose killed ranks' memory goes with it. Returns 1 if it has ended well. */
static int apart(void (*run)(uint64_t), uint64_t arg)
{
    int status;
    shared->text[0] = 0;
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(SECONDS);
        if (!tells && !freopen("/dev/null", "w", stderr)) /* lines about ranks that stand still */
            _exit(1);
        run(arg);
        fflush(stdout);
        _exit(0);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFSIGNALED(status))
        snprintf(shared->text, sizeof shared->text, "ended by signal %d", WTERMSIG(status));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ---- undisturbed runs ---- */

static uint64_t hash_at(int want)
{
    char said[1024];
    uint64_t hash;
    const int step = cluster_look(dir, &hash, said, sizeof said);
    if (step != want)
        fail("undisturbed, step %d is found where %d is due: %s", step, want, said);
    return hash;
}

/* Lives without faults, on from what is in the directory. */
static uint64_t live_well(int form, int last, struct outcome *o)
{
    const struct faults none = {{0}};
    cluster_live(form, dir, (uint64_t)(form * 100 + last), &none, last, o);
    for (int r = 0; r < cluster_ranks(form); r++)
        if (o->hangs || o->life[r] != LIFE_ENDED)
            fail("undisturbed, %s: rank %d: %s", cluster_name(form), r, o->hangs ? "hangs" : o->said[r]);
    return hash_at(last);
}

static void find_truth(uint64_t form)
{
    struct truth *t = &shared->truth[form];
    struct outcome o;
    clear();
    t->own[1] = t->mixed[1] = live_well((int)form, CLUSTER_SAVE_EVERY, &o);
    for (int k = 2; k <= CLUSTER_SAVES; k++)
        t->mixed[k] = live_well(cluster_partner((int)form), k * CLUSTER_SAVE_EVERY, &o);
    clear();
    for (int k = 2; k <= CLUSTER_SAVES; k++)
        t->own[k] = live_well((int)form, k * CLUSTER_SAVE_EVERY, &t->life);
}

static int find_truths(void)
{
    for (int f = 0; f < cluster_forms(); f++)
        if (!apart(find_truth, (uint64_t)f)) {
            printf("%s: %s\n", cluster_name(f), shared->text);
            return 0;
        }
    return 1;
}

/* Returns the digests at all saves of a run of the form that is resumed after the k-th save: by itself, or by its partner. */
static const uint64_t *truth(int form, int k, int partner)
{
    if (!partner || k == CLUSTER_SAVES)
        return shared->truth[form].own;
    return k == 0 ? shared->truth[cluster_partner(form)].own : shared->truth[form].mixed;
}

/* ---- seeds ---- */

static uint64_t seed, draws;

static int64_t draw(int64_t n)
{
    return (int64_t)rng_below(seed, 0xfa17, draws++, (uint64_t)n);
}

/* Draws a point of a rank's life, half of the time within a save. */
static int64_t draw_point(const struct outcome *o, int rank)
{
    const int k = (int)draw(2 * CLUSTER_SAVES);
    if (k >= CLUSTER_SAVES)
        return 1 + draw(o->points[rank]);
    return o->save_at[rank][k][0] + draw(o->save_at[rank][k][1] - o->save_at[rank][k][0] + 1);
}

static void draw_faults(struct faults *f, int form)
{
    static const int errors[] = {EIO, ENOSPC, EDQUOT};
    const struct outcome *o = &shared->truth[form].life;
    memset(f, 0, sizeof *f);
    for (int i = (int)draw(2); i >= 0; i--) {
        const int rank = (int)draw(cluster_ranks(form)), kind = (int)draw(6);
        if (kind <= 1)
            f->kill_at[rank] = draw_point(o, rank);
        if (kind == 2) {
            f->stop_at[rank] = draw_point(o, rank);
            f->stopped_ns[rank] = 100000000 * (1 + draw(10)); /* up to 1 s, of the half second that others wait */
        }
        if (kind == 3)
            f->cut_at[rank] = 1 + draw(o->points[rank] / 2);
        if (kind == 4) {
            f->fail_at[rank] = 1 + draw(120);
            f->fail_with[rank] = errors[draw(3)];
        }
        f->slow |= kind == 5;
    }
}

/* Checks one life's end: nobody hangs, who fails says why, and a checkpoint is there. Returns the step that is found. */
static int check(int form, const struct outcome *o, const uint64_t *t, int64_t saved)
{
    char said[1024];
    uint64_t hash;
    if (o->hangs)
        fail("%s: hangs", cluster_name(form));
    for (int r = 0; r < cluster_ranks(form); r++) {
        shared->counts[KILLED] += o->life[r] == LIFE_KILLED;
        shared->counts[FAILED] += o->life[r] == LIFE_FAILED;
        if (o->life[r] == LIFE_FAILED && (!o->said[r][0] || strchr(o->said[r], '\n')))
            fail("%s: rank %d fails without a sentence: %s", cluster_name(form), r, o->said[r]);
        if (tells && o->life[r] != LIFE_ENDED)
            printf("  rank %d: %s\n", r, o->life[r] == LIFE_KILLED ? "killed" : o->said[r]);
    }
    const int step = cluster_look(dir, &hash, said, sizeof said);
    if (tells)
        printf("%s, from step %d: step %d is found: %s\n", cluster_name(form), o->began, step, said);
    if (step < saved)
        fail("%s: step %d is found where step %lld was saved: %s", cluster_name(form), step, (long long)saved, said);
    if (step && hash != t[step / CLUSTER_SAVE_EVERY])
        fail("%s: step %d has other bits than undisturbed", cluster_name(form), step);
    return step;
}

static void run_seed(uint64_t number)
{
    const struct faults none = {{0}};
    struct faults f;
    struct outcome o;
    seed = number;
    draws = 0;
    const int form = (int)draw(cluster_forms()), partner = (int)draw(2), again = (int)draw(3) == 0,
              second = partner ? cluster_partner(form) : form;
    clear();
    draw_faults(&f, form);
    cluster_live(form, dir, number * 8 + 1, &f, CLUSTER_STEPS, &o);
    const int step = check(form, &o, truth(form, 0, 0), o.saved);
    const uint64_t *t = truth(form, step / CLUSTER_SAVE_EVERY, partner);
    int64_t saved = step;
    shared->counts[RESUMED] += step > 0;
    shared->counts[ELSEWHERE] += step > 0 && partner;
    shared->counts[ANEW] += step == 0;
    if (again) {
        draw_faults(&f, second);
        cluster_live(second, dir, number * 8 + 2, &f, CLUSTER_STEPS, &o);
        saved = check(second, &o, t, saved > o.saved ? saved : o.saved);
    }
    cluster_live(second, dir, number * 8 + 3, &none, CLUSTER_STEPS, &o);
    for (int r = 0; r < cluster_ranks(second); r++)
        if (o.hangs || o.life[r] != LIFE_ENDED)
            fail("%s, undisturbed after faults: rank %d: %s", cluster_name(second), r, o.hangs ? "hangs" : o.said[r]);
    check(second, &o, t, CLUSTER_STEPS);
}

/* Runs n seeds; stops at the first that fails if `one`. Returns the number that failed; *last: the last seed. */
static int run_seeds(uint64_t from, int64_t n, int one, uint64_t *last)
{
    int bad = 0;
    for (uint64_t s = from; s < from + (uint64_t)n && !(bad && one); s++) {
        *last = s;
        if (!apart(run_seed, s)) {
            if (!one)
                printf("seed %llu: %s\n", (unsigned long long)s, shared->text);
            bad++;
        }
    }
    return bad;
}

/* Plants each bug and looks for the first seed that finds it. */
static int find_bugs(int64_t most)
{
    int missed = 0;
    for (int b = BUG_NONE + 1; b < BUGS; b++) {
        uint64_t last = 0;
        world_bug = (enum bug)b;
        const int found = run_seeds(1, most, 1, &last);
        missed += !found;
        printf("%s: %s by %llu seeds: %s\n", world_bug_names[b], found ? "found" : "not found", (unsigned long long)last,
               found ? shared->text : "");
    }
    return missed;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    uint64_t from = 1, last;
    int64_t n = extent(5, 60, 20000);
    int bad;
    tells = strcmp(what, "run") == 0 && argc > 2;
    if (tells) {
        from = strtoull(argv[2], NULL, 10);
        n = 1;
    }
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], "--from") == 0)
            from = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--seeds") == 0)
            n = strtoll(argv[i + 1], NULL, 10);
    }
    if (argc > 2 && strcmp(argv[2], "--long") == 0 && !extent_is_long()) {
        printf("skipped: planted bugs are looked for with LTRAIN_LONG\n");
        return 77;
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    snprintf(dir, sizeof dir, "%s/ltrain-simulate-%d", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (int)getpid());
    if (shared == MAP_FAILED || !find_truths())
        return 1;
    if (strcmp(what, "bugs") == 0) {
        bad = find_bugs(500);
    } else {
        bad = run_seeds(from, n, 0, &last);
        printf("%lld seeds, %d failed; ranks and lives:", (long long)n, bad);
        for (int i = 0; i <= ANEW; i++)
            printf("%s %d %s", i ? "," : "", shared->counts[i], count_names[i]);
        printf("\n");
    }
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return bad > 0;
}
