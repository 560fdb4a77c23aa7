/* Suggestions for mistyped names. */
#ifndef LTRAIN_BASE_NAMES_H
#define LTRAIN_BASE_NAMES_H

/* Returns the name nearest to the typed text; NULL if every name differs in more than a third of the text's letters (changed,
 * missing, added or swapped). */
const char *names_nearest(const char *text, const char *const *names, int n);

#endif
