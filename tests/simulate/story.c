/* In a story a cluster lives once or twice with faults, then without. A whole checkpoint is found after each life; the last state, the
 * log and the model have the bits of an undisturbed run. */
#include "story.h"

#include "base/rng.h"
#include "base/tell.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 60 /* processor time after which a story counts as hanging */ };

struct shared *story_shared;
int story_tells;
static char root[64];

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *where)
{
    (void)s, (void)kind, (void)where;
    return remove(path);
}

/* Empties the directory of lives, which is the working directory. */
static void clear(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/here", root);
    if (chdir(root) != 0)
        return;
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (mkdir(path, 0777) != 0 || chdir(path) != 0 || mkdir("drive", 0777) != 0)
        perror(path);
}

int story_begin(void)
{
    story_shared = mmap(NULL, sizeof *story_shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    snprintf(root, sizeof root, "%s/ltrain-simulate-%d", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (int)getpid());
    return story_shared != MAP_FAILED && mkdir(root, 0777) == 0 && cluster_prepare(root);
}

void story_end(void)
{
    if (chdir("/") == 0)
        nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void __attribute__((format(printf, 1, 2), noreturn)) fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(story_shared->text, sizeof story_shared->text, format, args);
    va_end(args);
    fflush(stdout);
    _exit(1);
}

/* Runs a function in a process of its own, whose killed ranks' memory goes with it. Returns 1 if it has ended well. */
static int apart(void (*run)(const void *), const void *arg)
{
    int status;
    story_shared->text[0] = 0;
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        setrlimit(RLIMIT_CPU, &(struct rlimit){SECONDS, SECONDS});
        const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
        tell_to(fdopen(nowhere, "w"));                                          /* runs' output */
        for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO && !story_tells; fd++) /* their signals, and ranks that stand still */
            dup2(nowhere, fd);
        clear();
        run(arg);
        fflush(stdout);
        _exit(0);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFSIGNALED(status))
        snprintf(story_shared->text, sizeof story_shared->text, "ended by signal %d", WTERMSIG(status));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ---- undisturbed runs ---- */

/* Lives without faults, on from what is in the directory. */
static void live_well(int form, enum cluster_saves saves, uint64_t seed, struct outcome *o)
{
    const struct faults none = {0};
    cluster_live(form, saves, seed, &none, o);
    for (int r = 0; r < cluster_ranks(form); r++)
        if (o->hangs || o->life[r] != LIFE_ENDED)
            fail("undisturbed, %s: rank %d: %s", cluster_name(form), r, o->hangs ? "hangs" : o->said[r]);
}

static void read_course(int form, struct course *out)
{
    const char *wrong = cluster_read(out);
    if (wrong[0] || out->state[CLUSTER_STEPS] == 0 || out->model == 0 || isnan(out->loss[CLUSTER_STEPS]))
        fail("undisturbed, %s: %s", cluster_name(form), wrong[0] ? wrong : "the run is not whole");
}

