/* Calls that may never return, since a drive, a network file system or a GPU has stopped answering: whoever makes one enters it
 * here. A thread looks at all that are under way; what has taken long is said once, and what has taken longer than the user allows
 * ends the process, which nothing else could: the caller is inside the kernel or a driver. Before watch_start nothing is looked
 * at. */
#ifndef LTRAIN_BASE_WATCH_H
#define LTRAIN_BASE_WATCH_H

#include "base/status.h"

#include <stdint.h>

struct watch_call {
    const char *verb;  /* "read", "sync"; static */
    int fd;            /* the call's descriptor, or -1 */
    const char *path;  /* the path where there is no descriptor, copied; or NULL */
    int64_t bytes, at; /* bytes and offset of a transfer; bytes 0: no transfer */
    int device;        /* 1: a GPU's call; `path` says what has not ended, and its duration is not said before the end */
};

/* Registers a call and returns a handle for watch_leave; less than 0, which watch_leave takes too, where nothing is watched. */
int watch_enter(const struct watch_call *call);
void watch_leave(int handle);

struct watch_rules {
    double patience, timeout;          /* seconds: until it is said; until the process is ended */
    double device_timeout;             /* the same for calls of a GPU */
    void (*say)(const char *sentence); /* both are called by the thread; the table is not locked */
    void (*end)(const char *sentence); /* does not return */
};

/* Starts the watching thread, which runs until watch_stop; once at a time. ERR_NOMEM. */
enum status watch_start(const struct watch_rules *rules);
void watch_stop(void);
/* Sets other limits from now on, also for calls that are under way. */
void watch_set_timeouts(double seconds, double device_seconds);
/* Sets a text that is printed at the end beside the cause: what there is to go on from. */
void watch_remark(const char *text);

#endif
