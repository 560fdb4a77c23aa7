/* The state of a run. */
#ifndef LTRAIN_TRAIN_RUN_H
#define LTRAIN_TRAIN_RUN_H

#include "checkpoint/checkpoint.h"
#include "data/corpus.h"
#include "engine/batch.h"
#include "engine/session.h"
#include "train/memory.h"
#include "train/metrics.h"
#include "train/run_lock.h"
#include "train/run_log.h"
#include "train/train.h"

enum { RUN_PATH = 4096 };

struct run {
    struct settings *s;
    struct model *model;
    struct corpus *corpus;
    char tokenizer[4096];          /* path of its file; "": the corpus is read as bytes */
    struct checkpoint_texts texts; /* texts saved beside the state, owned: data on every rank, settings on rank 0 */
    struct comm *comm;             /* borrowed */
    struct train_plans plans;      /* owned by the session once there is one */
    int stretch;                   /* stretch of the curriculum that the session is in */
    struct session *session;
    struct batch *batch;
    struct run_lock *lock;     /* rank 0: lock of the directory */
    int locked;                /* 1: rank 0 holds the lock */
    int taken_over;            /* 1: another run has the directory now; agreed by all ranks */
    int64_t saved;             /* step of the newest checkpoint; -1: none */
    struct checkpoint_info at; /* position of training */
    int pending;               /* 1: an update waits for the next forward pass */
    double lr_pending;
    int64_t limit[TIERS];
    struct memory_part memory;
    struct run_log *metrics;    /* rank 0 */
    struct rereading rereading; /* rereading of touched data */
    const struct train_hooks *hooks;
    int signal; /* signal that all ranks agreed to stop for; 0: none */
    double peak_flops, last_loss;
    char peak_reference[128]; /* source of peak_flops */
    /* Sums over the steps that began with an update, as the planned one does; over all steps until there are any. */
    struct {
        struct lane_stats lanes[LANES];
        double seconds;
        int64_t steps;
        int updated;
    } alike;
    struct comm_traffic sent[LANES];  /* by all ranks, on comm lanes */
    double run_seconds, planned_here; /* planned_here: planned seconds of the steps here */
    int64_t steps_here;
    int told;                /* 1: the failure's message says what is left of the run */
    int unread;              /* 1: the data could not be read, on all ranks alike, and the state is that after the last step */
    int mute;                /* 1: stdout has failed, and that was reported */
    struct thrown_away {     /* parts of a step that was cut short */
        int64_t micro_batch; /* from 1; 0: nothing */
        enum phase phase;    /* phase that compute was in */
    } thrown;
    int64_t skipped_in_row; /* steps in a row, up to now, with a gradient norm that was not finite */
    int64_t held_out_bytes; /* bytes of the text of held-out targets; 0: not counted yet, or unknown */
    int64_t skipped, empty; /* steps here: with a norm that was not finite; with nothing to predict */
};

/* open.c */
/* Opens model and corpus and checks weights and drives: all that can be checked before planning, which takes a while. */
enum status run_open(struct run *r);
/* Makes sure that a new run's weight files have all that the model needs. notes: gets a line about tensors that are left out;
 * NULL: none. */
enum status run_check_weights(const struct settings *s, const struct model *m, FILE *notes);

/* plan_run.c */
/* Plans, equally on every rank; refuses a plan that does not fit; sets the mesh. Writes tiles and mesh into the settings, as
 * parts of the numerics key that a resumed run keeps. */
enum status run_plan(struct run *r);

/* lengths.c */
/* Makes a session of the plans, on this rank's drives, in the first stretch. */
enum status run_start(struct run *r);
/* Returns the tokens of a sequence in the present stretch. */
static inline int64_t run_length(const struct run *r)
{
    return plan_length(r->session->plan);
}
/* Takes plan, data and layout of a stretch; the state is not in its homes yet. All ranks call it. */
enum status run_use_stretch(struct run *r, int stretch);
/* Tells whether the next step has sequences of another length than the last one. */
int run_length_changes(const struct run *r);
/* Changes to the next step's length and loads the state saved after the last step. All ranks call it. */
enum status run_change_length(struct run *r);
/* Returns the planned seconds of the coming steps. */
double run_planned_seconds(const struct run *r);

/* data.c */
/* Opens the corpus with the tokenizer that reads it; all ranks agree on the status. */
enum status run_open_data(struct run *r);

/* inputs.c */
/* Returns RUN/data-read.txt, the list of files that an earlier start has read (corpus_remember). */
const char *run_known_data(const char *run, char path[RUN_PATH]);
/* Writes RUN/data-read.txt (rank 0 only). Reports a failure and goes on; the next start then reads the files again. */
void run_remember_data(const struct run *r);
/* Shows progress while files are read whole, about a second a GB, until run_end_reading. */
void run_begin_reading(const struct run *r);
void run_end_reading(void);
/* Reports data that are read again from now on; *stop ends the reading (NULL: nothing does). */
void run_say_rereading(struct run *r, const atomic_int *stop);
/* Compares each rank's model configuration and data with rank 0's. ERR_INVALID, agreed, names the difference. */
enum status run_compare_inputs(struct run *r);

