/* The parts of a tokenizer. Private to this folder. */
#ifndef LTRAIN_TEXT_PARTS_H
#define LTRAIN_TEXT_PARTS_H

#include "text/added.h"
#include "text/bpe.h"
#include "text/normal.h"
#include "text/tokenizer.h"
#include "text/unigram.h"

#define MOST_STAGES 16
#define MOST_DECODERS 16

/* ---- pre-tokenizers: each cuts the pieces of the one before ---- */

enum stage_kind { STAGE_SPLIT, STAGE_CHARS, STAGE_BYTE_LEVEL, STAGE_METASPACE, STAGE_DEFINED };
enum split_behavior { SPLIT_ISOLATED, SPLIT_REMOVED, SPLIT_MERGED_WITH_PREVIOUS, SPLIT_MERGED_WITH_NEXT, SPLIT_CONTIGUOUS };
enum prepend_scheme { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };

/* Patterns of which it is known how they match text in ASCII, and that a newline is never in one match with a letter behind it. */
enum known_pattern { PATTERN_UNKNOWN, PATTERN_GPT2, PATTERN_LLAMA3, PATTERN_CASED, PATTERN_DEEPSEEK, PATTERN_BREAKS, PATTERN_NO_BREAKS };

struct stage {
    enum stage_kind kind;
    struct regex *pattern; /* of SPLIT, and of BYTE_LEVEL where it has one */
    enum known_pattern known;
    enum split_behavior behavior;
    int invert;
    int (*takes)(uint32_t c); /* of CHARS */
    int prefix_space;         /* of BYTE_LEVEL */
    int maps;                 /* of BYTE_LEVEL: bytes become characters; else the model takes bytes */
    uint8_t mark[4];          /* of METASPACE */
    size_t mark_n;
    enum prepend_scheme prepend;
    int split;
    const struct trie *defined; /* of DEFINED: pieces that are tokens where they stand; not owned */
};

/* ---- decoders ---- */

enum decoder_kind { DECODE_BYTE_LEVEL, DECODE_BYTE_FALLBACK, DECODE_FUSE, DECODE_STRIP, DECODE_REPLACE, DECODE_METASPACE };

struct decoder {
    enum decoder_kind kind;
    struct regex *pattern; /* of REPLACE */
    uint8_t *text;         /* of REPLACE: what comes instead; owned */
    size_t n;
    uint32_t mark;         /* of STRIP, METASPACE */
    int64_t start, stop;   /* of STRIP */
    int prepends;          /* of METASPACE */
};

enum model_kind { MODEL_BPE, MODEL_UNIGRAM };

struct tokenizer {
    char *path;
    uint64_t hash;
    struct vocab *tokens; /* of the model, as the file has them */
    struct vocab *raw;    /* the same as bytes, where the model takes bytes; else NULL */
    struct vocab *extra;  /* added tokens */
    struct vocab *pieces; /* sentencepiece's pieces that text may become, and characters that are parts of some; else NULL */
    struct trie defined;  /* sentencepiece's user-defined pieces; values: ids */
    struct added added;
    struct normal normal;
    struct stage stage[MOST_STAGES];
    int n_stages;
    enum model_kind model;
    struct bpe bpe;
    struct unigram unigram;
    struct ids before, behind;
    struct decoder decoder[MOST_DECODERS];
    int n_decoders;
    int splits_special;     /* special tokens in a text are text */
    int from_beside;        /* files beside a tokenizer.json add tokens, or change how some are looked for */
    int64_t file_ids, rows; /* ids that a tokenizer.json has without these files; ids that the model has, 0: any */
    char remark[512];       /* what people should know; "": nothing */
    int can_cut;
    uint8_t no_cut_behind[256]; /* bytes: a newline that follows one may belong to an added token */
};

/* ---- text between added tokens (encode.c) ---- */

/* Adds the ids of text[0 .. n-1], which starts at byte `at` of its document and in which raw added tokens are text. special: those
 * that are looked for in normalised text are not text. */
enum status encoder_add_text(struct encoder *e, const uint8_t *text, size_t n, size_t at, int special, struct ids *out);
const struct tokenizer *encoder_tokenizer(const struct encoder *e);

/* ---- what the parts of the file are made of ---- */

struct json_t;

enum status load_model(struct tokenizer *t, const struct json_t *model);
enum status load_normalizer(struct tokenizer *t, const struct json_t *normalizer);
enum status load_stages(struct tokenizer *t, const struct json_t *pre_tokenizer);
enum status load_template(struct tokenizer *t, const struct json_t *post_processor);
enum status load_decoder(struct tokenizer *t, const struct json_t *decoder);
/* Ids of <0xXX>, -1 where there is none. */
void find_fallbacks(const struct vocab *v, int32_t id[256]);

/* Its `added_tokens`; added_index is to follow. */
enum status load_added(struct tokenizer *t, const struct json_t *list);
/* Of a tokenizer.json: a token that was added to the vocabulary, with the id that its text has already, else *next, which is counted
 * up. id: -1, or the id that it has; normalized: it is looked for in normalised text. The text is copied; flags are taken from `like`. */
enum status add_token(struct tokenizer *t, const char *text, size_t n, const struct added_token *like, int normalized, int32_t *next);

/* Looks for the token in normalised text from now on. */
enum status added_normalize(struct tokenizer *t, struct added_token *a);
/* Adds the tokens of the files beside a tokenizer.json, and remarks what transformers takes otherwise. */
enum status load_config_tokens(struct tokenizer *t, const struct json_t *pre_tokenizer);
struct beside;
/* Remarks that transformers warns of a regular expression of Mistral's. */
void remark_mistral(struct tokenizer *t, const struct json_t *pre_tokenizer, const struct beside *b);
/* ERR_INVALID: a token of these files that stands in a text is beyond the model's rows. */
enum status added_check(const struct tokenizer *t, const struct added_token *a);

/* What lies beside a tokenizer's file: tokenizer_config.json, special_tokens_map.json, added_tokens.json, the model's config.json; each may be missing. */
struct beside {
    struct json_t *config, *map, *added, *model;
};

enum status beside_read(const struct tokenizer *t, struct beside *out);
void beside_free(struct beside *b);
/* Adds their tokens to those of t->tokens. */
enum status beside_add(struct tokenizer *t, const struct beside *b);
/* What comes before and behind a text, once all tokens are there. bos, eos: where the files name none. */
struct named_token {
    const char *text;
    size_t n;
};
/* A token as these files write one: its text, or an object with its text as `content`. */
enum status beside_token(const struct json_t *value, struct named_token *out, struct added_token *like);
enum status beside_wrap(struct tokenizer *t, const struct beside *b, struct named_token bos, struct named_token eos);

/* A tokenizer.model of sentencepiece. */
enum status load_sentencepiece(struct tokenizer *t, const char *data, size_t n);

/* All of a file, to be freed; it ends with a zero. */
enum status read_whole(const char *path, char **text, size_t *n);

#endif
