/* The table of keys: name of a flag or YAML key, type, place in struct settings, default and limits. */
#ifndef LTRAIN_SETTINGS_KEYS_H
#define LTRAIN_SETTINGS_KEYS_H

#include "settings/read.h"

#include <stddef.h>

enum key_type {
    KEY_STRING,
    KEY_LIST,    /* struct string_list: items separated by commas, repeated flags, or YAML lists */
    KEY_COUNT,   /* int64_t, with suffixes k m g except for numbers of steps */
    KEY_LENGTHS, /* int64_t and struct curriculum: a count with suffixes k m g, or length@steps,...,length */
    KEY_BYTES,   /* int64_t, with suffixes K M G T */
    KEY_NUMBER,  /* double */
    KEY_INT,     /* int */
    KEY_ALPHA,   /* the fields alpha, alpha_by_kind, window_alpha */
    KEY_SEED,    /* uint64_t; no digit is lost */
    KEY_CHOICE,  /* an enum: index into choices */
    KEY_SWITCH,  /* int: 1 if --verbose (say) is given without a value */
    KEY_OFFLOAD, /* enum offload of the four classes: params, grads, optim, acts */
    KEY_BETAS,   /* beta1, beta2 */
    KEY_TILES,   /* row_chunk, head_tile, loss_tile */
    KEY_MESH,    /* dp, ulysses, ring */
    KEY_STAGES,  /* struct mesh_stages: numbers of layers */
    KEY_LORA,    /* struct lora */
    KEY_DRIVES,  /* nvme_drives, nvme_gbps */
    KEY_DEVICE,  /* device, gpu: index into choices, or cuda:N */
    KEY_DTYPE,   /* dtype, dtype_is_open: index into choices, or auto */
    KEY_LAUNCH,  /* int that is read before all settings and stored in no field */
    KEY_CONFIG,  /* name of the settings' file, read before all settings and stored in no field */
};

enum key_flags {
    KEY_FLAG_ONLY = 1, /* the key may not stand in files */
    KEY_ABOVE_MIN = 2, /* the value must be above min, not equal */
    KEY_BELOW_MAX = 4, /* the value must be below max, not equal */
    KEY_WEIGHED = 8,   /* a list whose items may be NAME=NUMBER; files may have a mapping instead */
    KEY_FP32 = 16,     /* a number used as fp32: rounded to fp32 it must still be in range, and not become 0 */
    KEY_TEXT = 32,     /* a text that may be empty or begin with blanks, unlike a name */
    KEY_OF_A_RUN = 64, /* a key of training: ltrain eval and ltrain sample drop the value in a training run's file */
    KEY_OF_MODEL =
        128, /* a key of the file's model: ltrain eval and ltrain sample drop the file's value if a flag gives another model */
};

/* Purposes of keys. A command that has no such purpose refuses the key on the command line; refuse.c has the reasons. */
enum key_scope {
    SCOPE_ANY,
    SCOPE_TRAINING,      /* steps and checkpoints of training */
    SCOPE_STEPS,         /* plans of steps: ranks, placements and the effort of searching them */
    SCOPE_OUT,           /* the directory of a run */
    SCOPE_EVALUATION,    /* evaluation during training */
    SCOPE_ADAPTERS,      /* making adapters */
    SCOPE_RESUMED,       /* continuing a run */
    SCOPE_DATA,          /* data */
    SCOPE_TRAINING_DATA, /* data to train on, or for tasks */
    SCOPE_ROWS,          /* rows and files of data, or of the text that generated tasks use */
    SCOPE_TEXTS,         /* data that are read as they are, not as text for tasks */
    SCOPE_TRAIN_ON,      /* choosing the trained parts of chats */
    SCOPE_PACKING,       /* packing documents into sequences */
    SCOPE_CHATS,         /* chats, in data or in tasks */
    SCOPE_SAMPLE,        /* ltrain sample */
    SCOPE_ANSWERING,     /* ltrain sample and ltrain eval */
    SCOPE_ANSWERS,       /* ltrain sample, and answers to tasks in ltrain eval */
    SCOPE_EVAL,          /* ltrain eval */
    SCOPE_STRIDE,        /* windows of ltrain eval */
    SCOPE_SAMPLES,       /* ltrain data, and answers to tasks in ltrain eval */
    SCOPE_MAX_SEQ,       /* ltrain plan's search for the longest sequence */
    SCOPE_EXPLAIN,       /* ltrain plan's explained answers */
    SCOPE_JSON,          /* JSON as the form of answers */
    SCOPE_REPLAY,        /* ltrain replay */
    SCOPE_SVG,           /* a picture as the form of answers */
};

struct settings_key {
    const char *name;
    enum key_type type;
    /* offset of the field in struct settings; unused by OFFLOAD, ALPHA, BETAS, TILES, MESH, DRIVES, DEVICE, DTYPE, LAUNCH, CONFIG */
    size_t offset;
    const char *value; /* default, as text; NULL: zero */
    const char *unset; /* word that stands for the value AUTO: "auto", "none"; NULL: there is none */
    double least;      /* smallest magnitude of numbers other than 0 */
    double min, max;   /* limits of the value, or of each number in it (--tiles rows=N, --betas X,X); finite */
    int counts_steps;  /* 1: a number of steps or checkpoints, without k m g */
    unsigned flags;
    unsigned shown;             /* commands (SETTINGS_*) whose help shows the key; 0: hidden from help and suggestions */
    unsigned required;          /* commands that need a value */
    enum key_scope scope;       /* purpose of the key, which limits the commands that take it */
    const char *example;        /* line of a settings file that gives a required key */
    const char *const *choices; /* NULL-terminated, in the order of the enum */
    const char *group;          /* heading above it in the help, or NULL */
    const char *arg, *help;
};

/* Words for enum offload, ended by NULL; names before '=' in KEY_OFFLOAD, KEY_TILES and KEY_ALPHA. */
extern const char *const settings_tiers[], *const settings_classes[], *const settings_tile_names[], *const settings_layer_kinds[];
extern const char *const settings_schedules[]; /* words for enum schedule_kind */

extern const struct settings_key settings_keys[];
extern const int settings_n_keys;

/* Returns the key of that name ('_' may stand for '-'), or NULL. */
const struct settings_key *settings_key_find(const char *name);
/* Returns the nearest visible key's name, or NULL if none is near. */
const char *settings_key_suggest(const char *name);

/* Parses text into the key's field, replacing its value. where: name of the option that begins an error's message ("--lr",
 * "run.yaml:3: lr"). */
enum status settings_key_set(const struct settings_key *k, const char *where, const char *text, struct settings *s);
/* Appends to a KEY_LIST one item as it is, or (settings_list_add_text) each item of a comma-separated text. */
enum status settings_list_add(const struct settings_key *k, const char *where, const char *item, struct settings *s);
enum status settings_list_add_text(const struct settings_key *k, const char *where, const char *text, struct settings *s);
void settings_list_clear(const struct settings_key *k, struct settings *s);
/* Writes the value as YAML that settings_key_set and the YAML reader take. */
void settings_key_print(const struct settings_key *k, const struct settings *s, FILE *f);

/* Sets every key of a YAML file. */
enum status settings_read_yaml(const char *path, FILE *f, struct settings *s);

#endif
