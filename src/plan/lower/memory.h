/* Memory that lives as long as one program's lowering: tiles, values, and arrays of them. It is freed all at once. Private to
 * src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_MEMORY_H
#define LTRAIN_PLAN_LOWER_MEMORY_H

#include <stddef.h>

struct lowering;
struct memory;

/* Returns n zeroed objects of `size` bytes each, at least one. NULL if memory is short; the lowering's status then says so. */
void *memory_new(struct lowering *L, int n, size_t size);
void memory_free(struct lowering *L);

#endif
