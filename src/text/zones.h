/* Encoding text of several origins: finds each token's place, and reads special tokens typed by a user as plain text. */
#ifndef LTRAIN_TEXT_ZONES_H
#define LTRAIN_TEXT_ZONES_H

#include "text/tokenizer.h"

/* Kinds of zones, by the added tokens that are recognised in them: all; all but special ones; all but special and guarded ones. */
enum zone_kind { ZONE_ALL, ZONE_NO_SPECIAL, ZONE_PLAIN };

struct zone {
    size_t end; /* zones are in order and cover the text; zone i begins where the one before it ends */
    enum zone_kind kind;
};

struct zone_encoder;

/* Creates an encoder. guard[0 .. n-1]: a chat template's text; the added tokens that occur in it are guarded, except those of
 * white space only. e must outlive *out. */
enum status zone_encoder_create(struct encoder *e, const uint8_t *guard, size_t n, struct zone_encoder **out);
void zone_encoder_free(struct zone_encoder *z);

/* Bytes [first, end) of the text that a token stands for. */
struct token_place {
    size_t first, end;
};

struct token_places {
    struct token_place *at;
    size_t n;
    int64_t room;
};

/* Adds the ids of a whole document in valid UTF-8, and to `places` the place of each id. If zones forbid no token of the text,
 * the ids are those of tokenizer_encode. Where a normalizer has rewritten characters, each token there stands for all of them. */
enum status zone_encode(struct zone_encoder *z, const uint8_t *text, size_t n, const struct zone *zones, size_t n_zones,
                        struct ids *out, struct token_places *places);
void token_places_free(struct token_places *places);

#endif
