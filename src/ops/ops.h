/* The kernel table, with one entry per op: first the CPU kernels; a backend may override entries. */
#ifndef LTRAIN_OPS_OPS_H
#define LTRAIN_OPS_OPS_H

#include "device/kernel.h"

/* Returns the scratch bytes of the op's `work` argument (0: pass NULL). threads: number of computing threads, of which experts'
 * products give each its own scratch. Scratch of attention comes from attention/attention.h, of linear attention
 * from recurrence/recurrence.h. */
int64_t op_workspace_bytes(enum op_kind kind, const struct op_attrs *attrs, int threads);

/* Fills in the CPU kernels of every op of this folder, OP_COPY within memory included. Entries of attention and of linear
 * attention are left to attention_cpu_kernels and recurrence_cpu_kernels; collectives have none, they are the communicator's. */
enum status ops_cpu_kernels(op_kernel *table[OP_COUNT]);

/* The entries, each defined beside its kernel (ops_cpu_gelu, ...); they unpack attributes and arguments. */
#define ENTRY_MATRIX(name) op_kernel ops_cpu_##name;
#define ENTRY_ELEMENTWISE(name) op_kernel ops_cpu_##name;
#define ENTRY_ATTENTION(name)
#define ENTRY_RECURRENT(name)
#define ENTRY_COLLECTIVE(name)
#define OP(KIND, name, class, ...) ENTRY_##class(name)
#include "program/op_table.h"
#undef ENTRY_MATRIX
#undef ENTRY_ELEMENTWISE
#undef ENTRY_ATTENTION
#undef ENTRY_RECURRENT
#undef ENTRY_COLLECTIVE

#endif