/* step.c */
/* Runs one optimizer step, with all micro-batches; its update stays pending. *cut: a signal ended the step; r->at is as before,
 * and r->thrown says what was lost. */
enum status run_step(struct run *r, struct step_metrics *m, int *cut);
/* Runs the pending update, if there is one. */
enum status run_flush(struct run *r);
/* Fills in the record that programs read: `targets` is the number of trained tokens, `sequence` the run's number of the sequence
 * where masks are made. */
void run_fill_record(struct run *r, int64_t targets, uint64_t sequence);
/* Tells whether a section that is cut has nothing left to run. */
int run_is_over(const struct run *r);

/* Returns the schedule's learning rate of the step with that index; 0 is the first. */
double run_learning_rate(const struct settings *s, int64_t step);

/* describe.c */
/* Fills in r->texts.data. */
enum status run_describe_data(struct run *r);
/* Returns RUN/data.txt, the file of r->texts.data. */
const char *run_data_list(const char *run, char path[RUN_PATH]);
/* Writes RUN/data.txt (rank 0 only). */
enum status run_write_data_list(const struct run *r);
/* Writes the numerics key of the plan in use. */
enum status run_describe_numerics(const struct run *r, char *key, size_t size);

/* resume.c */
/* Loads parameters and moments: random ones, those of a Hugging Face directory, or those of the newest checkpoint. Then reports
 * differences from the checkpoint's run; other data are ERR_INVALID unless the settings continue. */
enum status run_load_state(struct run *r);

/* measured.c */
/* Finds r->peak_flops of all ranks and its source: a GPU's data sheet or else a measured product, and for a CPU its sgemm. */
enum status run_find_peak(struct run *r);
/* Takes the statistics of the step that was just made, adds them to the run's sums, and completes *m. All ranks call it. */
enum status run_finish_metrics(struct run *r, struct step_metrics *m);

/* run_files.c */
/* Opens the run's files: config.yaml, data.txt, card.json, plan.txt, plan.json, metrics.jsonl. */
enum status run_open_files(struct run *r);
/* Writes DIR/config.yaml. */
enum status run_write_config(struct run *r, const char *dir);

/* save.c */
enum save_when { SAVE_ON_THE_WAY, SAVE_TO_GO_ON /* without it the run cannot */, SAVE_LAST };
/* Handles the status of a save; all ranks call it. A failure on the way is reported and OK, unless the settings say stop or
 * another run has taken over the directory. Any other failure, or one at the end, saves the state elsewhere if possible, and its
 * message says where. */
enum status run_save_failed(struct run *r, enum status st, enum save_when when);
/* Exports the trained model with its card to a directory. All ranks call it. */
enum status run_export(struct run *r, const char *path);
/* Handles a failed export as run_save_failed does, after saving the trained state. */
enum status run_export_failed(struct run *r, enum status st);

/* run_directory.c */
/* Checks and locks an existing directory of the run, before planning. All ranks call it. ERR_INVALID: the directory cannot be
 * made or written to, is in use or, for a new run, holds another one. */
enum status run_claim_directory(struct run *r);
/* Makes and locks a directory that is not locked yet, after planning. All ranks call it. A directory that nobody has named gets a
 * distinct name, in the settings, too. */
enum status run_make_directory(struct run *r);
/* Makes sure, before a write, that the directory is still in its place and this run's (run_lock_check). All ranks call it.
 * ERR_IO; r->taken_over: another run has it, and nothing may be written there any more. */
enum status run_check_place(struct run *r);
/* Makes the directory `name` and its parents or, if it exists, name-2, name-3, ...; path: the one made. */
enum status run_make_distinct(const char *name, char path[RUN_PATH]);
/* Renames the log of a run that ended before its first checkpoint. */
enum status run_keep_log(const char *run);
/* Copies to RUN/original the files that an export will need of a model that is no preset (one rank only). Skipped if a resumed
 * run has them there or the model's directory is gone. Copies those of --tokenizer, too, and says so. */
enum status run_keep_original(const struct run *r);
/* Returns RUN/original, or NULL if there is none; a preset's has a tokenizer only. */
const char *run_original(const struct settings *s, char path[RUN_PATH]);
/* Makes sure that the directory of an option can be made and written to. ERR_INVALID. */
enum status run_check_can_be_made(const char *option, const char *path);

/* Functions of data_report.c. */
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
/* Prints that the save for r->signal begins: the time since the signal and the work finished meanwhile. All ranks call it. */
enum status run_print_saving(const struct run *r);
/* Prints the summary. model_path: directory of the model; NULL: the run was stopped. All ranks call it, and only the first
 * prints. */
enum status run_print_after(struct run *r, const char *model_path);

#endif
