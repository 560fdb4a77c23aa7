/* The twin device's kernels inside the fake runtime. */
#ifndef LTRAIN_TESTS_TWIN_H
#define LTRAIN_TESTS_TWIN_H

#include "program/op.h"

/* Writes NaN to everything that the kernel writes without reading it first; arg: addresses that this thread may write to. */
void twin_poison(enum op_kind op, const struct op_attrs *attrs, void *const *arg);
/* Forgets which kernels were launched. */
void twin_reset(void);

#endif
