#include "base/grow.h"

#include "base/sys.h"

void *grow(void *array, int64_t *room, size_t element_bytes, int64_t least, const char *what)
{
    const int64_t wanted = *room > 0 ? 2 * *room : least;
    void *grown = sys_realloc(array, (size_t)wanted * element_bytes);
    if (!grown) {
        (void)status_fail(ERR_NOMEM, "out of memory: %lld %s", (long long)wanted, what);
        return NULL;
    }
    *room = wanted;
    return grown;
}
