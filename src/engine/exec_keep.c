/* Moving experts from the host or from drives into their slots. */
#include "engine/exec_keep.h"

#include "ops/experts_keep.h"

struct move {
    const struct exec_context *x;
    char *kept;
    const char *home;    /* NULL: the experts are in the store */
    int64_t home_offset; /* there */
    int64_t extent;      /* bytes that are written and read there as one */
};

static enum status from_host(void *user, int64_t to, int64_t from, int64_t bytes)
{
    const struct move *m = user;
    struct backend *b = m->x->backend;
    return backend_status(b, b->copy(b, LANE_H2D, m->kept + to, m->home + from, bytes));
}

/* Reads whole extents, by way of the host where drives do not reach the device. */
static enum status from_drives(void *user, int64_t to, int64_t from, int64_t bytes)
{
    const struct move *m = user;
    struct backend *b = m->x->backend;
    for (int64_t i = 0; i < bytes; i += m->extent) {
        void *at = b->host_reaches ? m->kept + to + i : m->x->staging;
        TRY(store_read(m->x->store, m->home_offset + from + i, at, m->extent));
        if (!b->host_reaches)
            TRY(backend_status(b, b->write(b, m->kept + to + i, at, m->extent)));
    }
    return OK;
}

enum status exec_experts_keep(const struct exec_context *x, enum lane lane, const struct op_attrs *a, void *const *arg,
                              int64_t home_offset)
{
    struct move m = {x, arg[0], arg[3], home_offset, a->keep.extent};
    return ops_experts_keep(a, arg[1], arg[2], arg[4], &(struct experts_mover){lane == LANE_READ ? from_drives : from_host, &m});
}
