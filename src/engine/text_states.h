/* Copies of recurrences' states, so that a text may be read on from an earlier place: a state cannot be turned back. */
#ifndef LTRAIN_ENGINE_TEXT_STATES_H
#define LTRAIN_ENGINE_TEXT_STATES_H

#include "engine/session.h"

struct text_states;

/* Places where a copy is made: the turns to blocks of even and odd numbers, and before a prompt's last token. */
enum text_place { TEXT_EVEN, TEXT_ODD, TEXT_PROMPT, TEXT_PLACES };

/* Makes room on the host for copies of the states of a session's text. *out: NULL if the model has none. */
enum status text_states_create(struct session *s, struct text_states **out);
void text_states_destroy(struct text_states *x); /* NULL is fine */
/* Copies the states after the text's first `tokens` tokens in place of those kept at `place`. */
enum status text_states_keep(struct text_states *x, enum text_place place, int64_t tokens);
/* Returns the tokens of the longest text of at most `most` tokens whose states are kept; 0: there is none. */
int64_t text_states_longest(const struct text_states *x, int64_t most);
/* Makes the states those after the first `tokens` tokens, which are kept. */
enum status text_states_restore(struct text_states *x, int64_t tokens);
/* Forgets copies of texts with more than `most` tokens. */
void text_states_cut(struct text_states *x, int64_t most);

#endif
