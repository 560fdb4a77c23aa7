/* `ltrain export`: the model that a run has trained, written to another directory, merged into its base or as an adapter. */
#ifndef LTRAIN_EXPORT_EXPORT_H
#define LTRAIN_EXPORT_EXPORT_H

#include "model/model.h"

enum export_form {
    EXPORT_MERGED,          /* a whole model */
    EXPORT_MERGED_ORIGINAL, /* into the original weights, even if the adapter was trained beside quantised ones */
    EXPORT_ADAPTER,         /* the adapter alone */
};

/* Exports and says what was done. model: a run's directory, or one that holds an adapter; base: the adapter's base; NULL: the one
 * that the adapter names. ERR_INVALID: there is no adapter, or its base is missing or another one. */
enum status export_model(const char *model, const char *base, const char *to, enum export_form form);

/* Writes a whole model's weights in bitsandbytes' NF4 or int8 to another directory and says what was done. ERR_INVALID: no whole
 * model, or one that is quantised already. */
enum status export_quantised(const char *model, const char *to, enum model_base base);
/* Returns RUN/original beside a checkpoint; NULL: no checkpoint, or no such directory. */
enum { EXPORT_PATH = 4096 + 32 };
const char *export_original(const char *checkpoint, char original[EXPORT_PATH]);
/* Makes sure that `to` is free. ERR_INVALID: `to` is the directory `model`, or holds a file of a model or a run. */
enum status export_check_place(const char *model, const char *to);

#endif
