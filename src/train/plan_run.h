/* Plans of a run, their budgets, and the session that follows them where sequences change their length. */
#ifndef LTRAIN_TRAIN_PLAN_RUN_H
#define LTRAIN_TRAIN_PLAN_RUN_H

#include "plan/plan.h"
#include "train/memory.h"
#include "train/train.h"

struct run;

struct run_plans {
    struct train_plans all; /* owned by the session once there is one */
    int stretch;            /* stretch of the curriculum that the session is in */
    int64_t limit[TIERS];   /* budgets of a rank */
    struct memory_part memory;
};

/* plan_run.c */
/* Plans, equally on every rank; refuses a plan that does not fit; sets the mesh. Writes tiles and mesh into the settings, as
 * parts of the numerics key that a resumed run keeps. */
enum status run_plan(struct run *r);

/* lengths.c */
/* Makes a session of the plans, on this rank's drives, in the first stretch. */
enum status run_start(struct run *r);
/* Returns the tokens of a sequence in the present stretch. */
int64_t run_length(const struct run *r);
/* Takes plan, data and layout of a stretch; the state is not in its homes yet. All ranks call it. */
enum status run_use_stretch(struct run *r, int stretch);
/* Tells whether the next step has sequences of another length than the last one. */
int run_length_changes(const struct run *r);
/* Changes to the next step's length and loads the state saved after the last step. All ranks call it. */
enum status run_change_length(struct run *r);
/* Returns the planned seconds of the coming steps. */
double run_planned_seconds(const struct run *r);

#endif
