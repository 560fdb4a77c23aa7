/* `ltrain export`: what a run has trained, to another directory, merged into its base or not. */
#ifndef LTRAIN_TRAIN_EXPORT_H
#define LTRAIN_TRAIN_EXPORT_H

#include "base/status.h"

enum export_form { EXPORT_AS_IT_IS, EXPORT_MERGED, EXPORT_MERGED_ORIGINAL /* into the weights as they are, whatever the adapter was trained beside */ };

/* model: a run's directory, or one that holds an adapter; base: of that, NULL: as it says. Says what was done. ERR_INVALID: there is no
 * adapter, or its base is not there or another one. */
enum status export_model(const char *model, const char *base, const char *to, enum export_form form);

#endif
