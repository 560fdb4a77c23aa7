/* Did you mean ...? */
#ifndef LTRAIN_BASE_NAMES_H
#define LTRAIN_BASE_NAMES_H

/* The name nearest to what was typed, or NULL if none is near: at most a third of the letters wrong (letters changed, missing,
 * too many or swapped). */
const char *names_nearest(const char *text, const char *const *names, int n);

#endif
