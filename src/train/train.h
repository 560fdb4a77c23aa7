/* A training run, from settings to a directory with metrics, checkpoints and the model. */
#ifndef LTRAIN_TRAIN_TRAIN_H
#define LTRAIN_TRAIN_TRAIN_H

#include "base/status.h"
#include "comm/comm.h"
#include "model/model.h"
#include "plan/plan.h"
#include "settings/read.h"

#include <stdio.h>

struct sequence;

struct train_hooks {
    /* Writes the resolved settings as YAML (the format belongs to the command line). */
    enum status (*write_config)(const struct settings *s, FILE *f);
    const char *version, *command; /* this ltrain's version and the command line, for the model card */
    /* Gives the sequences of steps by their number in the step, in place of a corpus; NULL: the corpus does. ERR_STOPPED: leaves the
     * step out. */
    enum status (*take)(void *user, int64_t number, struct sequence *out, int64_t *used);
    void *user;
};

/* Plans of a run: one for each length of its sequences, the longest first. Whoever holds the struct owns the first `owned` of
 * them. */
struct train_plans {
    struct plan *plan[CURRICULUM_MOST];
    int n, owned;
    int place;                                      /* this rank's place in the mesh, which decides its stage of a pipeline */
    struct plan_stretch stretches[CURRICULUM_MOST]; /* stretches of the settings (settings/curriculum.h) */
};
void train_plans_destroy(struct train_plans *p);

/* Reads settings on every rank as one: a failure is agreed, rank 0's clock names the run's directory, and the settings must be
 * equal. */
enum status train_read_settings(struct comm *c, const struct settings_flags *f, enum settings_use use, struct settings *out);
/* Changes the message of `st` about faulty adapters: names the adapter's file instead of --lora if the adapter came from
 * --adapter. */
enum status train_blame_adapter(const struct settings *s, enum status st);
/* Opens the preset or the config.json that the settings name, without a look at weights. The caller destroys it. */
enum status train_open_model(const struct settings *s, struct model **out);
/* Resolves the model of settings as given, before train_open_model. A run's directory becomes that of its newest state: hf/, or a
 * newer checkpoint.
 *
 * If the model is an adapter (or such a checkpoint), or an adapter is named, its base becomes the settings' model. `lora` becomes
 * the adapter's, and so do rotary positions that are not given. notes: gets the state that is taken if that is not hf/ at the
 * run's end; NULL: says nothing. ERR_INVALID: the base is missing (instead: advice for that case), or --lora says otherwise. */
enum status train_resolve_model(struct settings *s, const char *instead, FILE *notes);
/* Changes the message of `st` if a run that goes on has removed the checkpoint that was read. */
enum status train_blame_pruned(const struct settings *s, enum status st);
/* Takes tokenizer and chat template from beside an adapter of ltrain, which was trained with them, unless the settings name a
 * tokenizer. Called after train_resolve_model by commands that do not train. */
enum status train_take_texts(struct settings *s);
/* Prints a line for each request of the model's config.json that ltrain handles differently, and for each limit that the run
 * exceeds. */
void train_print_notes(const struct settings *s, const struct model *m, FILE *f);
/* Prints the unknown keys of the config.json of a model that is only read. */
void train_print_unknown(const struct model *m, FILE *f);
/* Prints what --scrub checks by the plan, if the settings have it. */
void train_print_scrubbed(const struct settings *s, const struct plan *p, FILE *f);
/* Prints what --verify-every costs by the plan, if the settings have it. */
void train_print_verified(const struct settings *s, const struct plan *p, FILE *f);
/* Returns the number of rotary positions that the model was made for; 0: a preset, without a limit. Training says nothing about
 * results beyond them. */
int64_t train_made_for(const struct settings *s, const struct model *m);
/* Plans for the machine that the settings name, or for this one. Resolves `auto` where the machine decides (device, budgets,
 * threads, mesh). ranks: those of comm, or more that a single process plans for. The mesh is written back into *s.
 *
 * Ranks that share a host share its memory, cores and drives; all plan with the least of any rank. Plans of shorter sequences
 * have mesh, ZeRO stage and size of groups of the longest one's. limit: bytes of each tier, of one rank. */
enum status train_plan(struct settings *s, struct comm *comm, int ranks, const struct model *m, struct train_plans *out,
                       int64_t limit[TIERS]);
/* Adds the sequence length that failed to the message of `st`, if the run has several lengths. */
enum status train_say_length(const struct settings *s, int64_t seq_len, enum status st);
/* Shows on a terminal that planning goes on, until progress_end (base/progress.h). Uses stderr, if this process is alone and the
 * terminal does not get JSON. train_plan does so by itself. */
void train_show_progress(const struct settings *s, const struct comm *comm);
/* Shows on stderr that planning goes on, even where output is kept (rank 0 only); ended by progress_end. */
void train_show_planning(const struct settings *s, const struct comm *comm);
/* Returns the number of ranks that the settings ask a single process to plan for. */
int train_planned_ranks(const struct settings *s);

/* Trains, together with the other ranks of comm. Prints to stdout; the caller prints the message of a failure (comm_agreed: once
 * for all). signal_number: the signal that ended the run early (after saving), else 0. */
enum status train_run(struct settings *s, struct comm *comm, const struct train_hooks *hooks, int *signal_number);

#endif
