/* The kernel table: one entry per op. It starts with the CPU kernels; a backend may override entries. */
#ifndef LTRAIN_OPS_OPS_H
#define LTRAIN_OPS_OPS_H

#include "device/kernel.h"

/* Scratch bytes that the op's `work` argument must have (0: pass NULL). Attention's come from attention/attention.h. */
int64_t op_workspace_bytes(enum op_kind kind, const struct op_attrs *attrs);

/* Fills the entries of every op in this folder with its CPU kernel (OP_COPY within memory included; attention's own two entries are
 * left alone: attention_cpu_kernels fills them; collectives have none, they are the communicator's). */
enum status ops_cpu_kernels(op_kernel *table[OP_COUNT]);

/* The entries, each beside its kernel: ops_cpu_gelu, ... They unpack attributes and arguments. */
#define ENTRY_MATRIX(name) op_kernel ops_cpu_##name;
#define ENTRY_ELEMENTWISE(name) op_kernel ops_cpu_##name;
#define ENTRY_ATTENTION(name)
#define ENTRY_COLLECTIVE(name)
#define OP(KIND, name, class, ...) ENTRY_##class(name)
#include "program/op_table.h"
#undef ENTRY_MATRIX
#undef ENTRY_ELEMENTWISE
#undef ENTRY_ATTENTION
#undef ENTRY_COLLECTIVE

#endif
