/* A run while it lasts. Private to src/train. */
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
    char tokenizer[4096]; /* its file; "": the corpus is read as bytes */
    struct checkpoint_texts texts; /* what is saved beside the state, owned: data on every rank, settings on rank 0 */
    struct comm *comm; /* borrowed */
    struct train_plans plans; /* the session's, once there is one */
    int stretch;              /* of the curriculum: which one the session is in */
    struct session *session;
    struct batch *batch;
    struct run_lock *lock;     /* rank 0's, of the directory */
    int locked;                /* by rank 0 */
    int taken_over;            /* the directory is another run's now, as all ranks have agreed */
    int64_t saved;             /* step of the newest checkpoint; -1: none */
    struct checkpoint_info at; /* where training stands */
    int pending;               /* an update waits for the next forward */
    double lr_pending;
    int64_t limit[TIERS];
    struct memory_part memory;
    struct run_log *metrics; /* rank 0 */
    struct rereading rereading; /* of data that were touched */
    const struct train_hooks *hooks;
    int signal;    /* that all ranks agreed to stop for */
    double peak_flops, last_loss;
    char peak_reference[128]; /* what peak_flops is */
    /* Of the steps that began with an update, as the planned one does; of all, until there are any. */
    struct {
        struct lane_stats lanes[LANES];
        double seconds;
        int64_t steps;
        int updated;
    } alike;
    struct comm_traffic sent[LANES]; /* by all ranks, on comm lanes */
    double run_seconds, planned_here; /* planned_here: what the steps here were planned to take */
    int64_t steps_here;
    int told;   /* the failure's sentence says what is left of the run */
    int unread; /* the data could not be read, on all ranks alike, and the state is that after the last step */
    int mute;                   /* stdout has failed, and that has been said */
    struct thrown_away {        /* of a step that was cut short */
        int64_t micro_batch;    /* from 1; 0: nothing */
        enum phase phase;       /* that compute was in */
    } thrown;
    int64_t skipped_in_row; /* steps, up to now, whose gradient norm was not finite */
    int64_t held_out_bytes; /* of the text of held-out targets; 0: not counted yet, or unknown */
    int64_t skipped, empty; /* steps here whose norm was not finite; that had nothing to predict */
};

/* train.c */
/* Model and corpus, and whether weights and drives are there: all that can be said before planning, which takes a while. */
enum status run_open(struct run *r);
/* That the files of a new run's weights have what the model needs. notes: where it is said what is left out of them; NULL: nowhere. */
enum status run_check_weights(const struct settings *s, const struct model *m, FILE *notes);
/* Plans, on every rank the same; refuses what does not fit; sets the mesh. Tiles and mesh are written into the settings: they are
 * part of the numerics key that a resumed run keeps. *plan: the caller's. */
enum status run_plan(struct run *r);
/* The plans become a session, on this rank's drives, in the first stretch. */
enum status run_start(struct run *r);

/* lengths.c */
/* Tokens of a sequence, as they are now. */
static inline int64_t run_length(const struct run *r)
{
    return plan_length(r->session->plan);
}
/* Plan, data and layout of a stretch; the state is not in its homes yet. By all ranks. */
enum status run_use_stretch(struct run *r, int stretch);
/* Whether the next step has sequences of another length than the last one. */
int run_length_changes(const struct run *r);
/* That length, with the state as it was saved last, after the last step. By all ranks. */
enum status run_change_length(struct run *r);
/* Seconds that the steps to come are planned to take. */
double run_planned_seconds(const struct run *r);

/* data.c */
/* Opens the corpus with the tokenizer that reads it; agreed. */
enum status run_open_data(struct run *r);

/* inputs.c */
/* RUN/data-read.txt: what an earlier start has read (corpus_remember). */
const char *run_known_data(const char *run, char path[RUN_PATH]);
/* By rank 0: leaves it there. A failure is said; the next start reads again. */
void run_remember_data(const struct run *r);
/* A sign of life while files are read whole, about a second a GB, until run_end_reading. */
void run_begin_reading(const struct run *r);
void run_end_reading(void);
/* From here on data that are read again are said; stop (NULL: none) ends it. */
void run_say_rereading(struct run *r, const atomic_int *stop);
/* ERR_INVALID, agreed, if a rank has another model configuration or other data than rank 0: names what differs. */
enum status run_compare_inputs(struct run *r);

/* step.c */
/* One optimizer step: all micro-batches; its update stays pending. *cut: a signal ended it; r->at is as before it, and r->thrown
 * says what is lost. */
enum status run_step(struct run *r, struct step_metrics *m, int *cut);
/* The pending update, if there is one. */
enum status run_flush(struct run *r);
/* What programs read of a step: `targets` tokens are trained, and the sequence is that one of the run, where masks are made. */
void run_fill_record(struct run *r, int64_t targets, uint64_t sequence);
/* Whether nothing more has to be run of a section that is cut. */
int run_is_over(const struct run *r);

