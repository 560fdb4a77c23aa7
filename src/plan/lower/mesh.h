/* Degrees of the mesh: those chosen by rule, and alternatives. */
#ifndef LTRAIN_PLAN_LOWER_MESH_H
#define LTRAIN_PLAN_LOWER_MESH_H

#include "base/status.h"
#include "model/model.h"
#include "settings/settings.h"

/* Resolves dp, ulysses and ring for `ranks` ranks, and with them batch and grad_accum. Every host has a multiple of per_host
 * ranks. Degrees that are given stay; others are derived by rule. s->open_degrees says which of the derived ones planning may
 * choose anew, s->packing_is_open whether it chooses the sequences of a micro-batch: dp only if there is a batch, since without one the sequences of a step follow from dp. ERR_INVALID names a degree
 * that does not divide, the legal degrees, or the values of dp that a batch is large enough for. */
enum status plan_mesh(const struct model *m, struct plan_request *s, int ranks, int per_host);
/* Takes another mesh and number of sequences in a micro-batch, and with them another grad_accum if there is a batch. */
void plan_take_mesh(struct plan_request *s, const struct mesh *mesh, int64_t packed);
/* Returns the i-th number of sequences that may be packed into a micro-batch on the mesh; 0: there are no more. A group's sequences
 * are halved again and again, so that few places of the last micro-batch stay empty. */
int64_t plan_packing(const struct plan_request *s, const struct mesh *mesh, int i);
/* Lists the meshes of the same number of ranks that s->open_degrees leaves open, s->mesh among them. Ulysses groups lie inside
 * hosts, unless their degree is given. Returns the number of meshes; `out` has the first `most` of them. */
int plan_meshes(const struct model *m, const struct plan_request *s, struct mesh *out, int most);
/* Sets the i-th other pair of degrees that shares a sequence among the same ranks, if both degrees are open. Returns 0 if there
 * is none. */
int plan_other_degrees(const struct model *m, const struct plan_request *s, int i, int *ulysses, int *ring);

#endif
