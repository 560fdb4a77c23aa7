/* The verifier for all ranks together: proves that the collectives of programs that run at the same time match.
 *
 * Ranks with equal roles run one program. The cost of verifying a mesh grows with its roles, hardly with its ranks. */
#ifndef LTRAIN_VERIFY_MESH_H
#define LTRAIN_VERIFY_MESH_H

#include "program/program.h"
#include "verify/roles.h"

/* Verifies the mesh of programs that each passed program_verify. Within every group of every comm lane:
 * - there are as many members as each member's program says, with indices 0 .. size - 1;
 * - the members' k-th collectives are the same op with the same attributes on the same rows of tensors of the same names, and
 *   every member has as many;
 * - no deadlock: the union of all ranks' waits and lane orders, and of the rule that no member retires a collective before all
 *   have started it, is acyclic. (An exchange waits for two members at most, and only if its predicates hold: the rule is
 *   stricter.)
 * ERR_CORRUPT and one sentence that names ranks, programs, lane and the collective's number on it. */
enum status program_verify_mesh(const struct program *const *roles, int n_roles, const struct mesh_roles *mesh);

#endif