/* The schedule's, of the step with that index: 0 is the first. */
double run_learning_rate(const struct settings *s, int64_t step);

/* describe.c */
/* Fills r->texts.data. */
enum status run_describe_data(struct run *r);
/* RUN/data.txt, which has r->texts.data. */
const char *run_data_list(const char *run, char path[RUN_PATH]);
/* By rank 0: writes it. */
enum status run_write_data_list(const struct run *r);
/* The numerics key of the plan in use. */
enum status run_describe_numerics(const struct run *r, char *key, size_t size);

/* resume.c */
/* Parameters and moments: initialised, from a Hugging Face directory, or, when resuming, from the newest checkpoint. Then says what
 * differs from what that was made with; data that do are ERR_INVALID, unless the settings want to continue. */
enum status run_load_state(struct run *r);

/* setup.c */
/* Every rank has planned the same, or all fail. */
enum status run_compare_plans(struct comm *c, const struct plan *plan);
/* r->peak_flops of all ranks, and what it is: a GPU's by its data sheet, else a product's, measured; a processor's sgemm. */
enum status run_find_peak(struct run *r);
/* config.yaml, data.txt, card.json, plan.txt, plan.json, metrics.jsonl. */
enum status run_open_files(struct run *r);
/* DIR/config.yaml. */
enum status run_write_config(struct run *r, const char *dir);

/* save.c */
enum save_when { SAVE_ON_THE_WAY, SAVE_TO_GO_ON /* without it the run cannot */, SAVE_LAST };
/* By all ranks, with what a save returned: on the way it is said and OK, unless the settings say stop or another run has taken the
 * directory over; else, and at the end, the state is saved elsewhere, if it can be, and the failure says where. */
enum status run_save_failed(struct run *r, enum status st, enum save_when when);
/* By all ranks: what was trained, to a directory, with its card. */
enum status run_export(struct run *r, const char *path);
/* As run_save_failed, of an export: what was trained is saved first. */
enum status run_export_failed(struct run *r, enum status st);

/* run_directory.c */
/* By all ranks before planning: ERR_INVALID if the run's directory cannot be made or written to, or if it exists and is in use or,
 * of a new run, holds another one. Locks one that exists. */
enum status run_claim_directory(struct run *r);
/* By all ranks after planning: makes and locks a directory that is not locked yet. One that nobody has named gets a name of its
 * own, in the settings, too. */
enum status run_make_directory(struct run *r);
/* By all ranks before the directory is written to: it is where it was, and this run's (run_lock_check).
 * ERR_IO; r->taken_over: another run has it, and nothing may be written there any more. */
enum status run_check_place(struct run *r);
/* Makes the directory `name` and its parents, or, if it exists, name-2, name-3, ...: path. */
enum status run_make_distinct(const char *name, char path[RUN_PATH]);
/* The log of a run that ended before its first checkpoint gets another name. */
enum status run_keep_log(const char *run);
/* Copies to RUN/original what an export will need of a model that is no preset, unless a resumed run has it there or the model's
 * directory is gone; and of --tokenizer, which is said. By one rank. */
enum status run_keep_original(const struct run *r);
/* RUN/original, or NULL if there is none; of a preset it has a tokenizer only. */
const char *run_original(const struct settings *s, char path[RUN_PATH]);
/* ERR_INVALID if a directory that an option names cannot be made or written to. */
enum status run_check_can_be_made(const char *option, const char *path);

/* data_report.c */
void run_print_data(const struct run *r);
/* What each length makes of the documents, where there are several; ERR_INVALID as of corpus_cut. */
enum status run_print_lengths(struct run *r);
/* Once it is known where training stands: how often the steps to come go through the data, in each stretch and of each source. */
enum status run_print_epochs(struct run *r);

/* report.c */
/* There is a checkpoint of that step (-1: none), for those who must end without this rank's say. */
void run_note_saved(struct run *r, int64_t step);
/* What a failed run leaves to go on from. Changes status_message. */
void run_describe_left(const struct run *r, char *text, size_t bytes);
void run_print_taking(const struct run *r); /* a sign of life where the memory of all plans takes long to be had */
void run_print_before(struct run *r);
/* What a signal has cost, if anything, `seconds` into a step, and how far the state is. */
void run_print_thrown(const struct run *r, double seconds, int terminal);
/* That the save for r->signal begins: how long after it, and what was finished meanwhile. All ranks. */
enum status run_print_saving(const struct run *r);
/* model_path: where the model is; NULL if the run was stopped. All ranks, of which only the first is heard. */
enum status run_print_after(struct run *r, const char *model_path);

#endif
