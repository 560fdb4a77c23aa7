/* Instructions and their arguments. emit() starts an instruction; arguments follow, then emit_done(). Reads may have any rows,
 * writes have whole tiles. Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_EMIT_H
#define LTRAIN_PLAN_LOWER_EMIT_H

#include "plan/lower/value.h"

struct op_attrs *emit(struct lowering *L, enum op_kind op, enum lane lane);
void arg_read(struct lowering *L, int arg, struct value *v, int64_t row0, int64_t row1, int place);
void arg_write(struct lowering *L, int arg, struct value *v, int64_t row0, int64_t row1, int place);
void arg_update(struct lowering *L, int arg, struct value *v, int64_t row0, int64_t row1, int place);
void emit_done(struct lowering *L, double pairs); /* sets FLOPs and bytes; pairs: query-key pairs of attention */

#endif
