/* Watching calls that may never return, because a drive, a network file system or a GPU has stopped answering.
 *
 * Whoever makes such a call registers it here. A thread looks at all registered calls. A call that takes long is reported once.
 * One that takes longer than the user allows ends the process: nothing else can, as the caller is inside the kernel or a driver.
 * Before watch_start nothing is watched. */
#ifndef LTRAIN_BASE_WATCH_H
#define LTRAIN_BASE_WATCH_H

#include "base/status.h"

#include <stdint.h>

struct watch_call {
    const char *verb;  /* "read", "sync"; static */
    int fd;            /* descriptor that the call is on, or -1 */
    const char *path;  /* path if there is no descriptor, copied; or NULL */
    int64_t bytes, at; /* bytes and offset of a transfer; bytes 0: the call is no transfer */
    int device;        /* 1: a GPU's call; `path` describes the work that has not ended, and only the timeout reports the call */
};

/* Registers a call and returns a handle for watch_leave. If nothing is watched the handle is below 0, which watch_leave takes,
 * too. */
int watch_enter(const struct watch_call *call);
void watch_leave(int handle);

struct watch_rules {
    double patience, timeout; /* patience: seconds until a call is reported; timeout: seconds until the process is ended */
    double device_timeout;    /* timeout of calls of a GPU */
    void (*say)(const char *sentence); /* say, end: called by the watching thread, with the table not locked */
    void (*end)(const char *sentence); /* does not return */
};

/* Starts the watching thread, which runs until watch_stop; once at a time. ERR_NOMEM. */
enum status watch_start(const struct watch_rules *rules);
void watch_stop(void);
/* Sets other timeouts from now on, also for calls that have begun. */
void watch_set_timeouts(double seconds, double device_seconds);
/* Sets a text that is printed with the cause when the process is ended: what a later run can continue from. */
void watch_remark(const char *text);

#endif
