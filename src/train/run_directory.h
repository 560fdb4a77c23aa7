/* The directory of a run, its lock and what is left in it. */
#ifndef LTRAIN_TRAIN_RUN_DIRECTORY_H
#define LTRAIN_TRAIN_RUN_DIRECTORY_H

#include "base/status.h"
#include "train/run_lock.h"
#include "train/run_log.h"

struct run;

struct run_place {
    struct run_lock *lock;             /* rank 0: lock of the directory */
    int locked;                        /* 1: rank 0 holds the lock */
    int taken_over;                    /* 1: another run has the directory now; agreed by all ranks */
    int64_t saved;                     /* step of the newest checkpoint; -1: none */
    int told;                          /* 1: the failure's message says what is left of the run */
    struct run_log *log;               /* rank 0: metrics.jsonl */
    struct board *board;               /* rank 0: event files; NULL: none */
    struct metrics_file *metrics_file; /* rank 0: text file for Prometheus; NULL: none */
};

/* run_directory.c */
/* Checks and locks an existing directory of the run, before planning. All ranks call it. ERR_INVALID: the directory cannot be
 * made or written to, is in use or, for a new run, holds another one. */
enum status run_claim_directory(struct run *r);
/* Makes and locks a directory that is not locked yet, after planning. All ranks call it. A directory that nobody has named gets a
 * distinct name, in the settings, too. */
enum status run_make_directory(struct run *r);
/* Makes sure, before a write, that the directory is still in its place and this run's (run_lock_check). All ranks call it.
 * ERR_IO; r->place.taken_over: another run has it, and nothing may be written there any more. */
enum status run_check_place(struct run *r);
/* Makes the directory `name` and its parents or, if it exists, name-2, name-3, ...; path: the one made. */
enum status run_make_distinct(const char *name, char path[RUN_PATH]);
/* Renames the log of a run that ended before its first checkpoint. */
enum status run_keep_log(const char *run);
/* Copies to RUN/original the files that an export will need of a model that is no preset (one rank only). Skipped if a resumed
 * run has them there or the model's directory is gone. Copies those of --tokenizer, too, and says so. */
enum status run_keep_original(const struct run *r);
/* Returns RUN/original, or NULL if there is none; for a preset the directory holds a tokenizer only. */
const char *run_original(const struct settings *s, char path[RUN_PATH]);
/* Makes sure that the directory that an option names can be made and written to. ERR_INVALID: it cannot. */
enum status run_check_can_be_made(const char *option, const char *path);

/* run_files.c */
/* Opens the run's files: config.yaml, data.txt, card.json, plan.txt, plan.json, metrics.jsonl. */
enum status run_open_files(struct run *r);
/* Writes DIR/config.yaml. */
enum status run_write_config(struct run *r, const char *dir);

#endif
