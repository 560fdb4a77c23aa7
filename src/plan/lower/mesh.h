/* How many ranks share what: degrees of the mesh by rule, and others. */
#ifndef LTRAIN_PLAN_LOWER_MESH_H
#define LTRAIN_PLAN_LOWER_MESH_H

#include "base/status.h"
#include "model/model.h"
#include "settings/settings.h"

/* Resolves dp, ulysses and ring for so many ranks, whose hosts have multiples of per_host of them, and batch and grad_accum with
 * them. What is given stays. ERR_INVALID names what does not divide, or the legal degrees. */
enum status plan_mesh(const struct model *m, struct plan_request *s, int ranks, int per_host);
/* The i-th other way to share a sequence among as many ranks, where plan_mesh has derived both degrees: ulysses groups lie inside
 * hosts. Returns 0 if there is none. */
int plan_other_degrees(const struct model *m, const struct plan_request *s, int i, int *ulysses, int *ring);

#endif
