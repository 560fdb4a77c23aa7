/* A training run, from settings to a directory with metrics, checkpoints and the model. */
#ifndef LTRAIN_ENGINE_TRAIN_H
#define LTRAIN_ENGINE_TRAIN_H

#include "base/status.h"
#include "model/model.h"
#include "plan/plan.h"
#include "plan/settings.h"

#include <stdio.h>

struct train_hooks {
    /* Writes the resolved settings as YAML (the format belongs to the command line). */
    enum status (*write_config)(const struct settings *s, FILE *f);
};

/* Resolves `auto` where the machine decides (device, budgets, threads) and plans. Tiles are written back into *s: they are part
 * of the numerics key that a resumed run keeps. *model and *plan are the caller's to destroy. limit: bytes of each tier. */
enum status train_plan(struct settings *s, struct model **model, struct plan **plan, int64_t limit[TIERS]);

/* Trains. Prints to stdout; the failure sentence is the caller's to print. signal_number: set to the signal that ended the run
 * early (after saving), else 0. */
enum status train_run(struct settings *s, const struct train_hooks *hooks, int *signal_number);

#endif
