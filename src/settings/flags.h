/* Options of a command line, parsed. Private to src/settings. */
#ifndef LTRAIN_SETTINGS_FLAGS_H
#define LTRAIN_SETTINGS_FLAGS_H

#include "settings/keys.h"

/* A flag of the command line. */
struct flag {
    const struct settings_key *key;
    const char *value;
};

struct settings_flags {
    int n;            /* number of flags; 0 if one is faulty */
    int without_data; /* 1: a program gives the sequences, so that no key has to name data */
    char fault[1024]; /* message about the first faulty flag; "": none is */
    struct flag flag[];
};

/* Returns the last value of a flag, or NULL. */
const char *flag_value(const struct settings_flags *f, const char *name);
/* Refuses flags that the command would ignore; the message says why it ignores them. s: settings with all flags applied. */
enum status flags_refuse(const struct settings_flags *f, const struct settings *s, enum settings_use use);

#endif
