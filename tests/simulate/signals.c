/* The variables of train/signals.c, which each process has for itself: every rank gets its own. */
#include "world.h"

#include "../../src/train/signals.c"

/* All variables there that change. */
#define EACH(X) \
    X(first) X(first_ns) X(asked_ns) X(done) X(early_remark) X(stop_remark) X(stop_fd) X(failing) X(left) X(together) X(answered)

static struct {
#define FIELD(v) __typeof__(v) v;
    EACH(FIELD)
} kept[WORLD_MOST];

void signals_keep(int rank)
{
#define KEEP(v) kept[rank].v = v;
    EACH(KEEP)
}

void signals_bring(int rank)
{
#define BRING(v) v = kept[rank].v;
    EACH(BRING)
}

void signals_reset(int ranks)
{
    for (int r = 0; r < ranks; r++) {
#define RESET(v) kept[r].v = 0;
        EACH(RESET)
    }
}
