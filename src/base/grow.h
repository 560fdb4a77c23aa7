/* Arrays that grow as elements come. */
#ifndef LTRAIN_BASE_GROW_H
#define LTRAIN_BASE_GROW_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/* An array that is full, *room elements of it, with room for twice as many (`least` at first): its new address, as of realloc. NULL: out
 * of memory for that many `what`, of which status_message speaks, and the old one stays. */
void *grow(void *array, int64_t *room, size_t element_bytes, int64_t least, const char *what);

#endif
