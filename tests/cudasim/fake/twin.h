/* The twin's kernels within the fake. */
#ifndef LTRAIN_TESTS_TWIN_H
#define LTRAIN_TESTS_TWIN_H

#include "program/op.h"

/* Writes NaN to all that the kernel writes without reading it; arg: where this thread may write. */
void twin_poison(enum op_kind op, const struct op_attrs *attrs, void *const *arg);
/* Forgets which kernels were launched. */
void twin_reset(void);

#endif
