/* Degrees of the mesh by rule, and others. */
#ifndef LTRAIN_PLAN_LOWER_MESH_H
#define LTRAIN_PLAN_LOWER_MESH_H

#include "base/status.h"
#include "model/model.h"
#include "settings/settings.h"

/* Resolves dp, ulysses and ring for `ranks` ranks, and with them batch and grad_accum. Every host has a multiple of per_host
 * ranks. Degrees that are given stay. Others are derived by rule, and s->open_degrees says which of them planning may choose anew:
 * dp only if there is a batch, since without one the sequences of a step follow from it. ERR_INVALID names what does not divide,
 * the legal degrees, or the numbers of data-parallel groups that a batch is large enough for. */
enum status plan_mesh(const struct model *m, struct plan_request *s, int ranks, int per_host);
/* Takes another mesh, and with it grad_accum. */
void plan_take_mesh(struct plan_request *s, const struct mesh *mesh);
/* Lists the meshes of as many ranks that s->open_degrees leaves open, s->mesh among them; ulysses groups lie inside hosts, unless
 * their degree is given. Returns how many there are; `out` has the first `most`. */
int plan_meshes(const struct model *m, const struct plan_request *s, struct mesh *out, int most);
/* The i-th other pair of degrees that shares a sequence among the same ranks, if both degrees are open. Returns 0 if there is none. */
int plan_other_degrees(const struct model *m, const struct plan_request *s, int i, int *ulysses, int *ring);

#endif
