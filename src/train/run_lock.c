/* RUN/run.lock: the owner of the run's directory, and a sign that the owner is alive.
 *
 * The owner holds the file's flock, which the kernel drops at the owner's death, and rewrites the text in it every LOCK_PATIENCE
 * / 12 seconds with a higher number (beat). A lock that can be taken proves its former owner dead if that one was on this host,
 * or if the file system is this host's own. On other file systems locks may reach no farther than a host. A taker then rereads
 * the text, and takes the directory once nothing has changed for LOCK_PATIENCE seconds of the taker's own clock; no two hosts'
 * clocks are compared. Without any locks, an owner on this host is looked up in /proc, and others' texts decide.
 *
 * Invariants: 1. the text is changed by its owner, or by a taker of a dead owner's place; 2. a taker who has written a text where
 * locks do not decide looks again after SETTLE seconds: of two takers at once the last one has the lock; 3. before each save and
 * each line of the log (run_lock_check), the owner makes sure that the directory still has its path and the file the owner's
 * text: an owner that stood still for too long finds the lock lost, and writes nothing; 4. no call to the file system is made
 * under the mutex, and calls that may never return are known to base/watch.h, which ends the process then. */
#include "train/run_lock.h"

#include "base/clock.h"
#include "base/disk.h"
#include "base/mix.h"
#include "base/process.h"
#include "base/sys.h"
#include "base/tell.h"
#include "base/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_PATIENCE 60.0 /* seconds; longer than the time that caches of network file systems keep old text */
#define SETTLE 1.0         /* seconds */
#define BEATS 12           /* beats within LOCK_PATIENCE */
#define NAME "run.lock"
#define FIRST_LINE "ltrain run\n"
#define TRIES 100

enum { TEXT = 768 };

struct owner {
    struct process process;
    int ranks;
    uint64_t id; /* random number that identifies this acquisition of the lock */
    uint64_t beat;
};

struct run_lock {
    char *dir;
    int dir_fd, fd; /* fd: keeps its number when the file is made again, so that the beating thread reads it without the mutex */
    struct owner own; /* constant while the thread beats */
    struct lock_rules rules;
    pthread_t thread;
    int beating, ending;
    pthread_mutex_t mutex; /* guards `ending` */
    pthread_cond_t end;
};

/* ---- the text ---- */

/* Formats the text, always TEXT bytes, so that it is rewritten in place and needs no new block. */
static void format_owner(const struct owner *o, char text[TEXT])
{
    memset(text, ' ', TEXT);
    int n = snprintf(text, TEXT,
                     FIRST_LINE "host %s\nboot %s\npid %" PRId64 "\npid-namespace %" PRIu64 "\nborn %" PRIu64
                                "\nranks %d\nid %016" PRIx64 "\nbeat %" PRIu64,
                     o->process.host, o->process.boot[0] ? o->process.boot : "-", o->process.pid, o->process.pid_namespace,
                     o->process.born, o->ranks, o->id, o->beat);
    text[n] = text[TEXT - 1] = '\n';
}

/* Returns 1 if the text is whole. */
static int parse_owner(const char *text, struct owner *o)
{
    memset(o, 0, sizeof *o);
    return sscanf(text,
                  FIRST_LINE "host %255s\nboot %39s\npid %" SCNd64 "\npid-namespace %" SCNu64 "\nborn %" SCNu64
                             "\nranks %d\nid %" SCNx64 "\nbeat %" SCNu64,
                  o->process.host, o->process.boot, &o->process.pid, &o->process.pid_namespace, &o->process.born, &o->ranks,
                  &o->id, &o->beat) == 8;
}

static int read_text(int fd, char text[TEXT + 1])
{
    ssize_t n = sys_pread(fd, text, TEXT, 0);
    text[n > 0 ? n : 0] = 0;
    return n > 0;
}

static enum status refuse(const char *dir, const struct owner *o)
{
    if (o->ranks == 0)
        return status_fail(ERR_INVALID, "%s is in use: another process has just locked %s/" NAME, dir, dir);
    return status_fail(ERR_INVALID,
                       "%s is in use: process %" PRId64 " on host %s (rank 0 of %d) trains there: wait for it, stop it, or give "
                       "another --out",
                       dir, o->process.pid, o->process.host, o->ranks);
}

/* ---- taking the lock ---- */

enum turn { TAKEN, WAITING };

/* State of a taker that watches whether the lock's owner is alive. */
struct sightings {
    char text[TEXT + 1];
    double since;      /* time since which `text` has been the same */
    int begun, takers; /* begun: 1: `text` and `since` are set; takers: times that another process was seen taking the lock */
};

/* Opens the file, made if absent, and takes its lock. *locked: 1 if this process has it, 0 if another one has, -1 if there are no
 * locks here. */
