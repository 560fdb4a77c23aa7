/* The table of keys: name of a flag or YAML key, type, place in struct settings, default and limits. */
#ifndef LTRAIN_SETTINGS_KEYS_H
#define LTRAIN_SETTINGS_KEYS_H

#include "settings/read.h"

#include <stddef.h>

enum key_type {
    KEY_STRING,
    KEY_LIST,    /* struct string_list: commas, repetition, YAML lists */
    KEY_COUNT,   /* int64_t, with k m g except for numbers of steps */
    KEY_LENGTHS, /* int64_t, k m g, and the curriculum: a count, or length@steps,...,length */
    KEY_BYTES,   /* int64_t, K M G T */
    KEY_NUMBER,  /* double */
    KEY_INT,     /* int */
    KEY_ALPHA,   /* alpha, alpha_by_kind, window_alpha */
    KEY_SEED,    /* uint64_t, all digits exact */
    KEY_CHOICE,  /* an enum: index into choices */
    KEY_SWITCH,  /* int: --verbose alone sets it */
    KEY_OFFLOAD, /* the four classes' enum offload */
    KEY_BETAS,   /* beta1, beta2 */
    KEY_TILES,   /* row_chunk, head_tile, loss_tile */
    KEY_MESH,    /* dp, ulysses, ring */
    KEY_LORA,    /* struct lora */
    KEY_DRIVES,  /* nvme_drives, nvme_gbps */
    KEY_DEVICE,  /* device, gpu: index into choices, or cuda:N */
    KEY_DTYPE,   /* dtype, dtype_is_open: index into choices, or auto */
    KEY_LAUNCH,  /* int, no field: read before all else */
    KEY_CONFIG,  /* no field: names the file, read before all else */
};

enum key_flags {
    KEY_FLAG_ONLY = 1,  /* not in files */
    KEY_ABOVE_MIN = 2,  /* min itself is outside */
    KEY_BELOW_MAX = 4,  /* max itself is outside */
    KEY_WEIGHED = 8,    /* a list whose items may be NAME=NUMBER; in files a mapping will do, too */
    KEY_FP32 = 16,      /* used in fp32: the rounded value must be in range, too, and not become 0 */
    KEY_TEXT = 32,      /* a text, which may be empty or begin with blanks, not a name */
    KEY_OF_A_RUN = 64,  /* in a training run's file without concern for commands that train nothing, which forget it */
    KEY_OF_MODEL = 128, /* belongs to the file's model: such commands forget it if a flag gives another model */
};

/* Purposes that limit the commands which take a key on the command line; the reasons stand in refuse.c. */
enum key_scope {
    SCOPE_ANY,
    SCOPE_TRAINING,      /* steps and checkpoints */
    SCOPE_EVALUATION,    /* evaluation during training */
    SCOPE_ADAPTERS,      /* making adapters */
    SCOPE_RESUMED,       /* a run that goes on */
    SCOPE_DATA,          /* data */
    SCOPE_TRAINING_DATA, /* data to train on, or for tasks */
    SCOPE_ROWS,          /* rows and files of data, or of the tasks' text */
    SCOPE_TEXTS,         /* data that are read as they are, not for tasks */
    SCOPE_TRAIN_ON,      /* trained parts of chats */
    SCOPE_PACKING,       /* documents in sequences */
    SCOPE_CHATS,         /* chats, of data or in tasks */
    SCOPE_SAMPLE,        /* ltrain sample */
    SCOPE_ANSWERING,     /* ltrain sample and ltrain eval */
    SCOPE_ANSWERS,       /* ltrain sample, and answers to tasks */
    SCOPE_EVAL,          /* ltrain eval */
    SCOPE_STRIDE,        /* windows of ltrain eval */
    SCOPE_SAMPLES,       /* ltrain data, and answers to tasks */
    SCOPE_MAX_SEQ,       /* search of a length by ltrain plan */
    SCOPE_EXPLAIN,       /* answers of ltrain plan */
    SCOPE_JSON,          /* answers as JSON */
    SCOPE_SVG,           /* answers as a picture */
};

struct settings_key {
    const char *name;
    enum key_type type;
    size_t offset; /* in struct settings; unused by OFFLOAD, ALPHA, BETAS, TILES, MESH, DRIVES, DEVICE, DTYPE, LAUNCH, CONFIG */
    const char *value; /* default, as text; NULL: zero */
    const char *unset; /* word that stands for AUTO: "auto", "none"; NULL: none */
    double least;      /* smallest magnitude of numbers other than 0 */
    double min, max;   /* limits of every number that is a value or a part of one (--tiles rows=N, --betas X,X); finite */
    int counts_steps;  /* 1: a number of steps or checkpoints, without k m g */
    unsigned flags;
    unsigned shown;             /* commands (SETTINGS_*) that have the key in their help; 0: hidden, in suggestions, too */
    unsigned required;          /* commands that need a value */
    enum key_scope scope;       /* purpose that limits the commands */
    const char *example;        /* line of a file, for keys that are required */
    const char *const *choices; /* NULL-terminated, in the order of the enum */
    const char *group;          /* heading above it in the help, or NULL */
    const char *arg, *help;
};

/* NULL-terminated words for enum offload, and names before '=' in KEY_OFFLOAD, KEY_TILES and KEY_ALPHA. */
extern const char *const settings_tiers[], *const settings_classes[], *const settings_tile_names[], *const settings_layer_kinds[];
extern const char *const settings_schedules[]; /* words for enum schedule_kind */

extern const struct settings_key settings_keys[];
extern const int settings_n_keys;

/* Returns the key of that name ('_' may stand for '-'), or NULL. */
const struct settings_key *settings_key_find(const char *name);
/* Returns the nearest visible key's name, or NULL if none is near. */
const char *settings_key_suggest(const char *name);

/* Parses text into the key's field, replacing its value; `where` ("--lr", "run.yaml:3: lr") begins an error's message. */
enum status settings_key_set(const struct settings_key *k, const char *where, const char *text, struct settings *s);
/* Appends to a KEY_LIST one item unchanged, or each item of a comma-separated text. */
enum status settings_list_add(const struct settings_key *k, const char *where, const char *item, struct settings *s);
enum status settings_list_add_text(const struct settings_key *k, const char *where, const char *text, struct settings *s);
void settings_list_clear(const struct settings_key *k, struct settings *s);
/* Writes the value as YAML that settings_key_set and the YAML reader take. */
void settings_key_print(const struct settings_key *k, const struct settings *s, FILE *f);

/* Sets every key of a YAML file. */
enum status settings_read_yaml(const char *path, FILE *f, struct settings *s);

#endif
