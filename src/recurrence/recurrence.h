/* Linear attention on CPUs: short convolutions, decays, and scans of a matrix-valued state (program/op_table.h has the contracts).
 *
 * A call takes any number of rows. What passes between calls is a tail of width - 1 rows and a state for each head, so that a
 * sequence may be visited in parts: forwards ascending, backwards descending. Documents begin anywhere; neither tail nor state passes
 * their beginnings.
 *
 * Ranks that share a sequence summarise pieces of it: after = move before + own holds for any state that enters a piece, so that all
 * ranks work on their pieces at once, and the states between follow from the summaries in the order of the tokens (OP_SCAN_FOLD).
 *
 * Scans take SCAN_CHUNK tokens at a time (Yang et al. 2024, Gated Delta Networks; Dao and Gu 2024 for SCAN_SSD). With G the sums of g
 * within the chunk, and L_ij = e^(G_i - G_j) for i >= j of one document, else 0:
 *   A = strict(beta KK' L), R = QK' L, f = e^G where the chunk's first document goes on, r = e^(G_last - G) in its last document
 *   Z = (1 + A)^-1 beta (V - f K S), SCAN_SSD: beta V;  O = f Q S + R Z;  S <- e^G_last S (0 if a document begins) + K' r Z
 * Sums of g are fp64; all else, products and states included, is fp32. Results do not depend on the number of threads, which is
 * that of the CPU kernels' stream; they depend on the instruction set and on where calls begin, as sums are grouped by chunk. */
#ifndef LTRAIN_RECURRENCE_RECURRENCE_H
#define LTRAIN_RECURRENCE_RECURRENCE_H

#include "device/kernel.h"

/* Returns the scratch bytes of a scan or its sums for these attributes and threads; those of OP_SCAN_GRAD grow with the rows: a state
 * per chunk and head. */
int64_t recurrence_workspace_bytes(enum op_kind kind, const struct op_attrs *attrs, int threads);

/* Sets the entries of all ops of class RECURRENT. */
void recurrence_cpu_kernels(op_kernel *table[OP_COUNT]);

#endif
