/* A run: its parts, each with the file that fills it, and its states.
 *
 *   train_run (train.c) and the C API (src/api) take a run through these states; check_run and eval_run take the same steps
 *   up to a session.
 *
 *     settings          run_open: model, weights and data are there, and equal on all ranks
 *        |
 *     opened            run_claim_directory: an existing directory is this run's
 *        |              run_plan: a plan for each length, equal on all ranks, that fits
 *     planned           run_make_directory: the directory exists and is locked
 *        |              run_start: the session of the first length, without a state
 *     empty session     run_load_state: initial values, weights or a checkpoint
 *        |              run_open_files: the log is open; from here on a failure says what is left (run_describe_left)
 *     between steps <-----------------------------------------------+
 *        |   |   |                                                  |
 *        |   |   +-- run_step: an update pends (progress.pending) --+-- a signal cut it: progress.thrown, the same position
 *        |   |   +-- run_evaluate: flushes the update first --------+
 *        |   +------ save, run_change_length: state on disk, session of the next length
 *        |
 *     trained           run_flush: no update pends; save; run_export: RUN/hf
 *        |
 *     ended             run_print_after
 *
 *   Any failure leads from its state to the end of train_run. run_save_failed and run_export_failed try another directory before.
 *   If another run takes over the directory (place.taken_over), nothing is written there any more. */
#ifndef LTRAIN_TRAIN_RUN_H
#define LTRAIN_TRAIN_RUN_H

#include "engine/batch.h"
#include "engine/session.h"
#include "train/inputs.h"
#include "train/measured.h"
#include "train/plan_run.h"
#include "train/run_directory.h"
#include "train/step.h"
#include "train/train.h"
#include "train/walltime.h"

struct run {
    struct settings *s;
    const struct train_hooks *hooks;
    struct comm *comm; /* borrowed */
    struct model *model;
    struct model *stage; /* this rank's stage of a pipeline; NULL: the whole model */
    struct session *session;
    struct batch *batch;
    struct run_inputs inputs;     /* inputs.c, data.c, describe.c */
    struct run_plans plans;       /* plan_run.c, lengths.c */
    struct run_place place;       /* run_directory.c, run_files.c, save.c */
    struct run_progress progress; /* step.c, resume.c */
    struct run_measured measured; /* measured.c */
    struct walltime walltime;     /* walltime.c */
    int mute;                     /* 1: stdout has failed, and that was reported */
    const char *from;             /* checkpoint that a resumed run begins at; NULL: its newest one */
    /* tokens of each expert of each layer in the last step, of all ranks; lent by who wants to read them; NULL: nobody does */
    double *choices;
};

/* train.c */
/* Prepares a run up to its first step. Every rank reaches the same points, or all fail. r->walltime has begun. */
enum status run_prepare(struct run *r);
/* Evaluates the model before the first step, if the settings want that. */
enum status run_evaluate_before(struct run *r);
/* Does the next step and all that follows it: metrics, evaluation, save. *cut: it was ended early and not done. */
enum status run_next(struct run *r, struct step_metrics *m, int *cut);
/* Saves the state and reads it again into the homes of another plan, if the next step has another length: training then goes on as a
 * resumed run would. */
enum status run_follow_lengths(struct run *r);
/* Saves a checkpoint, unless this step is saved. */
enum status run_save(struct run *r);
/* Ends a run: last checkpoint, export unless a signal stopped it, summary, log. */
enum status run_finish(struct run *r);
/* Frees all parts of a run and returns st with the state that is left in its message. */
enum status run_close(struct run *r, enum status st);

/* open.c */
/* Tells whether sequences come from the caller, not from a corpus. */
int run_has_no_corpus(const struct run *r);
/* Opens model and corpus and checks weights and drives: all that can be checked before planning, which takes a while. */
enum status run_open(struct run *r);
/* Makes sure that a new run's weight files have all that the model needs. notes: gets a line about tensors that are left out;
 * NULL: none. */
enum status run_check_weights(const struct settings *s, const struct model *m, FILE *notes);

/* resume.c */
/* Loads parameters and moments: random ones, those of a Hugging Face directory, or those of the newest checkpoint. Then reports
 * differences from the checkpoint's run; other data are ERR_INVALID unless the settings continue. */
enum status run_load_state(struct run *r);
/* Compares the data with those that a run began with, by its data.txt (one rank only). ERR_INVALID names what differs; a run without
 * that file is not compared. */
enum status run_compare_data(const struct run *r, const char *of);

/* save.c */
enum save_when { SAVE_ON_THE_WAY, SAVE_TO_GO_ON /* the run cannot go on without this save */, SAVE_LAST };
/* Handles the status of a save; all ranks call it. A failure on the way is reported and OK, unless the settings say stop or
 * another run has taken over the directory. Any other failure, or one at the end, saves the state elsewhere if possible, and its
 * message says where. */
enum status run_save_failed(struct run *r, enum status st, enum save_when when);
/* Exports the trained model with its card to a directory. All ranks call it. */
enum status run_export(struct run *r, const char *path);
/* Handles a failed export as run_save_failed does, after saving the trained state. */
enum status run_export_failed(struct run *r, enum status st);

/* data_report.c */
/* Prints the data and remarks on them. */
void run_print_data(const struct run *r);
/* Prints a line about the documents for each length, if there are several. ERR_INVALID: as in corpus_cut. */
enum status run_print_lengths(struct run *r);
/* Prints how often the coming steps go through the data, by stretch and source; called once the position of training is known. */
enum status run_print_epochs(struct run *r);

/* report.c */
/* Notes the checkpoint of that step (-1: none) for messages of comm and watch, which may end the process without this rank. */
void run_note_saved(struct run *r, int64_t step);
/* Describes the state that a failed run leaves to go on from. Changes status_message. */
void run_describe_left(const struct run *r, char *text, size_t bytes);
void run_print_taking(const struct run *r); /* shows progress if the memory of all plans takes long to get */
void run_print_before(struct run *r);
/* Prints the work lost by a signal, if any, `seconds` into a step, and the step of the state. */
void run_print_thrown(const struct run *r, double seconds, int terminal);
/* Prints that the save for r->progress.signal begins: the time since the signal and the work finished meanwhile. All ranks call it. */
enum status run_print_saving(const struct run *r);
/* Prints the summary. model_path: directory of the model; NULL: the run was stopped. All ranks call it, and only the first
 * prints. */
enum status run_print_after(struct run *r, const char *model_path);

#endif
