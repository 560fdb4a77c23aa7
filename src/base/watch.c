/* The table of calls that have not returned yet, and the thread that watches it. */
#include "base/watch.h"

#include "base/clock.h"
#include "base/units.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CALLS 256       /* most calls watched at once; further ones are not watched */
#define LEAST_TICK 0.01 /* least seconds between two looks at the table */
#define MOST_TICK 1.0
enum { PATH_BYTES = 400, SENTENCE = 1200 };

struct slot {
    int64_t since_ns; /* start time by watch.now_ns; 0: the slot is free */
    struct watch_call call;
    char path[PATH_BYTES];
    int said;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t end;
    pthread_t thread;
    atomic_int running;
    /* The fields below are used under the lock. */
    int64_t now_ns; /* time counted by the thread, which stands still while the process is stopped */
    int ended, next;
    struct watch_rules rules;
    struct slot slot[CALLS];
    char remark[512];
} watch = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Finds the path that a descriptor is open on, without asking a drive; returns 0 if it is closed. */
static int path_of(int fd, char path[PATH_BYTES])
{
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_BYTES - 1);
    if (n >= 0)
        path[n] = 0;
    return n >= 0;
}

int watch_enter(const struct watch_call *call)
{
    int handle = -1, fd = call->fd;
    char path[PATH_BYTES];
    if (!atomic_load(&watch.running))
        return -1;
    /* the path of a transfer is found only when it is reported; that of a close must be found now, before the descriptor is gone */
    if (fd >= 0 && call->bytes == 0 && path_of(fd, path))
        fd = -1;
    else
        snprintf(path, sizeof path, "%s", call->path ? call->path : "");
    pthread_mutex_lock(&watch.lock);
    for (int i = 0; i < CALLS && handle < 0; i++, watch.next = (watch.next + 1) % CALLS)
        if (!watch.slot[watch.next].since_ns)
            handle = watch.next;
    if (handle >= 0) {
        struct slot *s = &watch.slot[handle];
        s->since_ns = watch.now_ns;
        s->call = *call;
        s->call.fd = fd;
        s->said = 0;
        memcpy(s->path, path, sizeof path);
    }
    pthread_mutex_unlock(&watch.lock);
    return handle;
}

/* Formats a call, as "read 1.0 MiB at offset 4096 of /scratch/x". */
static void describe(const struct slot *s, char *text, size_t size)
{
    char path[PATH_BYTES], bytes[32];
    if (s->call.fd < 0 || !path_of(s->call.fd, path))
        snprintf(path, sizeof path, "%s", s->path);
    if (s->call.bytes > 0)
        snprintf(text, size, "%s %s at offset %lld of %s", s->call.verb, units_format_bytes(s->call.bytes, bytes),
                 (long long)s->call.at, path);
    else
        snprintf(text, size, "%s %s", s->call.verb, path);
}

void watch_leave(int handle)
{
    char what[SENTENCE], text[SENTENCE + 64] = "";
    void (*say)(const char *) = NULL;
    if (handle < 0)
        return;
    pthread_mutex_lock(&watch.lock);
    struct slot *s = &watch.slot[handle];
    if (s->said) {
        describe(s, what, sizeof what);
        snprintf(text, sizeof text, "to %s took %.3g s; going on", what, (double)(watch.now_ns - s->since_ns) * 1e-9);
        say = watch.rules.say;
    }
    s->since_ns = 0;
    pthread_mutex_unlock(&watch.lock);
    if (say)
        say(text);
}

/* Returns the oldest call, among a GPU's (device 1) or among the others, that has taken more than `seconds`; NULL: none. The
 * caller holds the lock. */
static struct slot *longer_than(double seconds, int device, int unsaid)
{
    struct slot *oldest = NULL;
    int64_t before = watch.now_ns - (int64_t)(seconds * 1e9);
    for (int i = 0; i < CALLS; i++) {
        struct slot *s = &watch.slot[i];
        if (s->since_ns && s->call.device == device && s->since_ns <= before && !(unsaid && s->said) &&
            (!oldest || s->since_ns < oldest->since_ns))
            oldest = s;
    }
    return oldest;
}

