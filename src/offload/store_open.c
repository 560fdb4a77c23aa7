/* Opening, describing and closing the extent store. */
#include "base/num.h"
#include "base/sys.h"
#include "base/units.h"
#include "offload/store_lanes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define MAX_DEPTH 256

const char *store_describe(const struct store *s)
{
    return s->describe;
}

/* Opens both directions in one way. *denied: errno of io_uring if threads replace it, or 0. */
static enum status open_io(struct store *s, const struct store_config *config, int *denied)
{
    struct io_config c = {s->files.fds, s->files.n, s->depth, config->pinned, config->pinned_bytes};
    *denied = 0;
    if (config->way != STORE_THREADS) {
        int error = io_open_uring(&c, &s->lanes[STORE_READ].io);
        if (error == 0 && (error = io_open_uring(&c, &s->lanes[STORE_WRITE].io)) == 0)
            return OK;
        struct io **first = &s->lanes[STORE_READ].io;
        if (*first)
            (*first)->way->close(*first);
        *first = NULL;
        if (config->way == STORE_URING)
            return status_fail(ERR_IO, "io_uring is not available: %s: let ltrain choose, it can use threads", strerror(error));
        *denied = error;
    }
    for (int d = 0; d < 2; d++) {
        int error = io_open_threads(&c, &s->lanes[d].io);
        if (error)
            return status_fail(ERR_IO, "cannot start threads for the nvme tier: %s", strerror(error));
    }
    return OK;
}

/* Slows the store down if a test asks for it. */
static enum status slow_down(struct store *s)
{
    double rate = io_slow_rate();
    for (int d = 0; d < 2 && rate > 0; d++)
        if (io_slow(&s->lanes[d].io, rate) != 0)
            return status_fail(ERR_NOMEM, "no memory for a slow drive");
    return OK;
}

static void describe_buffers(const struct store *s, const struct store_config *config, char *said, size_t size)
{
    const struct io *read = s->lanes[STORE_READ].io, *write = s->lanes[STORE_WRITE].io;
    int error = read->unfixed_error ? read->unfixed_error : write->unfixed_error;
    struct rlimit limit;
    char buf[32];
    if (read->fixed || write->fixed)
        snprintf(said, size, ", fixed buffers%s%s",
                 read->fixed && write->fixed ? "" : " in one direction: ", error ? strerror(error) : "");
    else if (error == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur < (rlim_t)config->pinned_bytes)
        snprintf(said, size, ", no fixed buffers: memlock limit is %s (ulimit -l)",
                 units_format_bytes((int64_t)limit.rlim_cur, buf));
    else if (error)
        snprintf(said, size, ", no fixed buffers: %s", strerror(error));
}

static void describe(struct store *s, const struct store_config *config, int denied)
{
    char buf[32], paths[600] = "", why[160] = "", direct[160] = "O_DIRECT", buffers[128] = "", dead[96] = "";
    for (int i = 0; i < config->n_paths; i++) {
        size_t n = strlen(paths);
        snprintf(paths + n, sizeof paths - n, "%s%s", i ? " + " : "", config->paths[i]);
    }
    if (denied)
        snprintf(why, sizeof why, " (no io_uring: %s; `ltrain doctor` says what may be in its way)", strerror(denied));
    if (s->files.buffered)
        snprintf(direct, sizeof direct, "no O_DIRECT (%.100s refuses it)", s->files.buffered);
    describe_buffers(s, config, buffers, sizeof buffers);
    if (s->files.n_dead > 0)
        snprintf(dead, sizeof dead, "; removed %d file%s of dead runs (%s)", s->files.n_dead, s->files.n_dead > 1 ? "s" : "",
                 units_format_bytes(s->files.dead_bytes, buf));
    snprintf(s->describe, sizeof s->describe, "nvme %s: %s preallocated, %s%s, %s%s%s", paths, units_format_bytes(s->bytes, buf),
             s->lanes[0].io->way->name, why, direct, buffers, dead);
}

static enum status open_lane(struct store *s, enum store_direction d)
{
    struct store_lane *l = &s->lanes[d];
    l->direction = d;
    l->window = sys_calloc((size_t)s->depth, sizeof *l->window);
    l->bounce = sys_mmap((size_t)s->depth * BOUNCE_BYTES, MAP_POPULATE); /* resident before the first step */
    l->hash = XXH3_createState();
    return l->window && l->bounce && l->hash ? OK : status_fail(ERR_NOMEM, "no memory for the window of the nvme tier");
}

enum status store_open(const struct store_config *config, struct store **out)
{
    enum status st;
    int denied;
    int64_t block = round_up(config->block ? config->block : DRIVE_BLOCK, STORE_ALIGN);
    int depth = config->depth ? config->depth : DRIVE_DEPTH;
    if (config->n_paths < 1 || config->n_paths > STORE_MAX_PATHS || config->bytes < 0 || config->bytes > INT64_MAX / 4)
        return status_fail(ERR_INVALID, "an nvme tier of %lld bytes over %d paths: 1 to %d paths are possible",
                           (long long)config->bytes, config->n_paths, STORE_MAX_PATHS);
    if (block < STORE_ALIGN || block > 1 << 30 || depth < 1 || depth > MAX_DEPTH)
        return status_fail(ERR_INVALID, "nvme blocks of %lld bytes, %d in flight: %d bytes to 1 GiB and 1 to %d are possible",
                           (long long)block, depth, STORE_ALIGN, MAX_DEPTH);
    struct store *s = sys_calloc(1, sizeof *s);
    if (!s)
        return status_fail(ERR_NOMEM, "no memory for the nvme tier");
    s->bytes = config->bytes;
    s->block = block;
    s->depth = depth;
    s->rank = config->rank;
    TRY_GOTO(files_create(config, block, &s->files), close);
    s->extents = extents_create();
    if (!s->extents) {
        st = status_fail(ERR_NOMEM, "no memory for the table of nvme extents");
        goto close;
    }
    for (int d = 0; d < 2; d++)
        TRY_GOTO(open_lane(s, (enum store_direction)d), close);
    TRY_GOTO(open_io(s, config, &denied), close);
    TRY_GOTO(slow_down(s), close);
    describe(s, config, denied);
    *out = s;
    return OK;
close:
    store_close(s);
    return st;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    for (int d = 0; d < 2; d++) {
        struct store_lane *l = &s->lanes[d];
        lane_drain(s, l);
        if (l->io)
            l->io->way->close(l->io);
        if (l->bounce)
            munmap(l->bounce, (size_t)s->depth * BOUNCE_BYTES);
        free(l->window);
        XXH3_freeState(l->hash);
    }
    extents_destroy(s->extents);
    files_remove(&s->files);
    free(s);
}
