/* From the command line and YAML files to struct settings, and back to YAML. */
#ifndef LTRAIN_SETTINGS_READ_H
#define LTRAIN_SETTINGS_READ_H

#include "base/status.h"
#include "settings/settings.h"

#include <stdio.h>

enum settings_use { SETTINGS_TRAIN, SETTINGS_PLAN /* data may be missing */, SETTINGS_DATA /* seq-len may be missing */,
                    SETTINGS_SAMPLE /* both may */, SETTINGS_EVAL /* both may */ };

/* Resolves every key: defaults, then the file (--config FILE, else the run's config.yaml with --resume DIR, or its newest
 * checkpoint's where that is gone or empty, else ./ltrain.yaml if
 * there is one), then the flags in argv (which holds neither program nor subcommand; --help is the caller's to notice). Spelling,
 * types, ranges and required keys are checked; ERR_INVALID's sentence names the flag or file:line. On OK the caller owns *out
 * (settings_free); otherwise *out is untouched. out->out is always set; an empty out->nvme_path means the run's directory. */
enum status settings_read(int argc, char **argv, enum settings_use use, struct settings *out);

/* What flags say of this process: its number, of how many, and among those of its host (--rank, --world-size, --local-rank), else
 * -1; before settings_read, which reports what is wrong with the flags. */
void settings_launch(int argc, char **argv, int *rank, int *size, int *local_rank);

/* A limit of waiting that holds until the settings are read, "comm-timeout", "drive-timeout" or "device-timeout": the flag's value if it is one, else
 * the default; seconds. */
double settings_patience(int argc, char **argv, const char *key);

/* Whether a flag of the command line has given that key of settings that settings_read has read. */
int settings_is_typed(const struct settings *s, const char *key);
/* Whether the flags give that key. */
int settings_given(int argc, char **argv, const char *key);

/* Frees what settings_read allocated and zeroes *s; NULL is fine. */
void settings_free(struct settings *s);

/* Every key that has a value: `--config` of this file gives the same settings. `resume` is not a key of the file. */
enum status settings_write_yaml(const struct settings *s, FILE *f);

/* What such a text says, with the defaults; `path` is its name in messages. As settings_read, but nothing is checked across keys. */
enum status settings_read_text(const char *path, const char *text, struct settings *out);
/* What RUN/config.yaml says (or the newest checkpoint's, where that is gone or empty), with paths led to where the run is now. */
enum status settings_read_run(const char *run, struct settings *out);
/* Whether RUN/config.yaml is gone or empty, so that the newest checkpoint's is read instead; ERR_IO if it cannot be read. */
enum status settings_run_is_purged(const char *run, int *purged);
/* "lr 0.001 (was 0.0003), steps ...": the keys of a file whose values are others, but for `out`; "" if there are none. */
enum status settings_write_changes(const struct settings *now, const struct settings *before, FILE *f);

/* Whether an item of `data` is PATH=WEIGHT: a number is behind its last '=', and no file has that whole name. length: of the path. */
int settings_weight(const char *item, size_t *length, double *weight);
/* s: what such a file says. If the run was moved together with its surroundings, absolute paths in it are led to where they are
 * now: `out` says where the run was, `run` is where it is, and what is equal at the end of both moved with it. A path changes
 * only if nothing is there and something is at the new one. */
enum status settings_move_paths(struct settings *s, const char *run);
/* Makes paths that a run is resumed with (data, evaluation data, drives; the model unless `model_is_name`) absolute, so that they
 * are found from any directory; or one path, which it replaces. */
enum status settings_absolute_paths(struct settings *s, int model_is_name);
enum status settings_absolute_path(char **path);

/* The options, one a line, with defaults; of SETTINGS_PLAN and SETTINGS_DATA the ones that a plan, or what is shown of data, depends on. */
void settings_help(enum settings_use use, FILE *f);

#endif
