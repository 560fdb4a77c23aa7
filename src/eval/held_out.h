/* The text that a run held out of its training, as recorded: that of `ltrain eval --model RUN` if none is given. Private to
 * src/eval. */
#ifndef LTRAIN_EVAL_HELD_OUT_H
#define LTRAIN_EVAL_HELD_OUT_H

#include "data/windows.h"
#include "settings/settings.h"

#include <jansson.h>

struct held_out {
    int taken; /* 0: a text is given, and the other members are empty */
    char run[4096];
    struct settings settings; /* the run's settings */
    char *files;              /* RUN/data.txt; NULL: no record of the files */
};

/* Finds the held-out text of the run whose state s->model or s->adapter is (train_resolve_model). Sets the run's tokenizer unless
 * the command line names one. ERR_INVALID: no run, or one that held nothing out, or whose files are gone. */
enum status held_out_find(struct settings *s, struct held_out *out);
void held_out_free(struct held_out *h);
/* Puts the run's data and the way to read them into settings that borrow them; options of the command line stay. */
void held_out_apply(const struct held_out *h, struct settings *s);
/* Opens the held-out part of the data of held_out_apply, as windows of config's seq_len. ERR_INVALID, too: it differs from the
 * part that the run held out. */
enum status held_out_open(const struct held_out *h, const struct corpus_config *config, int64_t stride, struct windows **out);
/* Prints a line that names the text. */
void held_out_print(const struct held_out *h, FILE *f);
enum status held_out_add(const struct held_out *h, json_t *o);

#endif
