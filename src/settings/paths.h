/* A run's files, from wherever it is resumed. Private to this folder. */
#ifndef LTRAIN_SETTINGS_PATHS_H
#define LTRAIN_SETTINGS_PATHS_H

#include "settings/settings.h"

#include <stdio.h>

/* Opens RUN/config.yaml; if that is gone or empty (a purge of old files, a power cut), config.yaml of the newest checkpoint that
 * has one. *path: its name, to be freed in any case. ERR_INVALID: there is none. */
enum status settings_open_run(const char *run, char **path, FILE **f);

#endif
