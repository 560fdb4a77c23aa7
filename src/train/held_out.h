/* What a run has held out of its training, as it has recorded that: the text of `ltrain eval --model RUN` where none is given. Private to
 * src/train. */
#ifndef LTRAIN_TRAIN_HELD_OUT_H
#define LTRAIN_TRAIN_HELD_OUT_H

#include "data/windows.h"
#include "settings/settings.h"

#include <jansson.h>

struct held_out {
    int taken; /* 0: a text is given, and the rest is empty */
    char run[4096];
    struct settings settings; /* the run's */
    char *files;              /* RUN/data.txt, or NULL: nothing says what the files were */
};

/* s->model or s->adapter is a run's state (train_resolve_model). Unless the command line names a tokenizer they get the run's. ERR_INVALID: it is
 * none, or its run has held nothing out, or files of that are gone. */
enum status held_out_find(struct settings *s, struct held_out *out);
void held_out_free(struct held_out *h);
/* The run's data and how they are read, but for what the command line says, into settings that borrow them. */
void held_out_apply(const struct held_out *h, struct settings *s);
/* What is held out of the data that the settings have from held_out_apply, as windows of config's seq_len. ERR_INVALID, too: it is not what
 * the run has held out. */
enum status held_out_open(const struct held_out *h, const struct corpus_config *config, int64_t stride, struct windows **out);
/* A line of which text that is. */
void held_out_print(const struct held_out *h, FILE *f);
enum status held_out_add(const struct held_out *h, json_t *o);

#endif
