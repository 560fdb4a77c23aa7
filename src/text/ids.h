/* Growing arrays of token ids. */
#ifndef LTRAIN_TEXT_IDS_H
#define LTRAIN_TEXT_IDS_H

#include "base/status.h"
#include "base/sys.h"

#include <stddef.h>
#include <stdint.h>

struct ids {
    int32_t *id;
    size_t n, room;
};

static inline enum status ids_reserve(struct ids *a, size_t n)
{
    if (a->room - a->n >= n)
        return OK;
    size_t room = a->room ? a->room : 1024;
    while (room - a->n < n)
        room *= 2;
    int32_t *id = sys_realloc(a->id, room * sizeof *id);
    if (!id)
        return status_fail(ERR_NOMEM, "out of memory: %zu tokens", room);
    a->id = id;
    a->room = room;
    return OK;
}

static inline enum status ids_add(struct ids *a, int32_t id)
{
    if (a->n == a->room)
        TRY(ids_reserve(a, 1));
    a->id[a->n++] = id;
    return OK;
}

#endif
