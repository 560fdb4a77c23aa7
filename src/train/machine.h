/* The machine that a plan is made for: this one, or one that --machine names. */
#ifndef LTRAIN_TRAIN_MACHINE_H
#define LTRAIN_TRAIN_MACHINE_H

#include "comm/comm.h"
#include "model/model.h"
#include "program/target.h"
#include "settings/settings.h"

/* Budgets of one rank, and the ranks. */
struct machine_ranks {
    int64_t limit[TIERS];
    int ranks, per_host;
};

/* Finds device, threads, target, hardware and budgets of this machine, all of them the same on all ranks, and writes them into
 * the settings where they are open. ranks: those that a single process plans for. All ranks call it. */
enum status machine_here(struct settings *s, struct comm *comm, int ranks, const struct model *m, struct machine_ranks *out);
/* Does the same for a machine that is not here. */
enum status machine_elsewhere(struct settings *s, const struct model *m, struct machine_ranks *out);
/* Stores the target of programs: kernels of this CPU, also for a CPU that is not here, or of a GPU. */
enum status machine_set_target(struct settings *s, const struct target *t);

#endif
