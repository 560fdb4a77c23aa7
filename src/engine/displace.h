/* Other addresses for what a program holds only while it runs. Private to src/engine. */
#ifndef LTRAIN_ENGINE_DISPLACE_H
#define LTRAIN_ENGINE_DISPLACE_H

#include "plan/plan.h"

/* Returns the bytes by which a program of the plan may be displaced in a tier: those that a larger program of the plan takes. nvme: 0. */
int64_t displace_room(const struct plan *plan, const struct program *p, enum tier t);
/* Moves all of the program's buffers but persistent ones up by its room in each tier (sign 1), or back (-1). All keep their distances, so
 * the program's waits suffice. */
void displace_program(const struct plan *plan, struct program *p, int sign);

#endif