/* Finds calls that have taken long, and reports them without holding the lock. */
static void look(void)
{
    char what[SENTENCE], text[2 * SENTENCE];
    const struct watch_rules rules = watch.rules, *r = &rules;
    const char *before_remark = watch.remark[0] ? "; " : "";
    struct slot *s = longer_than(r->device_timeout, 1, 0);
    if (s) {
        snprintf(text, sizeof text, "%s for %g s (--device-timeout)%s%s", s->path, r->device_timeout, before_remark,
                 watch.remark);
        r->end(text);
    }
    s = longer_than(r->timeout, 0, 0);
    if (s) {
        describe(s, what, sizeof what);
        snprintf(text, sizeof text, "cannot %s: no answer for %g s (--drive-timeout): check the drive%s%s", what, r->timeout,
                 before_remark, watch.remark);
        r->end(text);
    }
    while ((s = longer_than(r->patience, 0, 1))) {
        describe(s, what, sizeof what);
        s->said = 1;
        pthread_mutex_unlock(&watch.lock);
        snprintf(text, sizeof text, "waiting for %g s to %s; the run ends when there is no answer for %g s (--drive-timeout)",
                 r->patience, what, r->timeout);
        r->say(text);
        pthread_mutex_lock(&watch.lock);
    }
}

/* Returns the time between two looks at the table. The caller holds the lock. */
static int64_t pause_ns(void)
{
    double least = watch.rules.patience < watch.rules.timeout ? watch.rules.patience : watch.rules.timeout, tick;
    least = least < watch.rules.device_timeout ? least : watch.rules.device_timeout;
    tick = least / 4;
    tick = tick < LEAST_TICK ? LEAST_TICK : tick > MOST_TICK ? MOST_TICK : tick;
    return (int64_t)(tick * 1e9);
}

static void *run(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&watch.lock);
    for (int64_t last = clock_ns(); !watch.ended;) {
        const int64_t tick_ns = pause_ns();
        clock_cond_wait(&watch.end, &watch.lock, clock_ns() + tick_ns);
        int64_t now = clock_ns(), passed = now - last;
        watch.now_ns += passed < 2 * tick_ns ? passed : 2 * tick_ns;
        last = now;
        if (!watch.ended)
            look();
    }
    pthread_mutex_unlock(&watch.lock);
    return NULL;
}

enum status watch_start(const struct watch_rules *rules)
{
    clock_cond_init(&watch.end);
    watch.rules = *rules;
    watch.ended = 0;
    watch.now_ns = 1;
    if (pthread_create(&watch.thread, NULL, run, NULL) != 0) {
        pthread_cond_destroy(&watch.end);
        return status_fail(ERR_NOMEM, "cannot start the thread that watches drives: fewer threads or processes must run here");
    }
    atomic_store(&watch.running, 1);
    return OK;
}

void watch_stop(void)
{
    if (!atomic_exchange(&watch.running, 0))
        return;
    pthread_mutex_lock(&watch.lock);
    watch.ended = 1;
    pthread_cond_signal(&watch.end);
    pthread_mutex_unlock(&watch.lock);
    pthread_join(watch.thread, NULL);
    pthread_cond_destroy(&watch.end);
}

void watch_set_timeouts(double seconds, double device_seconds)
{
    pthread_mutex_lock(&watch.lock);
    watch.rules.timeout = seconds;
    watch.rules.device_timeout = device_seconds;
    pthread_mutex_unlock(&watch.lock);
}

void watch_remark(const char *text)
{
    pthread_mutex_lock(&watch.lock);
    snprintf(watch.remark, sizeof watch.remark, "%s", text);
    pthread_mutex_unlock(&watch.lock);
}
