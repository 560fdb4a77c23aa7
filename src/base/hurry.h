/* A request to end a long search with what it has. */
#ifndef LTRAIN_BASE_HURRY_H
#define LTRAIN_BASE_HURRY_H

/* Asks searches to end. May be called from signal handlers, and from any thread. */
void hurry_ask(void);
/* Returns 1 once hurry_ask was called: searches that have a result then look for no better one. */
int hurry_asked(void);

#endif
