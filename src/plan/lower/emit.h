/* Instructions and their arguments. emit() starts an instruction; arguments follow, then emit_done(). Reads may have any rows,
 * writes have whole tiles. Private to src/plan/lower. */
#ifndef LTRAIN_PLAN_LOWER_EMIT_H
#define LTRAIN_PLAN_LOWER_EMIT_H

#include "plan/lower/value.h"

/* Rows [row0, row1) of a value's copies in one place, as an operand. */
struct tile_part {
    int buffer, version;
    int64_t offset, row0, row1;
};

/* The last read of some rows: one operand of all of them, as long as the value has not changed. */
struct last_read {
    int changes;
    struct tile_part all;
};

struct op_attrs *emit(struct lowering *L, enum op_kind op, enum lane lane);
void arg_read(struct lowering *L, int arg, struct value *v, int64_t row0, int64_t row1, int place);
/* Reads rows on the device that are read many times: most reads repeat the last one. */
void arg_read_again(struct lowering *L, int arg, struct value *v, int64_t row0, int64_t row1, struct last_read *last);
void arg_write(struct lowering *L, int arg, struct value *v, int64_t row0, int64_t row1, int place);
void arg_update(struct lowering *L, int arg, struct value *v, int64_t row0, int64_t row1, int place);
void emit_done(struct lowering *L, double pairs); /* sets FLOPs and bytes; pairs: query-key pairs of attention */

#endif
