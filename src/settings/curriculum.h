/* Lengths of sequences that change in the course of a run. */
#ifndef LTRAIN_SETTINGS_CURRICULUM_H
#define LTRAIN_SETTINGS_CURRICULUM_H

#include "settings/settings.h"

#include <stdio.h>

/* Parses "8k@1000,64k@500,420k"; `where` begins an error's message. min, max: limits of a length. */
enum status curriculum_parse(const char *where, const char *text, int64_t min, int64_t max, struct curriculum *out);
void curriculum_print(const struct curriculum *c, FILE *f);
int64_t curriculum_longest(const struct curriculum *c);

/* Returns the number of stretches of steps with one length each; 1 if there is no curriculum. */
int curriculum_stretches(const struct settings *s);
int64_t curriculum_length(const struct settings *s, int stretch);
/* Returns a stretch's first step and the step behind its last, counted from 0 and cut at the run's end. */
int64_t curriculum_first(const struct settings *s, int stretch);
int64_t curriculum_end(const struct settings *s, int stretch);
/* Returns the stretch to which a step belongs; the last stretch for steps beyond the run's end. */
int curriculum_at(const struct settings *s, int64_t step);
/* Refuses a stretch without a step (ERR_INVALID). */
enum status curriculum_check(const struct settings *s);

/* ---- length_tiles.c ---- */
/* Finds the tiles that the resumed run has chosen for sequences of that length; returns 0 if its settings have none. */
int curriculum_recall_tiles(const struct settings *s, int64_t seq_len, int64_t *rows, int64_t *heads, int64_t *loss);
enum status curriculum_note_tiles(struct settings *s, int64_t seq_len, int64_t rows, int64_t heads, int64_t loss);

#endif
