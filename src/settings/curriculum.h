/* Lengths of sequences that change in the course of a run. */
#ifndef LTRAIN_SETTINGS_CURRICULUM_H
#define LTRAIN_SETTINGS_CURRICULUM_H

#include "settings/settings.h"

#include <stdio.h>

/* Parses "8k@1000,64k@500,420k"; `where` begins an error's message. min, max: limits of a length. */
enum status curriculum_parse(const char *where, const char *text, int64_t min, int64_t max, struct curriculum *out);
void curriculum_print(const struct curriculum *c, FILE *f);
int64_t curriculum_longest(const struct curriculum *c);

/* Returns the number of stretches; 1 if there is one length. */
int curriculum_stretches(const struct settings *s);
int64_t curriculum_length(const struct settings *s, int stretch);
/* Returns the steps [first, end) of a stretch, counted from 0, as far as the run goes. */
int64_t curriculum_first(const struct settings *s, int stretch);
int64_t curriculum_end(const struct settings *s, int stretch);
/* Returns the stretch that trains that step; the last one for steps beyond the run's end. */
int curriculum_at(const struct settings *s, int64_t step);
/* Refuses a stretch without a step (ERR_INVALID). */
enum status curriculum_check(const struct settings *s);

/* ---- length_tiles.c ---- */
/* Finds the tiles that the resumed run has chosen for a length; returns 0 if none are recorded. */
int curriculum_recall_tiles(const struct settings *s, int64_t seq_len, int64_t *rows, int64_t *heads, int64_t *loss);
enum status curriculum_note_tiles(struct settings *s, int64_t seq_len, int64_t rows, int64_t heads, int64_t loss);

#endif
