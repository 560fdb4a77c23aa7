/* Looks for a run's newest whole checkpoint as resuming does, in the test's own process. */
#ifndef TESTS_E2E_FOUND_H
#define TESTS_E2E_FOUND_H

#include <stddef.h>
#include <stdint.h>

int found_begin(void); /* before the first look; 0: done */
void found_end(void);
/* Returns the step of the checkpoint and writes its path; 0: there is none. said: the note or the sentence. */
int64_t found_checkpoint(const char *run, char *path, int path_size, char *said, size_t size);

#endif
