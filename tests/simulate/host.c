/* The simulated hosts: stand-ins for comm/peer.c and comm/lastword.c, and the C library's calls that see time, processes, signals
 * and drives. */
#include "comm/state.h"

#include "world.h"

#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
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

char __real_process_state(int64_t pid, uint64_t *born);
char __wrap_process_state(int64_t pid, uint64_t *born);
char __wrap_process_state(int64_t pid, uint64_t *born)
{
    const int64_t rank = pid - WORLD_PID;
    if (world_rank() < 0)
        return __real_process_state(pid, born);
    *born = (uint64_t)world_lives(); /* a rank of the life before had the same number */
    return rank >= 0 && rank < world_ranks() && world_life((int)rank) == LIFE_RUNS ? 'R' : 0;
}

/* ---- signals ---- */

static void (*handler[WORLD_MOST])(int number);

void host_signal(int number)
{
    if (!handler[world_rank()])
        world_die();
    handler[world_rank()](number);
}

int __real_sigaction(int number, const struct sigaction *want, struct sigaction *had);
int __wrap_sigaction(int number, const struct sigaction *want, struct sigaction *had);
int __wrap_sigaction(int number, const struct sigaction *want, struct sigaction *had)
{
    if (world_rank() < 0)
        return __real_sigaction(number, want, had);
    if (had)
        *had = (struct sigaction){.sa_handler = SIG_DFL};
    if (want && number == SIGTERM)
        handler[world_rank()] = want->sa_handler;
    return 0;
}

int __real_raise(int number);
int __wrap_raise(int number);
int __wrap_raise(int number)
{
    if (world_rank() >= 0)
        world_die();
    return __real_raise(number);
}

/* ---- drives ---- */

/* Files with bytes that were written and not synced. A power cut leaves them as long as they were at their last sync. */
enum { UNSYNCED_MOST = 256 };
static struct unsynced {
    int fd; /* a descriptor of our own; 0: the entry is free */
    ino_t inode;
    off_t synced;
} unsynced[UNSYNCED_MOST];

static struct unsynced *find_unsynced(ino_t inode)
{
    for (int i = 0; i < UNSYNCED_MOST; i++)
        if (unsynced[i].fd > 0 && unsynced[i].inode == inode)
            return &unsynced[i];
    return NULL;
}

/* Notes a file that is about to be written. */
static void note_write(int fd)
{
    struct stat s;
    if (world_rank() < 0 || fstat(fd, &s) != 0 || !S_ISREG(s.st_mode) || find_unsynced(s.st_ino))
        return;
    for (int i = 0; i < UNSYNCED_MOST; i++)
        if (unsynced[i].fd == 0) {
            unsynced[i] = (struct unsynced){fcntl(fd, F_DUPFD_CLOEXEC, 0), s.st_ino, s.st_size};
            return;
        }
}

static void note_sync(int fd)
{
    struct stat s;
    struct unsynced *u = fstat(fd, &s) == 0 ? find_unsynced(s.st_ino) : NULL;
    if (!u || world_bug == BUG_RENAMES_FIRST)
        return;
    syscall(SYS_close, u->fd);
    u->fd = 0;
}

void host_cut_power(void)
{
    for (int i = 0; i < UNSYNCED_MOST; i++)
        if (unsynced[i].fd > 0 && ftruncate(unsynced[i].fd, unsynced[i].synced) != 0)
            perror("simulate: a power cut");
}

void host_reset(void)
{
    memset(handler, 0, sizeof handler);
    for (int i = 0; i < UNSYNCED_MOST; i++)
        if (unsynced[i].fd > 0)
            syscall(SYS_close, unsynced[i].fd);
    memset(unsynced, 0, sizeof unsynced);
}

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

/* Fails, or makes the call; nothing but a write can be short. */
#define CALL(call) ((errno = world_drive()) > 0 ? -1 : (call))

ssize_t __real_pwrite64(int fd, const void *data, size_t n, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *data, size_t n, off_t at);
ssize_t __wrap_pwrite64(int fd, const void *data, size_t n, off_t at)
{
    const int fault = world_drive();
    const ssize_t whole = (ssize_t)n;
    if (fault > 0) {
        errno = fault;
        return world_bug == BUG_IGNORES_ERRORS ? whole : -1;
    }
    note_write(fd);
    const ssize_t done = __real_pwrite64(fd, data, fault == SHORT_WRITE ? (n + 1) / 2 : n, at);
    return fault == SHORT_WRITE && world_bug == BUG_HALF_IS_WHOLE ? whole : done;
}

int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    const int error = world_drive();
    if (error > 0) {
        errno = error;
        return -1;
    }
    note_sync(fd);
    return 0;
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

int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode)
{
    if (world_rank() >= 0 && world_bug == BUG_PRUNES_FIRST)
        bug_prune_first(path);
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
