/* Symbolic values of programs, by which tests compare placements. */
#ifndef LTRAIN_TESTS_VERIFY_VALUE_NUMBERS_H
#define LTRAIN_TESTS_VERIFY_VALUE_NUMBERS_H

#include "verify/verify.h"

/* Computes a digest of the symbolic value of everything in live_out. It is equal for two programs iff (up to hash collisions) every
 * tensor there is computed by the same ops with the same attributes from the same inputs, whatever the tiers, copies, addresses,
 * order and versions. Inputs (live_in) are named by tensor name and rows. The digest covers (tensor name, rows, value) of all
 * live_out bindings, segments coalesced, independent of how bindings are cut and of their order. Tensor names are unique per
 * logical value and equal across placements. Only for verified programs. */
enum status program_value_digest(const struct program *p, uint64_t *digest);

#endif
