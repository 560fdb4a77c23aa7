/* Memory that lives as long as one program's lowering: tiles, values, and what holds them. Nothing of it is freed by itself.
 * Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_MEMORY_H
#define LTRAIN_PLAN_LOWER_MEMORY_H

#include <stddef.h>

struct lowering;
struct memory;

/* n zeroed objects of `size` bytes each, at least one. NULL if memory is short, which the lowering's status then says. */
void *memory_new(struct lowering *L, int n, size_t size);
/* Frees all. */
void memory_free(struct lowering *L);

#endif
