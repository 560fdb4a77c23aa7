/* Canaries: arena bytes that no buffer of any program owns keep a pattern. Private to src/engine. */
#ifndef LTRAIN_ENGINE_CANARY_H
#define LTRAIN_ENGINE_CANARY_H

#include "engine/exec_context.h"
#include "plan/plan.h"

struct canary; /* the gaps of the device and host arenas under one plan */

/* Places of buffers that are no gaps. */
enum canary_places { CANARY_PLANNED, CANARY_DISPLACED /* planned ones, and those that displace.h makes of them */ };

/* Finds the gaps; the context must outlive it. */
enum status canary_create(const struct plan *plan, const struct exec_context *x, enum canary_places places, struct canary **out);
void canary_destroy(struct canary *c); /* NULL is fine */
/* Writes the pattern into all gaps. */
enum status canary_fill(const struct canary *c);
/* Checks all gaps. ERR_CORRUPT: names tier and offset of the first changed byte. */
enum status canary_check(const struct canary *c);

#endif