static enum status open_lock(const struct run_lock *l, int *fd, int *made, int *locked)
{
    struct stat a, b;
    int error = 0;
    for (int i = 0; i < TRIES; i++) {
        *made = 1;
        *fd = sys_openat(l->dir_fd, NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (*fd < 0 && errno == EEXIST) {
            *made = 0;
            *fd = sys_openat_file(l->dir_fd, NAME, O_RDWR | O_NOFOLLOW, 0);
        }
        error = *fd < 0 ? errno : 0;
        if (error == ENOENT)
            continue; /* the owner has just ended */
        if (error)
            break;
        int failed = !l->rules.locks ? ENOLCK : sys_flock(*fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
        *locked = failed == 0 ? 1 : failed == EWOULDBLOCK ? 0 : -1;
        int there = sys_fstat(*fd, &a) == 0 && sys_fstatat(l->dir_fd, NAME, &b, AT_SYMLINK_NOFOLLOW) == 0;
        if (there && a.st_ino == b.st_ino)
            return OK;
        error = there ? ENOENT : errno;
        sys_close(*fd);
        if (error != ENOENT) /* ENOENT: the file of an owner that has ended since */
            break;
    }
    return status_fail(ERR_IO, "cannot open %s/" NAME ": %s", l->dir, sys_strerror(error));
}

enum life { DEAD, ALIVE, UNKNOWN };

static enum life life_of(const struct run_lock *l, const struct owner *o, int locked)
{
    const struct process *me = &l->own.process;
    uint64_t born = 0;
    int same_host = strcmp(o->process.boot, me->boot) == 0 && me->boot[0];
    if (locked == 0 && (same_host || !l->rules.shared))
        return ALIVE;
    if (locked > 0 && (same_host || !l->rules.shared))
        return DEAD;
    if (same_host && o->process.pid_namespace == me->pid_namespace)
        return process_state(o->process.pid, &born) != 0 && born == o->process.born ? ALIVE : DEAD;
    return UNKNOWN;
}

/* Tells whether another process has taken the lock and has not written its text yet. */
static int is_taking(const struct run_lock *l, const struct owner *o, int known, int locked)
{
    uint64_t born = 0;
    if (locked != 0 || !known)
        return locked == 0;
    return strcmp(o->process.boot, l->own.process.boot) == 0 && o->process.pid_namespace == l->own.process.pid_namespace &&
           (process_state(o->process.pid, &born) == 0 || born != o->process.born);
}

/* Judges by changes of the text whether an owner is alive. */
static enum life life_by_text(struct sightings *seen, const char *text, double patience)
{
    double now = clock_seconds();
    if (!seen->begun) {
        snprintf(seen->text, sizeof seen->text, "%s", text);
        seen->since = now;
        seen->begun = 1;
    }
    if (strcmp(seen->text, text) != 0)
        return ALIVE;
    return now - seen->since >= patience ? DEAD : UNKNOWN;
}

static enum status write_text(const struct run_lock *l, int fd)
{
    char text[TEXT];
    format_owner(&l->own, text);
    ssize_t n = sys_pwrite(fd, text, TEXT, 0);
    if (n == TEXT && sys_ftruncate(fd, TEXT) == 0)
        return OK;
    return status_fail(ERR_IO, "cannot write %s/" NAME ": %s", l->dir, n >= 0 && n < TEXT ? "short write" : strerror(errno));
}

/* Reads the owner by opening the file anew, as network file systems show other hosts' changes only then; 0: nobody has the lock. */
static int look_again(const struct run_lock *l, struct owner *o)
{
    char text[TEXT + 1];
    int fd = sys_openat(l->dir_fd, NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
    int known = fd >= 0 && read_text(fd, text) && parse_owner(text, o);
    if (fd >= 0)
        sys_close(fd);
    return known;
}

/* Writes this process's text into the file, which becomes the lock's. */
static enum status become_owner(struct run_lock *l, int fd, int locked)
{
    struct owner now;
    TRY(write_text(l, fd));
    if (locked <= 0 || l->rules.shared) {
        sys_fsync(fd);
        clock_sleep_ns((int64_t)(l->rules.settle * 1e9));
        if (!look_again(l, &now) || now.id != l->own.id)
            return refuse(l->dir, &now);
    }
    l->fd = fd;
    return OK;
}

static enum status look(struct run_lock *l, struct sightings *seen, enum turn *turn)
{
    char text[TEXT + 1];
    struct owner o;
    int fd = -1, made = 0, locked = -1;
    *turn = TAKEN;
    TRY(open_lock(l, &fd, &made, &locked));
    read_text(fd, text);
    int known = parse_owner(text, &o);
    enum life life = known ? life_of(l, &o, locked) : made || locked > 0 ? DEAD : UNKNOWN;
    if (is_taking(l, &o, known, locked) && seen->takers++ < 3) {
        sys_close(fd);
        *turn = WAITING;
        return OK;
    }
    int announce = known && life == UNKNOWN && !seen->begun;
    if (life == UNKNOWN)
        life = life_by_text(seen, text, l->rules.patience);
    enum status st = OK;
    if (life == ALIVE)
        st = refuse(l->dir, &o);
    else if (life == DEAD)
        st = become_owner(l, fd, locked);
    else
        *turn = WAITING;
    if (known && life == DEAD && st == OK)
        tell("run directory: process %" PRId64 " on host %s has ended without releasing %s: its lock is taken over\n",
             o.process.pid, o.process.host, l->dir);
    else if (announce && life == UNKNOWN)
        tell("run directory: %s is of process %" PRId64 " on host %s: whether it lives shows within %.0f s\n", l->dir,
             o.process.pid, o.process.host, l->rules.patience);
    fflush(tell_stream());
    if (l->fd != fd)
        sys_close(fd);
    return st;
}

/* ---- keeping the lock ---- */

/* Tells whether another process wrote its text while this one stood still. */
static int is_of_another(const struct run_lock *l)
{
    char text[TEXT + 1];
    struct owner now;
    int fd = sys_openat(l->dir_fd, NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
    ssize_t n = fd < 0 ? 0 : sys_pread(fd, text, TEXT, 0);
    text[n > 0 ? n : 0] = 0;
    if (fd >= 0)
        sys_close(fd);
    return parse_owner(text, &now) && now.id != l->own.id;
}

/* Writes the next beat; after a failure the next beat tries again. */
static void write_beat(const struct run_lock *l, const struct owner *own)
{
    char text[TEXT];
    format_owner(own, text);
    if (!is_of_another(l) && sys_pwrite(l->fd, text, TEXT, 0) == TEXT && l->rules.shared)
        sys_fsync(l->fd);
}

static void *beat(void *user)
{
    struct run_lock *l = user;
    struct owner own = l->own;
    const int64_t pause = (int64_t)(l->rules.patience / BEATS * 1e9);
    int64_t next = clock_ns() + pause;
    sys_thread_by_clock();
    pthread_mutex_lock(&l->mutex);
    while (!l->ending) {
        clock_cond_wait(&l->end, &l->mutex, next);
        if (l->ending || clock_ns() < next)
            continue;
        pthread_mutex_unlock(&l->mutex);
        own.beat++;
        write_beat(l, &own);
        pthread_mutex_lock(&l->mutex);
        next = clock_ns() + pause;
    }
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}

static enum status start_beating(struct run_lock *l)
{
    clock_cond_init(&l->end);
    pthread_mutex_init(&l->mutex, NULL);
    int error = sys_thread(&l->thread, beat, l);
    l->beating = error == 0;
    return error == 0 ? OK : status_fail(ERR_NOMEM, "cannot start a thread for %s/" NAME ": %s", l->dir, strerror(error));
}

/* Reports the present place of the directory, whose path leads elsewhere or nowhere. */
static enum status say_moved(const struct run_lock *l)
{
    char name[64], now[PATH_MAX] = "";
    struct stat s = {.st_nlink = 0};
    snprintf(name, sizeof name, "/proc/self/fd/%d", l->dir_fd);
    ssize_t n = readlink(name, now, sizeof now - 1);
    int removed = n > 10 && strcmp(now + n - 10, " (deleted)") == 0;
    if (sys_fstat(l->dir_fd, &s) != 0 && errno != ESTALE)
        return status_fail(ERR_IO, "cannot look at the run's directory %s: %s", l->dir, strerror(errno));
    if (s.st_nlink == 0 || n <= 0 || removed)
        return status_fail(ERR_IO, "the run's directory %s was removed while the run goes on", l->dir);
    return status_fail(ERR_IO, "the run's directory %s was renamed while the run goes on (it is %s now): rename it back", l->dir,
                       now);
}

/* Makes the removed file again, unless another process was faster. */
static enum status make_again(struct run_lock *l)
{
    int fd = sys_openat(l->dir_fd, NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return status_fail(ERR_IO, "cannot make %s/" NAME " again, which was removed: %s", l->dir, strerror(errno));
    if (l->rules.locks)
        sys_flock(fd, LOCK_EX | LOCK_NB);
    enum status st = write_text(l, fd);
    int w = watch_enter(&(struct watch_call){.verb = "close", .fd = l->fd});
    /* dup3 replaces l->fd in one step, since the beating thread may be writing to that file */
    if (st == OK && dup3(fd, l->fd, O_CLOEXEC) < 0)
        st = status_fail(ERR_IO, "cannot keep %s/" NAME ", which was made again, open: %s", l->dir, strerror(errno));
    watch_leave(w);
    sys_close(fd);
    return st;
}

enum status run_lock_check(struct run_lock *l)
{
    struct stat named, held;
    struct owner now;
    int seen = sys_fstat(l->dir_fd, &held) == 0 && sys_stat(l->dir, &named) == 0;
    if (!seen && !sys_is_absent(errno))
        return status_fail(ERR_IO, "cannot look at the run's directory %s: %s", l->dir, strerror(errno));
    if (!seen || named.st_ino != held.st_ino || named.st_dev != held.st_dev)
        return say_moved(l);
    if (sys_fstatat(l->dir_fd, NAME, &named, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? make_again(l) : status_fail(ERR_IO, "cannot look at %s/" NAME ": %s", l->dir, strerror(errno));
    if (look_again(l, &now) && now.id != l->own.id)
        return status_fail(ERR_INVALID,
                           "process %" PRId64
                           " on host %s (rank 0 of %d) has taken %s over, while this one stood still: it writes "
                           "nothing there any more",
                           now.process.pid, now.process.host, now.ranks, l->dir);
    return OK;
}

/* ---- both ends ---- */

/* Removes the file if it is still this lock's. */
static void remove_file(const struct run_lock *l)
{
    struct stat a, b;
    struct owner now;
    if (sys_fstat(l->fd, &a) == 0 && sys_fstatat(l->dir_fd, NAME, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_ino == b.st_ino &&
        look_again(l, &now) && now.id == l->own.id)
        sys_unlinkat(l->dir_fd, NAME, 0);
}

/* Releases the lock. Waits for a text that is just being written. If the file system has stopped answering, waits until
 * base/watch.h ends the process, as removing the file would. */
void run_lock_release(struct run_lock *l)
{
    if (!l)
        return;
    if (l->beating) {
        pthread_mutex_lock(&l->mutex);
        l->ending = 1;
        pthread_cond_signal(&l->end);
        pthread_mutex_unlock(&l->mutex);
        pthread_join(l->thread, NULL);
    }
    if (l->fd >= 0) {
        remove_file(l);
        sys_close(l->fd);
    }
    if (l->dir_fd >= 0)
        sys_close(l->dir_fd);
    free(l->dir);
    free(l);
}

static enum status begin(struct comm *c, const char *dir, const struct lock_rules *rules, struct run_lock **out)
{
    struct disk disk;
    struct run_lock *l = sys_calloc(1, sizeof *l);
    *out = l;
    if (!l)
        return status_fail(ERR_NOMEM, "out of memory");
    l->fd = -1;
    l->dir_fd = sys_open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (l->dir_fd < 0)
        return status_fail(ERR_IO, "cannot open the directory %s: %s", dir, strerror(errno));
    l->dir = strdup(dir);
    l->rules = *rules;
    if (rules->shared < 0)
        l->rules.shared = disk_look(dir, &disk) != 0 || disk.shared;
    process_self(&l->own.process);
    l->own.ranks = comm_size(c);
    l->own.id = mix(process_hash(&l->own.process), (uint64_t)clock_ns());
    return l->dir ? OK : status_fail(ERR_NOMEM, "out of memory");
}

enum status run_lock_take_by(struct comm *c, const char *dir, const struct lock_rules *rules, struct run_lock **out)
{
    struct sightings seen = {.begun = 0};
    struct run_lock *l = NULL;
    int leads = comm_rank(c) == 0;
    int32_t turn = WAITING;
    *out = NULL;
    enum status st = comm_agree(c, leads ? begin(c, dir, rules, &l) : OK);
    while (st == OK && turn == WAITING) { /* look() returns after each try, so that the other ranks never wait long for rank 0 */
        enum turn now = TAKEN;
        st = comm_agree(c, leads ? look(l, &seen, &now) : OK);
        turn = now;
        if (st == OK)
            st = comm_broadcast(c, 0, &turn, sizeof turn);
        if (st == OK && turn == WAITING)
            clock_sleep_ns((int64_t)(rules->poll * 1e9));
    }
    if (st == OK)
        st = comm_agree(c, leads ? start_beating(l) : OK);
    if (st != OK) {
        run_lock_release(l);
        return st;
    }
    *out = l;
    return OK;
}

enum status run_lock_take(struct comm *c, const char *dir, struct run_lock **out)
{
    static const struct lock_rules rules = {.patience = LOCK_PATIENCE, .poll = 1, .settle = SETTLE, .shared = -1, .locks = 1};
    return run_lock_take_by(c, dir, &rules, out);
}
