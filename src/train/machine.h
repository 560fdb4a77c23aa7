/* The machine that a plan is made for: this one, or one that --machine names. */
#ifndef LTRAIN_TRAIN_MACHINE_H
#define LTRAIN_TRAIN_MACHINE_H

#include "comm/comm.h"
#include "model/model.h"
#include "program/target.h"
#include "settings/settings.h"

/* Budgets of one rank, and the number of ranks. */
struct machine_ranks {
    int64_t limit[TIERS];
    int ranks, per_host;
};

/* Finds device, threads, target, hardware and budgets of this machine, all equal on all ranks, and writes them into those
 * settings that are still open. ranks: number of ranks that a single process plans for. All ranks call it. */
enum status machine_here(struct settings *s, struct comm *comm, int ranks, const struct model *m, struct machine_ranks *out);
/* Finds the same for the machine that --machine names. */
enum status machine_elsewhere(struct settings *s, const struct model *m, struct machine_ranks *out);
/* Stores the target of programs in the settings: the kernels of a GPU or of this CPU, which stands for the CPU of any other
 * machine, too. */
enum status machine_set_target(struct settings *s, const struct target *t);

#endif
