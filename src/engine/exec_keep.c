/* Moving experts from the host or from drives into their slots. */
#include "engine/exec_keep.h"

#include "ops/experts_keep.h"

#include <string.h>

struct move {
    const struct exec_context *x;
    char *kept;
    const char *home;    /* NULL: the experts are in the store */
    int64_t home_offset; /* there */
    int64_t extent;      /* bytes that are written and read there as one */
    int64_t home_bytes;  /* all bytes there: the last extent may be shorter */
};

static enum status from_host(void *user, int64_t to, int64_t from, int64_t bytes)
{
    const struct move *m = user;
    struct backend *b = m->x->backend;
    return backend_status(b, b->copy(b, LANE_H2D, m->kept + to, m->home + from, bytes));
}

/* Reads whole extents, by way of the host where drives do not reach the device, or where only a part of an extent is wanted. */
static enum status from_drives(void *user, int64_t to, int64_t from, int64_t bytes)
{
    const struct move *m = user;
    struct backend *b = m->x->backend;
    const int64_t end = from + bytes;
    for (int64_t at = from / m->extent * m->extent; at < end; at += m->extent) {
        const int64_t whole = min_i64(m->extent, m->home_bytes - at), first = max_i64(at, from), last = min_i64(at + whole, end);
        char *const wanted = m->kept + to + (first - from), *const staging = m->x->staging;
        const int direct = b->host_reaches && last - first == whole;
        TRY(store_read(m->x->store, m->home_offset + at, direct ? wanted : staging, whole));
        if (b->host_reaches && !direct)
            memcpy(wanted, staging + (first - at), (size_t)(last - first));
        if (!b->host_reaches)
            TRY(backend_status(b, b->write(b, wanted, staging + (first - at), last - first)));
    }
    return OK;
}

enum status exec_experts_keep(const struct exec_context *x, enum lane lane, const struct op_attrs *a, void *const *arg,
                              int64_t home_offset)
{
    struct move m = {x, arg[0], arg[3], home_offset, a->keep.extent, a->keep.experts * experts_keep_bytes(a)};
    return ops_experts_keep(a, arg[1], arg[2], arg[4], &(struct experts_mover){lane == LANE_READ ? from_drives : from_host, &m});
}
