/* A model of a drive whose power fails: what is on it for certain, and what may be, of a recorded program's calls. */
#ifndef TESTS_E2E_DRIVE_H
#define TESTS_E2E_DRIVE_H

#include "recording.h"

#include <stddef.h>

/* Events of a recording; each data pointer leads into `bytes`. */
struct recording {
    char *bytes;
    int n;
    struct recorded_event *event;
    const char **data;
};

void recording_read(const char *path, struct recording *out);
void recording_free(struct recording *r);

/* Fates of what was not synced when the power failed. Files keep any of their writes, whole or some of their sectors, and any of
 * their sizes; directories any of their changes, each whole, in their order for one name. */
enum fate { FATE_LOST, FATE_KEPT, FATE_DRAWN };

struct drive;

/* Makes the drive of a directory as it is now, everything safe on it. */
struct drive *drive_take(const char *path);
void drive_free(struct drive *d);
/* Applies an event. Events of files outside of the directory change nothing. */
void drive_apply(struct drive *d, const struct recorded_event *e, const char *data);
/* Tells whether an event is the sync of a directory. */
int drive_is_directory(const struct drive *d, const struct recorded_event *e);
/* Writes the files of the drive after the power has failed into a new directory. */
void drive_write(const struct drive *d, const char *to, enum fate fate, uint64_t seed);

#endif
