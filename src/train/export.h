/* `ltrain export`: what a run has trained, to another directory, merged into its base or alone. */
#ifndef LTRAIN_TRAIN_EXPORT_H
#define LTRAIN_TRAIN_EXPORT_H

#include "model/model.h"

enum export_form {
    EXPORT_MERGED,          /* a whole model */
    EXPORT_MERGED_ORIGINAL, /* into the weights as they are, whatever the adapter was trained beside */
    EXPORT_ADAPTER,         /* as it is */
};

/* model: a run's directory, or one that holds an adapter; base: of that, NULL: as it says. Says what was done. ERR_INVALID: there is no
 * adapter, or its base is not there or another one. */
enum status export_model(const char *model, const char *base, const char *to, enum export_form form);

/* A whole model's weights in bitsandbytes' NF4 or int8, to another directory. Says what was done. ERR_INVALID: they are no such model's, or
 * quantised already. */
enum status export_quantised(const char *model, const char *to, enum model_base base);
/* RUN/original beside a checkpoint; NULL: it is none, or has none. */
enum { EXPORT_PATH = 4096 + 32 };
const char *export_original(const char *checkpoint, char original[EXPORT_PATH]);
/* ERR_INVALID: `to` is the directory `model`, or holds a file of a model or a run. */
enum status export_check_place(const char *model, const char *to);

#endif
