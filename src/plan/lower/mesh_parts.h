/* Parts of the layers along a mesh: slices (tp), stages (pp), and the slices of sequences that stages take. Private to src/plan. */
#ifndef LTRAIN_PLAN_LOWER_MESH_PARTS_H
#define LTRAIN_PLAN_LOWER_MESH_PARTS_H

#include "base/status.h"
#include "model/model.h"
#include "settings/settings.h"

/* Returns the islands of the machine that the plan is made for; NULL: all nodes are alike. */
struct islands;
const struct islands *mesh_islands(const struct plan_request *s);
/* Refuses slices of layers, or stages, that the model or other settings do not allow. */
enum status mesh_check_slices(const struct model *m, const struct plan_request *s);
enum status mesh_check_stages(const struct model *m, const struct plan_request *s);
/* Decides in how many slices stages take a sequence, and refuses a number that cannot be. */
enum status mesh_settle_slices(const struct model *m, struct plan_request *s);

/* Returns the degrees of parts (a bit each) that planning may choose, for machines that --machine describes only. With no degree given:
 * MESH_TP among GPUs of a node, MESH_PP where there are several nodes. With stages given: MESH_SLICES, if these are not. */
unsigned mesh_open_parts(const struct plan_request *s, int ranks, int per_host);

/* Lists a mesh for each choice of slices and stages that s->open_parts leaves open and that neither model nor settings refuse. tp divides
 * a node's ranks; a stage has whole nodes or an equal part of one. The ranks of a part are all in the ring. Returns their number; `out` has the first `most` of them. */
int mesh_list_parts(const struct model *m, const struct plan_request *s, struct mesh *out, int most);
/* Tells whether planning may choose the mesh's slices of sequences: they are not too short, and no ring shares them. */
int mesh_may_slice(const struct model *m, const struct plan_request *s, const struct mesh *mesh);

#endif
