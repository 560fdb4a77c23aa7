/* A session of the C API. Private to src/api. */
#ifndef LTRAIN_API_SESSION_H
#define LTRAIN_API_SESSION_H

#include "ltrain.h"
#include "train/run.h"

#include <stdio.h>

/* Copy of a sequence that a callback gave: steps of several micro-batches take each sequence twice. */
struct api_kept {
    int64_t number, used; /* number: of the sequence in its step; -1: none is kept */
    int32_t *tokens, *targets, *positions;
    float *weights;
};

struct ltrain {
    struct settings settings;
    struct train_hooks hooks;
    struct run run;
    struct comm *comm;
    int alone; /* 1: the communicator is the session's own; 0: that of all sessions, one after another (ranks.c) */
    unsigned flags;
    char *command; /* settings as text, for the model's card */
    FILE *tells;   /* stream of what the command would print; NULL: standard output */
    int finished;  /* 1: ltrain_finish was called */
    enum status failed;
    char sentence[1024]; /* failure after which the session does nothing more */
    /* callbacks of the ltrain_train under way */
    ltrain_batch *batch;
    void *user;
    enum status given; /* status of the sequences that the callback gave for the present step */
    char fault[1024];  /* the sentence of that status */
    struct api_kept *kept;
    int n_kept;
};

/* session.c */
/* Begins a call: refuses a session that has failed, and sends what the run says to the session's stream. *before: for api_leave. */
enum status api_enter(ltrain *s, FILE **before);
/* Ends a call. A failure that leaves the session without a state ends the session. */
enum status api_leave(ltrain *s, FILE *before, enum status st);

/* ranks.c */
/* Joins the other ranks. The communicator of several ranks is kept for later sessions. */
enum status api_join(const struct settings_flags *flags, ltrain *s);
void api_part(ltrain *s);

/* batches.c */
/* Takes a sequence from the callback (struct train_hooks, `take`); user: the session. */
enum status api_take(void *session, int64_t number, struct sequence *out, int64_t *used);
/* Makes room to keep the sequences of a step, and frees it. */
enum status api_keep(ltrain *s);
void api_forget(ltrain *s);

#endif
