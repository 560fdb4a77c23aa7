/* Lengths of sequences that change while a run goes on. */
#ifndef LTRAIN_SETTINGS_CURRICULUM_H
#define LTRAIN_SETTINGS_CURRICULUM_H

#include "settings/settings.h"

#include <stdio.h>

/* Parses "8k@1000,64k@500,420k"; `where` begins the sentence of an error. min, max: of a length. */
enum status curriculum_parse(const char *where, const char *text, int64_t min, int64_t max, struct curriculum *out);
void curriculum_print(const struct curriculum *c, FILE *f);
int64_t curriculum_longest(const struct curriculum *c);

/* Stretches of the run: 1 where there is one length. */
int curriculum_stretches(const struct settings *s);
int64_t curriculum_length(const struct settings *s, int stretch);
/* Steps [first, end), counted from 0, of those that the run has. */
int64_t curriculum_first(const struct settings *s, int stretch);
int64_t curriculum_end(const struct settings *s, int stretch);
/* The one that trains the step with that index; beyond the run's last step the last one. */
int curriculum_at(const struct settings *s, int64_t step);
/* ERR_INVALID if some stretch has no step. */
enum status curriculum_check(const struct settings *s);

/* length_tiles.c */
/* Tiles that the run which is resumed has chosen for a length; 0: nothing is known of it. */
int curriculum_recall_tiles(const struct settings *s, int64_t seq_len, int64_t *rows, int64_t *heads, int64_t *loss);
enum status curriculum_note_tiles(struct settings *s, int64_t seq_len, int64_t rows, int64_t heads, int64_t loss);

#endif
