/* Arrays that grow as elements come. */
#ifndef LTRAIN_BASE_GROW_H
#define LTRAIN_BASE_GROW_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* Doubles the room of a full array of *room elements (an empty one gets room for `least`) and returns its new address, as realloc
 * does. NULL: out of memory, with `what` named in the message; the old array is still valid. */
void *grow(void *array, int64_t *room, size_t element_bytes, int64_t least, const char *what);

#endif
