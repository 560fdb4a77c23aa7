/* Degrees of the mesh by rule, and others. */
#ifndef LTRAIN_PLAN_LOWER_MESH_H
#define LTRAIN_PLAN_LOWER_MESH_H

#include "base/status.h"
#include "model/model.h"
#include "settings/settings.h"

/* Resolves dp, ulysses and ring for `ranks` ranks, and with them batch and grad_accum. Every host has a multiple of per_host
 * ranks. Degrees that are given stay. ERR_INVALID names what does not divide, or the legal degrees. */
enum status plan_mesh(const struct model *m, struct plan_request *s, int ranks, int per_host);
/* The i-th other pair of degrees that shares a sequence among the same ranks, if plan_mesh has derived both degrees: ulysses
 * groups lie inside hosts. Returns 0 if there is none. */
int plan_other_degrees(const struct model *m, const struct plan_request *s, int i, int *ulysses, int *ring);

#endif
