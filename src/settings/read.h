/* Reading settings from the command line and YAML files, and writing them as YAML. */
#ifndef LTRAIN_SETTINGS_READ_H
#define LTRAIN_SETTINGS_READ_H

#include "base/status.h"
#include "settings/settings.h"

#include <stdio.h>

/* Commands that read settings, a bit each: `ltrain train` and `ltrain check` read the same. */
enum settings_use {
    SETTINGS_TRAIN = 1,
    SETTINGS_PLAN = 2,
    SETTINGS_DATA = 4,
    SETTINGS_SAMPLE = 8,
    SETTINGS_EVAL = 16,
    SETTINGS_REPLAY = 32,
    SETTINGS_ANY = 63,
};

/* Options of a command line, parsed once. If an option is faulty settings_read reports the fault, and the other functions find no
 * options. */
struct settings_flags;

/* Parses the arguments that follow the program's and the command's name; these must outlive *out, which the caller frees.
 * ERR_NOMEM. */
enum status settings_flags_parse(int argc, char **argv, struct settings_flags **out);
void settings_flags_free(struct settings_flags *f);
/* Lets settings_read accept settings that name no data, and only such: a program gives the sequences. */
void settings_flags_take_no_data(struct settings_flags *f);

/* Resolves every key: defaults, then the file, then the flags (the caller handles --help). The file is --config FILE; else with
 * --resume DIR the run's config.yaml, or its newest checkpoint's if that is gone or empty; else ./ltrain.yaml if it exists.
 *
 * Checks spelling, types, ranges and required keys; ERR_INVALID's message names the flag or file:line. On OK the caller owns *out
 * (settings_free); on errors *out is untouched. out->out is always set; an empty out->nvme_path means the run's directory. */
enum status settings_read(const struct settings_flags *f, enum settings_use use, struct settings *out);

/* Reads the flags by which a launcher tells this process its rank, the number of ranks, and its rank on the host (--rank,
 * --world-size, --local-rank); -1 if not given. Called before settings_read. ERR_INVALID: one of them is no such number. */
enum status settings_launch(const struct settings_flags *f, int *rank, int *size, int *local_rank);

/* Returns the limit of waiting, in seconds, to be used until the settings are read. key: "comm-timeout", "drive-timeout" or
 * "device-timeout". The value is the flag's if valid, else the default. */
double settings_patience(const struct settings_flags *f, const char *key);

/* Tells whether a flag of the command line gave the key its value, for settings made by settings_read. */
int settings_is_typed(const struct settings *s, const char *key);
/* Tells whether the parsed flags give that key. */
int settings_given(const struct settings_flags *f, const char *key);

/* Frees what settings_read allocated and zeroes *s; NULL is fine. */
void settings_free(struct settings *s);

/* Writes every key that has a value, as a file from which `--config` reads the same settings. The key `resume` is left out. */
enum status settings_write_yaml(const struct settings *s, FILE *f);

/* Reads settings from the text of such a file over the defaults, as settings_read does but without checks across keys. path: the
 * text's name in messages. */
enum status settings_read_text(const char *path, const char *text, struct settings *out);
/* Reads RUN/config.yaml (or the newest checkpoint's, if that is gone or empty). Paths are adapted if the run was moved. */
enum status settings_read_run(const char *run, struct settings *out);
/* Finds whether RUN/config.yaml is gone or empty (*purged = 1), so that the newest checkpoint's is read instead. ERR_IO: the file
 * cannot be read. */
enum status settings_run_is_purged(const char *run, int *purged);
/* Writes the configuration keys, except `out`, whose values differ between two settings: "lr 0.001 (was 0.0003), steps ...";
 * nothing if none does. */
enum status settings_write_changes(const struct settings *now, const struct settings *before, FILE *f);

/* Tells whether an item of `data` is PATH=WEIGHT: a number follows its last '=', and no file is named like the whole item.
 * *length: of the path. */
int settings_weight(const char *item, size_t *length, double *weight);
/* Adapts absolute paths in s, which was read from a run's file, if the run was moved together with its surroundings.
 *
 * s->out is the run's former directory, `run` its present one. The trailing components that both have in common are left out;
 * what stands before these is the old and the new prefix. A path below the old prefix gets the new one if nothing exists at the
 * path and something does at the changed one. */
enum status settings_move_paths(struct settings *s, const char *run);
/* Makes the paths with which a run is resumed absolute, so that they are found from any directory: data, evaluation data, drives,
 * and the model unless `model_is_name`. settings_absolute_path does so for one path. */
enum status settings_absolute_paths(struct settings *s, int model_is_name);
enum status settings_absolute_path(char **path);

/* Prints the options, one a line, with defaults; for SETTINGS_PLAN and SETTINGS_DATA only those that a plan, or the display of
 * data, depends on. */
void settings_help(enum settings_use use, FILE *f);

#endif
