/* A training run, from settings to a directory with metrics, checkpoints and the model. */
#ifndef LTRAIN_TRAIN_TRAIN_H
#define LTRAIN_TRAIN_TRAIN_H

#include "base/status.h"
#include "comm/comm.h"
#include "model/model.h"
#include "plan/plan.h"
#include "settings/settings.h"

#include <stdio.h>

struct train_hooks {
    /* Writes the resolved settings as YAML (the format belongs to the command line). */
    enum status (*write_config)(const struct settings *s, FILE *f);
    const char *version, *command; /* for the model card: which ltrain this is, and how it was called */
};

/* The plans of a run: one for each length that its sequences have, the longest first. Those up to `owned` are the holder's. */
struct train_plans {
    struct plan *plan[CURRICULUM_MOST];
    int n, owned;
    struct plan_stretch stretches[CURRICULUM_MOST]; /* as many as the settings have (settings/curriculum.h) */
};
void train_plans_destroy(struct train_plans *p);

/* What is wrong with adapters, which came with a file and not by --lora: the sentence of st names the file. */
enum status train_blame_adapter(const struct settings *s, enum status st);
/* The preset or the config.json that the settings name; weights are not looked at. The caller destroys it. */
enum status train_open_model(const struct settings *s, struct model **out);
/* Before that, of settings as they were given. A run's directory becomes that of its newest state: hf/, or a checkpoint that is newer.
 * Where the model is an adapter (or such a checkpoint), or one is named, the settings' model becomes its base, `lora` what the adapter
 * says, and so do rotary positions that are not given. notes: says which state of a run is taken where that is not hf/ at the run's end;
 * NULL: nothing is said. ERR_INVALID: the base is not there (instead: what to do then), or --lora says otherwise. */
enum status train_resolve_model(struct settings *s, const char *instead, FILE *notes);
/* What failed because a run that goes on has removed the checkpoint that was read: the sentence of st says so. */
enum status train_blame_pruned(const struct settings *s, enum status st);
/* After it, of who trains nothing: tokenizer and chat template are those that an adapter of ltrain was trained with, which lie beside it, unless
 * the settings name a tokenizer. */
enum status train_take_texts(struct settings *s);
/* A line for each thing that the model's config.json asks for and that is done otherwise, or that the run goes beyond. */
void train_print_notes(const struct settings *s, const struct model *m, FILE *f);
/* Of a model that only reads: what of its config.json nobody knows. */
void train_print_unknown(const struct model *m, FILE *f);
/* Rotary positions that it was made for, beyond which nothing of its training says what it computes; 0: of a preset, as many as it gets. */
int64_t train_made_for(const struct settings *s, const struct model *m);
/* Of the machine that the settings name, if they do, or of this one: resolves `auto` where the machine decides (device, budgets,
 * threads, mesh) and plans for `ranks` ranks: those of comm, or a single process that plans for more. The mesh is written back
 * into *s. Ranks that share a host share its memory, cores and drives; all plan with the least that any of them has. Plans of shorter
 * sequences have mesh, stage and grain of updates of the longest one's. limit: bytes of each tier, of one rank. */
enum status train_plan(struct settings *s, struct comm *comm, int ranks, const struct model *m, struct train_plans *out,
                       int64_t limit[TIERS]);
/* The same for reading texts of up to s->plan.seq_len tokens on (plan/sampling.h), by each rank for itself, on this machine. ERR_NOFIT says
 * which length fits. */
enum status train_plan_sampling(struct settings *s, struct comm *comm, const struct model *m, struct plan **plan);
/* A failure that is about one of several lengths says which: st. */
enum status train_say_length(const struct settings *s, int64_t seq_len, enum status st);
/* ERR_NOFIT: on this machine the run's directory has no room for the run's checkpoints, its model and its log. */
enum status train_check_space(const struct settings *s, const struct model *m);
/* From here to progress_end (base/progress.h) a terminal shows that planning goes on: stderr, if this process is alone and the
 * terminal is not what JSON goes to. train_plan does so by itself. */
void train_show_progress(const struct settings *s, const struct comm *comm);
/* How many ranks the settings ask a single process to plan for. */
int train_planned_ranks(const struct settings *s);

/* Trains, together with the other ranks of comm. Prints to stdout; the failure sentence is the caller's to print (comm_agreed:
 * once for all). signal_number: set to the signal that ended the run
 * early (after saving), else 0. */
enum status train_run(struct settings *s, struct comm *comm, const struct train_hooks *hooks, int *signal_number);

#endif
