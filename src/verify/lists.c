/* Memory for lists of numbers by index. */
#include "verify/lists.h"

#include "base/sys.h"

#include <stdlib.h>

int lists_create(struct lists *l, int n, int64_t total)
{
    l->first = sys_calloc((size_t)n + 2, sizeof *l->first);
    l->at = sys_malloc(sizeof *l->at * (size_t)(total + 1));
    return l->first && l->at;
}

void lists_destroy(struct lists *l)
{
    free(l->first);
    free(l->at);
}
