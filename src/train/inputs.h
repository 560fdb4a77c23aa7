/* Data of a run, and the texts that describe them beside each state. */
#ifndef LTRAIN_TRAIN_INPUTS_H
#define LTRAIN_TRAIN_INPUTS_H

#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "data/corpus.h"

#include <stdatomic.h>

struct run;

struct run_inputs {
    struct corpus *corpus;
    char tokenizer[4096];          /* path of its file; "": the corpus is read as bytes */
    struct checkpoint_texts texts; /* texts saved beside the state, owned: data on every rank, settings on rank 0 */
    struct rereading rereading;    /* callbacks for reading data files again whose time stamps changed (data/fingerprint.h) */
    int64_t held_out_bytes;        /* bytes of the text of held-out targets; 0: not counted yet, or unknown */
    int unread; /* 1: the data could not be read, on all ranks alike, and the state is that of the last step done */
};

enum { RUN_PATH = 4096 };

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

/* describe.c */
/* Fills in r->inputs.texts.data. */
enum status run_describe_data(struct run *r);
/* Returns RUN/data.txt, the file of r->inputs.texts.data. */
const char *run_data_list(const char *run, char path[RUN_PATH]);
/* Writes RUN/data.txt (rank 0 only). */
enum status run_write_data_list(const struct run *r);
/* Writes the numerics key of the plan in use. */
enum status run_describe_numerics(const struct run *r, char *key, size_t size);

#endif
