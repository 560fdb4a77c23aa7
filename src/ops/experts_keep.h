/* Experts of a layer that are kept on the device, in slots: those that tokens chose last. */
#ifndef LTRAIN_OPS_EXPERTS_KEEP_H
#define LTRAIN_OPS_EXPERTS_KEEP_H

#include "base/status.h"
#include "program/op.h"

/* Brings a matrix of an expert into a slot: `bytes` bytes from `from` on in the home, to `to` in the kept ones. */
struct experts_mover {
    enum status (*move)(void *user, int64_t to, int64_t from, int64_t bytes);
    void *user;
};

/* Moves the chosen experts that are in no slot, and writes the slot of each of ids [rows]. There are at least as many slots as
 * different ids. ERR_CORRUPT: an expert that does not exist. */
enum status ops_experts_keep(const struct op_attrs *a, int32_t *table, int32_t *slots, const int32_t *ids,
                             const struct experts_mover *mover);

#endif
