/* Bringing chosen experts into slots on the device (ops/experts_keep.h). */
#ifndef LTRAIN_ENGINE_EXEC_KEEP_H
#define LTRAIN_ENGINE_EXEC_KEEP_H

#include "engine/exec_context.h"

/* Executes OP_EXPERTS_KEEP. arg: the instruction's arguments; home_offset: place of the experts in the store, on LANE_READ. The
 * calling thread is that of the lane. */
enum status exec_experts_keep(const struct exec_context *x, enum lane lane, const struct op_attrs *a, void *const *arg,
                              int64_t home_offset);

#endif
