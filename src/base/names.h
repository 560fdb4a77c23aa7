/* Did you mean ...? */
#ifndef LTRAIN_BASE_NAMES_H
#define LTRAIN_BASE_NAMES_H

/* Returns the name nearest to what was typed, or NULL if none has at most a third of its letters changed, missing, added or
 * swapped. */
const char *names_nearest(const char *text, const char *const *names, int n);

#endif
