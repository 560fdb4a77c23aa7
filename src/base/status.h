/* Status codes and the one sentence that explains the last failure. */
#ifndef LTRAIN_BASE_STATUS_H
#define LTRAIN_BASE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

enum status {
    OK = 0,
    ERR_INVALID = -1, /* wrong usage, configuration or input (exit 2) */
    ERR_NOFIT = -2,   /* the plan does not fit a budget (exit 3) */
    ERR_IO = -3,      /* a system call failed */
    ERR_CORRUPT = -4, /* bytes that are not what was written */
    ERR_NOMEM = -5,
    ERR_CANCELLED = -6, /* another lane failed first */
    ERR_DIVERGED = -7,  /* training gives no finite numbers any more */
    ERR_PEER = -8,      /* another rank failed, died or stalled */
    ERR_STOPPED = -9,   /* a signal ended the work, and nothing failed */
};

/* Records the calling thread's failure sentence and returns `code`, so that an error site is one line:
 *
 * return status_fail(ERR_IO, "cannot read %s: %s", path, strerror(errno));
 *
 * The sentence is recorded once, where the failure is first detected; callers only pass the code on. */
enum status status_fail(enum status code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Records "out of memory" and the occasion ("while planning"); returns ERR_NOMEM. */
enum status status_no_memory(const char *occasion);

/* Returns the calling thread's last sentence ("" if none), valid until its next status_fail. */
const char *status_message(void);

#define TRY(x)                     \
    do {                           \
        enum status try_st_ = (x); \
        if (try_st_ != OK)         \
            return try_st_;        \
    } while (0)

/* Needs a variable `enum status st` in scope, which receives the status. */
#define TRY_GOTO(x, label) \
    do {                   \
        st = (x);          \
        if (st != OK)      \
            goto label;    \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
