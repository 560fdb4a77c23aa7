/* Finding a run's files from any directory in which the run is resumed. Private to this folder. */
#ifndef LTRAIN_SETTINGS_PATHS_H
#define LTRAIN_SETTINGS_PATHS_H

#include "settings/settings.h"

#include <stdio.h>

/* Opens RUN/config.yaml, or the config.yaml of the newest checkpoint that has one if the run's is gone or empty (purged, or lost
 * in a power cut). *path: the opened file's name, to be freed in any case. ERR_INVALID: there is no such file. */
enum status settings_open_run(const char *run, char **path, FILE **f);

#endif
