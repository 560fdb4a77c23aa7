/* Calls that may never return, since a drive, a network file system or a GPU has stopped answering: whoever makes one enters it
 * here. A thread looks at all that are under way; what has taken long is said once, and what has taken longer than the user allows
 * ends the process, which nothing else could: the caller is inside the kernel or a driver. Before watch_start nothing is looked
 * at. */
#ifndef LTRAIN_BASE_WATCH_H
#define LTRAIN_BASE_WATCH_H

#include "base/status.h"

#include <stdint.h>

struct watch_call {
    const char *verb; /* "read", "sync"; static */
    int fd;           /* what it is about, or -1 */
    const char *path; /* else this one, copied; or NULL */
    int64_t bytes, at; /* of a transfer; bytes 0: no transfer */
    int device;        /* of a GPU: `path` says what has not ended, and how long it takes is not said before the end */
};

/* A handle for watch_leave; less than 0, which is as good, where nothing is looked at. */
int watch_enter(const struct watch_call *call);
void watch_leave(int handle);

struct watch_rules {
    double patience, timeout;          /* seconds: until it is said; until the process is ended */
    double device_timeout;             /* the same for calls of a GPU */
    void (*say)(const char *sentence); /* both are called by the thread; the table is not locked */
    void (*end)(const char *sentence); /* does not return */
};

/* Once at a time; the thread runs until watch_stop. ERR_NOMEM. */
enum status watch_start(const struct watch_rules *rules);
void watch_stop(void);
/* Another one from now on, also for calls that are under way. */
void watch_set_timeouts(double seconds, double device_seconds);
/* What is said at the end beside the cause: what there is to go on from. */
void watch_remark(const char *text);

#endif
