/* The simulated hosts: stand-ins for comm/peer.c and comm/lastword.c, and the C library's calls that see time, processes and
 * drives. */
#include "comm/state.h"

#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- peers ---- */

void peer_self(struct peer *p)
{
    p->boot = 1;
    p->pid = WORLD_PID + world_rank();
    p->born = 1;
}

void peer_locate(struct comm *c)
{
    c->hosts = 1;
    c->launch.local_size = c->launch.size;
    c->launch.local_rank = c->launch.rank;
    for (int r = 0; r < c->launch.size; r++)
        c->peer[r].here = r != c->launch.rank;
}

enum peer_life peer_look(const struct peer *p)
{
    const int rank = p->pid - WORLD_PID;
    const enum life life = world_life(rank);
    return life == LIFE_KILLED || life == LIFE_FAILED ? PEER_DEAD : world_is_stopped(rank) ? PEER_STOPPED : PEER_ALIVE;
}

int peer_found(const struct comm *c, enum peer_life life)
{
    for (int r = 0; r < c->launch.size; r++)
        if (c->peer[r].here && peer_look(&c->peer[r]) == life)
            return r;
    return -1;
}

/* ---- the last word: no rank is ended by MPI here ---- */

enum status lastword_create(struct comm *c)
{
    (void)c;
    return OK;
}

void lastword_destroy(struct comm *c)
{
    (void)c;
}

void lastword_broken(struct comm *c)
{
    (void)c;
}

void lastword_doing(struct comm *c, enum lane lane, int op)
{
    (void)c, (void)lane, (void)op;
}

void comm_remark(struct comm *c, const char *text)
{
    (void)c, (void)text;
}

int comm_speak(struct comm *c)
{
    (void)c;
    return 1;
}

/* Takes the place of lastword.c's function. */
void _exit(int status)
{
    for (;;)
        syscall(SYS_exit_group, status);
}

/* ---- time and processes ---- */

int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    if (world_rank() < 0)
        return __real_clock_gettime(id, t);
    int64_t ns = world_now();
    if (id == CLOCK_REALTIME)
        ns = INT64_C(1000000000) * world_draw(INT64_C(2000000000)); /* the time of day jumps: nothing may depend on it */
    *t = (struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
    return 0;
}

int __real_nanosleep(const struct timespec *t, struct timespec *left);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
    if (world_rank() < 0)
        return __real_nanosleep(t, left);
    world_sleep((int64_t)t->tv_sec * 1000000000 + t->tv_nsec);
    return 0;
}

pid_t __real_getpid(void);
pid_t __wrap_getpid(void);
pid_t __wrap_getpid(void)
{
    return world_rank() < 0 ? __real_getpid() : WORLD_PID + world_rank();
}

/* ---- drives ---- */

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    world_point();
    const int fd = __real_open64(path, flags, mode);
    world_opened(fd);
    return fd;
}

int __real_openat64(int dir_fd, const char *path, int flags, ...);
int __wrap_openat64(int dir_fd, const char *path, int flags, ...);
int __wrap_openat64(int dir_fd, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    world_point();
    const int fd = __real_openat64(dir_fd, path, flags, mode);
    world_opened(fd);
    return fd;
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    world_closed(fd);
    return __real_close(fd);
}

/* Fails, or makes the call. */
#define CALL(call) ((errno = world_drive()) ? -1 : (call))

/* Returns the result of a write; the planted bug takes a failed one for done. */
static ssize_t of_write(ssize_t result, size_t n)
{
    return result < 0 && world_rank() >= 0 && world_bug == BUG_IGNORES_ERRORS ? (ssize_t)n : result;
}

ssize_t __real_pwrite64(int fd, const void *data, size_t n, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *data, size_t n, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *data, size_t n, off_t at)
{
    return of_write(CALL(__real_pwrite64(fd, data, n, at)), n);
}

int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    (void)fd;
    return CALL(0);
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    return CALL(__real_rename(from, to));
}

int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
int __wrap_unlink(const char *path)
{
    return CALL(__real_unlink(path));
}

/* Removes the older checkpoint when the next one's directory is made. */
static void prune_first(const char *path)
{
    char old[4096];
    const char *name = strstr(path, "/step-000004.partial");
    if (name && snprintf(old, sizeof old, "%.*s/step-000002/manifest.json", (int)(name - path), path) < (int)sizeof old)
        unlinkat(AT_FDCWD, old, 0);
}

int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode)
{
    if (world_rank() >= 0 && world_bug == BUG_PRUNES_FIRST)
        prune_first(path);
    return CALL(__real_mkdir(path, mode));
}

int __real_fallocate64(int fd, int mode, off_t at, off_t bytes);
int __wrap_fallocate64(int fd, int mode, off_t at, off_t bytes);
int __wrap_fallocate64(int fd, int mode, off_t at, off_t bytes)
{
    return CALL(__real_fallocate64(fd, mode, at, bytes));
}

enum status __real_exec_instr(const void *x, const void *p, const void *in);
enum status __wrap_exec_instr(const void *x, const void *p, const void *in);
enum status __wrap_exec_instr(const void *x, const void *p, const void *in)
{
    world_point();
    return __real_exec_instr(x, p, in);
}

/* ---- planted bugs ---- */

enum bug world_bug;
const char *const world_bug_names[BUGS] = {"none",
                                           "a rank's own failure is left out of what the ranks agree on",
                                           "the older checkpoint is removed before the new one is there",
                                           "a write that fails counts as done",
                                           "a collective counts as done before it is",
                                           "waits have neither a deadline nor an eye on dead ranks"};

enum status __real_comm_agree(struct comm *c, enum status own);
enum status __wrap_comm_agree(struct comm *c, enum status own);
enum status __wrap_comm_agree(struct comm *c, enum status own)
{
    return __real_comm_agree(c, world_bug == BUG_AGREES_ALONE ? OK : own);
}

enum status __real_comm_poll(struct comm *c, enum lane lane, int *done);
enum status __wrap_comm_poll(struct comm *c, enum lane lane, int *done);
enum status __wrap_comm_poll(struct comm *c, enum lane lane, int *done)
{
    TRY(__real_comm_poll(c, lane, done));
    if (world_bug == BUG_DONE_EARLY && !*done && world_draw(1000) == 0) {
        comm_group(c, lane)->busy = 0;
        *done = 1;
    }
    return OK;
}

enum status __real_patience_look(struct comm *c, struct patience *p, int missing, const char *what);
enum status __wrap_patience_look(struct comm *c, struct patience *p, int missing, const char *what);
enum status __wrap_patience_look(struct comm *c, struct patience *p, int missing, const char *what)
{
    return world_bug == BUG_WAITS_FOR_EVER ? OK : __real_patience_look(c, p, missing, what);
}
