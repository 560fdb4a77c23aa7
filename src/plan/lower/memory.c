#include "plan/lower/memory.h"

#include "base/sys.h"
#include "plan/lower/lowering.h"

#include <stdlib.h>

struct memory {
    struct memory *next;
    max_align_t objects[];
};

void *memory_new(struct lowering *L, int n, size_t size)
{
    struct memory *m = sys_calloc(1, sizeof *m + (size_t)(n > 0 ? n : 1) * size);
    if (!m) {
        if (L->st == OK)
            L->st = status_fail(ERR_NOMEM, "out of memory while planning");
        return NULL;
    }
    m->next = L->memory;
    L->memory = m;
    return m->objects;
}

void memory_free(struct lowering *L)
{
    while (L->memory) {
        struct memory *m = L->memory;
        L->memory = m->next;
        free(m);
    }
}
