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

/* ---- pre-tokenizers: each stage cuts the pieces that the stage before has made ---- */

enum stage_kind { STAGE_SPLIT, STAGE_CHARS, STAGE_BYTE_LEVEL, STAGE_METASPACE, STAGE_DEFINED };
enum split_behavior { SPLIT_ISOLATED, SPLIT_REMOVED, SPLIT_MERGED_WITH_PREVIOUS, SPLIT_MERGED_WITH_NEXT, SPLIT_CONTIGUOUS };
enum prepend_scheme { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };

/* Regular expressions of published tokenizers, whose matches in ASCII text are computed without matching. None of them matches a
 * newline together with a letter right behind. */
enum known_pattern {
    PATTERN_UNKNOWN,
    PATTERN_GPT2,
    PATTERN_LLAMA3,
    PATTERN_CASED,
    PATTERN_DEEPSEEK,
    PATTERN_BREAKS,
    PATTERN_NO_BREAKS
};

struct stage {
    enum stage_kind kind;
    struct regex *pattern; /* STAGE_SPLIT, and STAGE_BYTE_LEVEL if it splits: the pattern */
    enum known_pattern known;
    enum split_behavior behavior;
    int invert;
    int (*takes)(uint32_t c); /* STAGE_CHARS: tells whether the stage cuts at a character */
    int prefix_space;         /* STAGE_BYTE_LEVEL: 1: a space is put in front */
    int maps;                 /* BYTE_LEVEL: 1: bytes become characters; 0: the model takes bytes */
    uint8_t mark[4];          /* STAGE_METASPACE: the sign for a space, UTF-8 */
    size_t mark_n;
    enum prepend_scheme prepend;
    int split;
    const struct trie *defined; /* STAGE_DEFINED: pieces that become tokens wherever they occur; not owned */
};

/* ---- decoders ---- */

enum decoder_kind { DECODE_BYTE_LEVEL, DECODE_BYTE_FALLBACK, DECODE_FUSE, DECODE_STRIP, DECODE_REPLACE, DECODE_METASPACE };

struct decoder {
    enum decoder_kind kind;
    struct regex *pattern; /* REPLACE */
    uint8_t *text;         /* REPLACE: the replacement; owned */
    size_t n;
    uint32_t mark;       /* STRIP, METASPACE */
    int64_t start, stop; /* STRIP */
    int prepends;        /* METASPACE */
};

enum model_kind { MODEL_BPE, MODEL_UNIGRAM };

struct tokenizer {
    char *path;
    uint64_t hash;
    struct vocab *tokens; /* the model's tokens, as in the file */
    struct vocab *raw;    /* the same tokens as raw bytes, if the model takes bytes; else NULL */
    struct vocab *extra;  /* added tokens */
    /* sentencepiece's pieces that encoding may give, and single characters that are only parts of pieces; else NULL */
    struct vocab *pieces;
    struct trie defined; /* sentencepiece's user-defined pieces; values: ids */
    struct added added;
    struct normal normal;
    struct stage stage[MOST_STAGES];
    int n_stages;
    enum model_kind model;
    struct bpe bpe;
    struct unigram unigram;
    struct ids before, behind;
    int32_t eos; /* the token that ends a document; -1: no file names one */
    struct decoder decoder[MOST_DECODERS];
    int n_decoders;
    int splits_special;     /* 1: special tokens that occur in a text are split like other text */
    int from_beside;        /* 1: files beside a tokenizer.json add tokens, or change how some are sought */
    int64_t file_ids, rows; /* file_ids: number of ids in tokenizer.json alone; rows: of the model's embedding, 0: any number */
    char remark[512];       /* remark for users; "": none */
    int can_cut;            /* 1: documents may be encoded in parts (tokenizer_cut) */
    /* by byte: 1: a newline behind this byte may belong to an added token, so that text is not cut there */
    uint8_t no_cut_behind[256];
};

/* ---- text between added tokens (encode.c) ---- */

/* Adds the ids of text[0 .. n-1], which starts at byte `at` of its document. Added tokens that are sought in raw text are not
 * recognised; special tokens that are sought in normalised text are, if special is 1. */
enum status encoder_add_text(struct encoder *e, const uint8_t *text, size_t n, size_t at, int special, struct ids *out);
const struct tokenizer *encoder_tokenizer(const struct encoder *e);

/* ---- loading the parts of the file ---- */

struct json_t;

enum status load_model(struct tokenizer *t, const struct json_t *model);
enum status load_normalizer(struct tokenizer *t, const struct json_t *normalizer);
enum status load_stages(struct tokenizer *t, const struct json_t *pre_tokenizer);
enum status load_template(struct tokenizer *t, const struct json_t *post_processor);
enum status load_decoder(struct tokenizer *t, const struct json_t *decoder);
/* Finds the ids of <0xXX>; -1 if there is none. */
void find_fallbacks(const struct vocab *v, int32_t id[256]);

/* Loads the file's `added_tokens`; added_index must follow. */
enum status load_added(struct tokenizer *t, const struct json_t *list);
/* Adds a token to those of a tokenizer.json. Its id is like->id if not -1; else the id that its text already has, or else *next,
 * which is counted up. normalized: 1: the token is sought in normalised text. The text is copied; flags are taken from `like`. */
enum status add_token(struct tokenizer *t, const char *text, size_t n, const struct added_token *like, int normalized,
                      int32_t *next);

/* Marks the token as sought in normalised text from now on. */
enum status added_normalize(struct tokenizer *t, struct added_token *a);
/* Adds the tokens of the files beside a tokenizer.json, and sets the remark if transformers would read these files differently. */
enum status load_config_tokens(struct tokenizer *t, const struct json_t *pre_tokenizer);
struct beside;
/* Sets the remark if transformers warns of the tokenizer's regular expression, a faulty one of Mistral's. */
void remark_mistral(struct tokenizer *t, const struct json_t *pre_tokenizer, const struct beside *b);
/* Refuses a token that only these files add and that occurs in a text, if its id is beyond the model's rows (ERR_INVALID). */
enum status added_check(const struct tokenizer *t, const struct added_token *a);

/* JSON of the files beside a tokenizer: tokenizer_config.json, special_tokens_map.json, added_tokens.json, the model's
 * config.json; NULL: missing. */
struct beside {
    struct json_t *config, *map, *added, *model;
};

enum status beside_read(const struct tokenizer *t, struct beside *out);
void beside_free(struct beside *b);
/* Adds the files' tokens to those of t->tokens. */
enum status beside_add(struct tokenizer *t, const struct beside *b);
/* A token by its text. */
struct named_token {
    const char *text;
    size_t n;
};
/* Reads a token as these files write one: its text, or an object with its text as `content`. */
enum status beside_token(const struct json_t *value, struct named_token *out, struct added_token *like);
/* Finds the token that ends a document, once all tokens are known. eos: used if the files name none. */
enum status beside_find_eos(struct tokenizer *t, const struct beside *b, struct named_token eos);
/* Finds the ids that are put before and behind each text, once all tokens are known. bos, eos: used if the files name none. */
enum status beside_wrap(struct tokenizer *t, const struct beside *b, struct named_token bos, struct named_token eos);

/* Loads sentencepiece's tokenizer.model. */
enum status load_sentencepiece(struct tokenizer *t, const char *data, size_t n);

/* Reads a whole file and puts a zero behind its bytes; the caller frees *text. */
enum status read_whole(const char *path, char **text, size_t *n);

#endif