static void remove_later(int step)
{
    char path[64];
    for (int s = step + 1; s <= CLUSTER_STEPS; s++) {
        snprintf(path, sizeof path, "run/checkpoints/step-%06d", s);
        nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
    nftw("run/hf", remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Finds a course with the states of all of its steps. */
static void find_course(const void *arg)
{
    const struct sought *x = arg;
    struct course *c = &story_shared->truth[x->form].course[x->step];
    struct outcome o;
    live_well(x->form, SAVES_ALL, (uint64_t)x->form, &o);
    if (x->step > 0) {
        remove_later(x->step);
        live_well(cluster_partner(x->form), SAVES_ALL, (uint64_t)x->step, &o);
    }
    read_course(x->form, c);
    c->known = COURSE_OF_ALL;
}

/* Finds a form's own course, and how many places its life has, from a life that saves as those of stories do. */
static void find_own_course(const void *arg)
{
    const int form = *(const int *)arg;
    struct truth *t = &story_shared->truth[form];
    live_well(form, SAVES_SOME, (uint64_t)form, &t->life);
    read_course(form, &t->course[0]);
    t->course[0].known = COURSE_OF_SOME;
}

/* Runs a function apart, without the planted bug. */
static int apart_well(void (*run)(const void *), const void *arg)
{
    const enum bug planted = world_bug;
    world_bug = BUG_NONE;
    const int well = apart(run, arg);
    world_bug = planted;
    return well;
}

int story_find_truths(void)
{
    for (int f = 0; f < cluster_forms(); f++)
        if (!apart_well(find_own_course, &f))
            return 0;
    return 1;
}

static const struct course *course_of(const struct sought *x)
{
    return &story_shared->truth[x->form].course[x->step];
}

/* Ends this story, so that its parent finds the course, and lives it again. */
static void __attribute__((noreturn)) seek(const struct sought *x)
{
    story_shared->sought = *x;
    story_shared->lacks = 1;
    _exit(1);
}

/* ---- drawing ---- */

static uint64_t drawn_from, draws;

static int64_t draw(int64_t n)
{
    return (int64_t)rng_below(drawn_from, 0xfa17, draws++, (uint64_t)n);
}

/* Draws a place of a rank's life, half of the time within a save. */
static int64_t draw_place(const struct outcome *o, int rank)
{
    const int k = (int)draw(2 * CLUSTER_SAVES);
    if (k >= CLUSTER_SAVES || o->save_at[rank][k][1] == 0)
        return 1 + draw(o->points[rank]);
    return o->save_at[rank][k][0] + draw(o->save_at[rank][k][1] - o->save_at[rank][k][0] + 1);
}

static int64_t draw_error(void)
{
    static const int64_t errors[] = {EIO, ENOSPC, EDQUOT, SHORT_WRITE};
    return errors[draw(4)];
}

/* Draws a fault; a signal often goes to all ranks. */
static void add_fault(struct faults *f, int form)
{
    static const enum fault_kind kinds[] = {FAULT_KILL, FAULT_KILL,  FAULT_POWER, FAULT_SIGNAL, FAULT_SIGNAL,
                                            FAULT_STOP, FAULT_DRIVE, FAULT_DRIVE, FAULT_CUT,    FAULT_SLOW};
    const struct outcome *o = &story_shared->truth[form].life;
    struct fault *x = &f->fault[f->n++];
    x->kind = kinds[draw(sizeof kinds / sizeof *kinds)];
    x->rank = (int)draw(cluster_ranks(form));
    x->at = draw_place(o, x->rank);
    if (x->kind == FAULT_STOP)
        x->value = 100000000 * (1 + draw(10)); /* up to 1 s, of the half second that others wait */
    if (x->kind == FAULT_CUT)
        x->at = 1 + draw(o->points[x->rank] / 2);
    if (x->kind == FAULT_DRIVE) {
        x->at = 1 + draw(160);
        x->value = draw_error();
    }
    if (x->kind == FAULT_SIGNAL && draw(2))
        for (int r = 0; r < cluster_ranks(form) && f->n < FAULTS_MOST; r++)
            if (r != x->rank)
                f->fault[f->n++] = (struct fault){FAULT_SIGNAL, r, x->at + draw(200), 0};
}

void story_draw(uint64_t seed, struct story *out)
{
    memset(out, 0, sizeof *out);
    drawn_from = seed;
    draws = 0;
    out->seed = seed;
    const int form = (int)draw(cluster_forms()), goes_on = draw(2) ? cluster_partner(form) : form;
    out->n = draw(3) == 0 ? 3 : 2;
    for (int l = 0; l < out->n; l++) {
        out->life[l].form = l == 0 ? form : goes_on;
        for (int i = l < out->n - 1 ? 1 + (int)draw(2) : 0; i > 0; i--)
            add_fault(&out->life[l].faults, out->life[l].form);
    }
}

void story_print(const struct story *x)
{
    static const char *const words[FAULT_KINDS] = {"is killed at",  "loses power at",          "gets SIGTERM at", "is stopped at",
                                                   "is cut off at", "cannot use its drive at", "has a slow drive"};
    printf("story of seed %llu:\n", (unsigned long long)x->seed);
    for (int l = 0; l < x->n; l++) {
        printf("  %s%s\n", cluster_name(x->life[l].form), x->life[l].faults.n ? "" : ", undisturbed");
        for (int i = 0; i < x->life[l].faults.n; i++) {
            const struct fault *f = &x->life[l].faults.fault[i];
            printf("    rank %d %s %lld (%lld)\n", f->rank, words[f->kind], (long long)f->at, (long long)f->value);
        }
    }
}

/* ---- living ---- */

/* Looks at a checkpoint of a run, whose bits must be those of the course. Returns its step. */
static int look_at(const char *run, int form, const struct sought *t, char said[1024])
{
    uint64_t hash;
    const int step = cluster_look(run, &hash, said, 1024);
    if (step && course_of(t)->state[step] == 0 && course_of(t)->known != COURSE_OF_ALL)
        seek(t);
    if (step && hash != course_of(t)->state[step])
        fail("%s: step %d of %s has other bits than undisturbed", cluster_name(form), step, run);
    return step;
}

/* Removes the checkpoints that were saved outside of the run's directory, whose bits must be those of the course. */
static void look_elsewhere(int form, const struct sought *t)
{
    static const char *const places[] = {".", "drive"};
    char path[512], said[1024];
    for (int i = 0; i < 2; i++) {
        DIR *d = opendir(places[i]);
        for (struct dirent *e; d && (e = readdir(d));)
            if (strncmp(e->d_name, "run-saved", 9) == 0 && snprintf(path, sizeof path, "%s/%s", places[i], e->d_name) > 0) {
                look_at(path, form, t, said);
                nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
            }
        if (d)
            closedir(d);
    }
}

/* Fails if ranks fail in a life in which nothing but signals came. Before the first step a signal kills a rank, which others say. */
static void check_signalled(int form, const struct faults *f, const struct outcome *o)
{
    int failed = 0;
    for (int i = 0; i < f->n; i++)
        if (f->fault[i].kind != FAULT_SIGNAL)
            return;
    for (int r = 0; r < cluster_ranks(form); r++) {
        if (o->life[r] == LIFE_KILLED)
            return;
        failed += o->life[r] == LIFE_FAILED;
    }
    if (failed)
        fail("%s: %d ranks fail after a signal: %s", cluster_name(form), failed, o->said[0]);
}

/* Checks one life's end: nobody hangs, who fails says why, and a checkpoint is there. Returns the step that is found. */
static int check(int form, const struct outcome *o, const struct sought *t, int64_t saved)
{
    char said[1024];
    if (o->hangs)
        fail("%s: hangs", cluster_name(form));
    for (int r = 0; r < cluster_ranks(form); r++) {
        story_shared->counts[KILLED] += o->life[r] == LIFE_KILLED;
        story_shared->counts[FAILED] += o->life[r] == LIFE_FAILED;
        if (o->life[r] == LIFE_FAILED && (!o->said[r][0] || strchr(o->said[r], '\n')))
            fail("%s: rank %d fails without a sentence: %s", cluster_name(form), r, o->said[r]);
        if (story_tells && o->life[r] != LIFE_ENDED)
            printf("  rank %d: %s\n", r, o->life[r] == LIFE_KILLED ? "killed" : o->said[r]);
    }
    story_shared->counts[STOPPED] += o->signalled;
    const int step = look_at("run", form, t, said);
    look_elsewhere(form, t);
    if (story_tells)
        printf("%s, from step %d: step %d is found: %s\n", cluster_name(form), o->began, step, said);
    if (step < saved)
        fail("%s: step %d is found where step %lld was saved: %s", cluster_name(form), step, (long long)saved, said);
    return step;
}

static int same_number(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* Tells whether a life of the story may lose lines of the log: a drive that fails, or power. */
static int loses_lines(const struct story *x)
{
    int loses = 0;
    for (int l = 0; l < x->n; l++)
        for (int i = 0; i < x->life[l].faults.n; i++)
            loses |= x->life[l].faults.fault[i].kind == FAULT_DRIVE;
    return loses;
}

/* Compares log and model at the end with those of the undisturbed courses: `before` up to the first resumed step, `t` from there on. */
static void check_end(const struct story *x, int step, const struct course *before, const struct course *t)
{
    struct course c;
    const char *wrong = cluster_read(&c);
    if (wrong[0])
        fail("the log: %s", wrong);
    for (int s = 1; s <= CLUSTER_STEPS; s++) {
        const struct course *due = s <= step ? before : t;
        if (isnan(c.loss[s]) ? !loses_lines(x) : !same_number(c.loss[s], due->loss[s]))
            fail("the log of step %d has loss %.17g where %.17g is due", s, c.loss[s], due->loss[s]);
        if (!isnan(c.loss[s]) && !same_number(c.evaluated[s], due->evaluated[s]) && !isnan(c.evaluated[s]))
            fail("the log of step %d has eval_loss %.17g where %.17g is due", s, c.evaluated[s], due->evaluated[s]);
    }
    if (c.model != t->model)
        fail("the model is another one than undisturbed");
}

/* Returns the course that a run takes after the k-th step of life 0: its own, or that of the partner that goes on. */
static struct sought course_after(const struct story *x, int k)
{
    const int form = x->life[0].form, next = x->life[1].form;
    if (next == form || k == CLUSTER_STEPS)
        return (struct sought){form, 0};
    return k == 0 ? (struct sought){next, 0} : (struct sought){form, k};
}

static void live_story(const void *arg)
{
    const struct story *x = arg;
    const struct sought own = {x->life[0].form, 0};
    struct sought t = own;
    struct outcome o;
    int64_t saved = 0;
    int first = 0, step = 0;
    for (int l = 0; l < x->n; l++) {
        const int form = x->life[l].form;
        cluster_live(form, SAVES_SOME, x->seed * 8 + (uint64_t)l, &x->life[l].faults, &o);
        saved = saved > o.saved ? saved : o.saved;
        for (int r = 0; r < cluster_ranks(form) && l == x->n - 1; r++)
            if (o.hangs || o.life[r] != LIFE_ENDED)
                fail("%s, undisturbed after faults: rank %d: %s", cluster_name(form), r, o.hangs ? "hangs" : o.said[r]);
        check_signalled(form, &x->life[l].faults, &o);
        step = check(form, &o, &t, saved);
        saved = saved > step ? saved : step;
        if (l > 0)
            continue;
        first = step;
        t = course_after(x, first);
        if (!course_of(&t)->known)
            seek(&t);
        story_shared->counts[first ? RESUMED : ANEW]++;
        story_shared->counts[ELSEWHERE] += first > 0 && x->life[1].form != form;
    }
    if (step != CLUSTER_STEPS)
        fail("step %d is the last one", step);
    check_end(x, first, course_of(&own), course_of(&t));
}

int story_live(const struct story *x)
{
    for (;;) {
        int counts[COUNTS];
        memcpy(counts, story_shared->counts, sizeof counts);
        story_shared->lacks = 0;
        if (apart(live_story, x))
            return 1;
        if (!story_shared->lacks || !apart_well(find_course, &story_shared->sought))
            return 0;
        memcpy(story_shared->counts, counts, sizeof counts);
    }
}

/* ---- shrinking ---- */

static void remove_fault(struct faults *f, int i)
{
    memmove(&f->fault[i], &f->fault[i + 1], (size_t)(--f->n - i) * sizeof *f->fault);
}

/* Makes the story the i-th one that is simpler. Returns 0 if there are no more. */
static int simplify(struct story *x, int i)
{
    if (i == 0) { /* without the life in the middle */
        x->life[x->n - 2] = x->life[x->n - 1];
        x->n -= x->n == LIVES;
        return 1;
    }
    if (i == 1) { /* on the same cluster */
        for (int l = 1; l < x->n; l++)
            x->life[l].form = x->life[0].form;
        return 1;
    }
    i -= 2;
    for (int l = 0; l < x->n; i -= x->life[l++].faults.n)
        if (i < x->life[l].faults.n) {
            remove_fault(&x->life[l].faults, i);
            return 1;
        }
    return 0;
}

void story_shrink(struct story *x)
{
    for (int i = 0;; i++) {
        struct story y = *x;
        if (!simplify(&y, i))
            return;
        if (memcmp(&y, x, sizeof y) == 0 || story_live(&y))
            continue;
        *x = y;
        i = -1;
    }
}
