/* Protocol bugs that are planted on request; those of system calls are in host.c, and one of the wire's is in wire.c. */
#include "comm/state.h"
#include "train/metrics.h"
#include "train/run.h"
#include "train/signals.h"

#include "world.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum bug world_bug;
const char *const world_bug_names[BUGS] = {"none",
                                           "a rank's own failure is left out of what the ranks agree on",
                                           "the older checkpoint is removed before the new one is there",
                                           "a write that fails counts as done",
                                           "a collective counts as done before it is",
                                           "waits have neither a deadline nor an eye on dead ranks",
                                           "a signal is noticed by its own rank only",
                                           "files get their names before they are synced",
                                           "a resumed run leaves the log of steps that it does again",
                                           "a state is saved before its pending update",
                                           "messages of one channel overtake each other",
                                           "a write of half the bytes counts as whole"};

void bug_prune_first(const char *path)
{
    char old[4096];
    int step;
    const char *name = strstr(path, "/step-");
    if (!name || !strstr(name, ".partial") || sscanf(name, "/step-%d", &step) != 1)
        return;
    for (int s = 1; s < step; s++)
        if (snprintf(old, sizeof old, "%.*s/step-%06d/manifest.json", (int)(name - path), path, s) < (int)sizeof old)
            unlinkat(AT_FDCWD, old, 0);
}

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

enum status __real_signals_agree(struct comm *c, int *number);
enum status __wrap_signals_agree(struct comm *c, int *number);
enum status __wrap_signals_agree(struct comm *c, int *number)
{
    TRY(__real_signals_agree(c, number));
    if (world_bug == BUG_NOTICE_LOST)
        *number = atomic_load(signals_first());
    return OK;
}

enum status __real_metrics_cut(const char *path, int64_t step, struct spikes *kept, int64_t *last);
enum status __wrap_metrics_cut(const char *path, int64_t step, struct spikes *kept, int64_t *last);
enum status __wrap_metrics_cut(const char *path, int64_t step, struct spikes *kept, int64_t *last)
{
    *last = step;
    return world_bug == BUG_LOG_NOT_CUT ? OK : __real_metrics_cut(path, step, kept, last);
}

enum status __real_run_flush(struct run *r);
enum status __wrap_run_flush(struct run *r);
enum status __wrap_run_flush(struct run *r)
{
    return world_bug == BUG_SAVES_EARLY ? OK : __real_run_flush(r);
}
