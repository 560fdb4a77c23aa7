/* Reading a tokenizer.model, a message in protocol buffers' wire format, of which only the fields that encoding needs are read. */
#include "text/sentencepiece.h"

#include "base/grow.h"
#include "text/unicode.h"
#include "text/vocab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LONGEST_PIECE 4096 /* most bytes of a piece; sentencepiece learns pieces of at most 512 characters */

/* ---- the wire ---- */

enum wire_type { WIRE_VARINT, WIRE_8_BYTES, WIRE_BYTES, WIRE_4_BYTES = 5 };

struct wire {
    const uint8_t *at, *end;
};

struct field {
    uint64_t number;
    enum wire_type type;
    uint64_t value;       /* WIRE_VARINT: the value; WIRE_4_BYTES: the bits */
    struct sp_text bytes; /* WIRE_BYTES: the bytes */
};

static enum status damaged(const char *what)
{
    return status_fail(ERR_INVALID, "it is no model of sentencepiece, or damaged: %s", what);
}

static enum status read_varint(struct wire *w, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 64 && w->at < w->end; shift += 7) {
        uint8_t byte = *w->at++;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return OK;
    }
    return damaged("a number does not end");
}

static enum status read_field(struct wire *w, struct field *f)
{
    uint64_t key;
    TRY(read_varint(w, &key));
    *f = (struct field){.number = key >> 3, .type = (enum wire_type)(key & 7)};
    size_t left;
    switch (f->type) {
    case WIRE_VARINT:
        return read_varint(w, &f->value);
    case WIRE_BYTES:
        TRY(read_varint(w, &f->value));
        break;
    case WIRE_8_BYTES:
        f->value = 8;
        break;
    case WIRE_4_BYTES:
        f->value = 4;
        break;
    default:
        return damaged("a field has a type that it cannot have");
    }
    left = (size_t)(w->end - w->at);
    if (f->number == 0 || f->value > left)
        return damaged("a field is longer than what it is in");
    f->bytes = (struct sp_text){w->at, (size_t)f->value};
    if (f->type == WIRE_4_BYTES)
        f->value = (uint64_t)w->at[0] | (uint64_t)w->at[1] << 8 | (uint64_t)w->at[2] << 16 | (uint64_t)w->at[3] << 24;
    w->at += f->bytes.n;
    return OK;
}

/* Calls `take` for each field of a message. */
static enum status each_field(struct sp_text message, void *to, enum status (*take)(void *to, const struct field *f))
{
    struct wire w = {message.data, message.data + message.n};
    struct field f;
    while (w.at < w.end) {
        TRY(read_field(&w, &f));
        TRY(take(to, &f));
    }
    return OK;
}

static enum status ask(const struct field *f, enum wire_type type)
{
    return f->type == type ? OK : damaged("a field has the type of another one");
}

static enum status take_flag(const struct field *f, int *out)
{
    *out = f->value != 0;
    return ask(f, WIRE_VARINT);
}

static enum status take_text(const struct field *f, struct sp_text *out)
{
    *out = f->bytes;
    return ask(f, WIRE_BYTES);
}

/* ---- the messages, by the numbers that sentencepiece_model.proto gives their fields ---- */

static enum status take_of_piece(void *to, const struct field *f)
{
    struct sp_piece *p = to;
    uint32_t bits = (uint32_t)f->value;
    switch (f->number) {
    case 1:
        return take_text(f, &p->text);
    case 2:
        memcpy(&p->score, &bits, sizeof bits);
        return ask(f, WIRE_4_BYTES);
    case 3:
        p->type = (enum sp_type)(f->value > SP_BYTE ? 0 : f->value);
        return ask(f, WIRE_VARINT);
    default:
        return OK;
    }
}

static enum status take_of_trainer(void *to, const struct field *f)
{
    struct sp_file *x = to;
    switch (f->number) {
    case 3:
        x->model = (int64_t)f->value;
        return ask(f, WIRE_VARINT);
    case 24:
        return take_flag(f, &x->space_as_suffix);
    case 35:
        return take_flag(f, &x->byte_fallback);
    case 46:
        return take_text(f, &x->bos);
    case 47:
        return take_text(f, &x->eos);
    default:
        return OK;
    }
}

static enum status take_of_normalizer(void *to, const struct field *f)
{
    struct sp_file *x = to;
    switch (f->number) {
    case 2:
        return take_text(f, &x->char_map);
    case 3:
        return take_flag(f, &x->dummy_prefix);
    case 4:
        return take_flag(f, &x->removes_spaces);
    case 5:
        return take_flag(f, &x->escapes_spaces);
    default:
        return OK;
    }
}

static enum status take_of_denormalizer(void *to, const struct field *f)
{
    struct sp_file *x = to;
    if (f->number == 2)
        x->has_denormalizer = f->bytes.n > 0;
    return OK;
}

static enum status add_piece(struct sp_file *x, const struct field *f)
{
    if (x->n == MOST_TOKENS)
        return status_fail(ERR_INVALID, "it has more than %d pieces", MOST_TOKENS);
    if ((int64_t)x->n == x->room) {
        struct sp_piece *piece = grow(x->piece, &x->room, sizeof *piece, 1024, "pieces");
        if (!piece)
            return ERR_NOMEM;
        x->piece = piece;
    }
    x->piece[x->n] = (struct sp_piece){.type = SP_NORMAL};
    return each_field(f->bytes, &x->piece[x->n++], take_of_piece);
}

static enum status take_of_model(void *to, const struct field *f)
{
    struct sp_file *x = to;
    if (f->number == 0 || f->number > 5)
        return f->number >= 200 ? OK : damaged("a field that models do not have"); /* numbers from 200 on are extensions */
    TRY(ask(f, WIRE_BYTES));
    switch (f->number) {
    case 1:
        return add_piece(x, f);
    case 2:
        return each_field(f->bytes, x, take_of_trainer);
    case 3:
        return each_field(f->bytes, x, take_of_normalizer);
    case 5:
        return each_field(f->bytes, x, take_of_denormalizer);
    default:
        return OK;
    }
}

/* ---- checking the pieces ---- */

static int hex(uint8_t c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int byte_of(struct sp_text t)
{
    int is_byte = t.n == 6 && memcmp(t.data, "<0x", 3) == 0 && t.data[5] == '>' && hex(t.data[3]) >= 0 && hex(t.data[4]) >= 0;
    return is_byte ? hex(t.data[3]) * 16 + hex(t.data[4]) : -1;
}

static enum status check_piece(struct sp_file *x, size_t i, uint8_t has_byte[256])
{
    const struct sp_piece *p = &x->piece[i];
    if (p->text.n == 0 || utf8_valid(p->text.data, p->text.n) < p->text.n)
        return status_fail(ERR_INVALID, "piece %zu has no text, or one that is no valid UTF-8", i);
    if (p->text.n > LONGEST_PIECE)
        return status_fail(ERR_INVALID, "piece %zu has %zu bytes, and %d are the most", i, p->text.n, LONGEST_PIECE);
    if (p->type < SP_NORMAL)
        return status_fail(ERR_INVALID, "piece %zu is of a type that is not known here", i);
    if (!isfinite(p->score))
        return status_fail(ERR_INVALID, "piece %zu has a score that is no finite number", i);
    if (p->type == SP_UNKNOWN) {
        if (x->unk >= 0)
            return status_fail(ERR_INVALID, "pieces %lld and %zu both are the unknown one", (long long)x->unk, i);
        x->unk = (int64_t)i;
    }
    if (p->type == SP_BYTE) {
        if (byte_of(p->text) < 0 || !x->byte_fallback)
            return status_fail(ERR_INVALID, "piece %zu is a byte, and %s", i,
                               x->byte_fallback ? "its name is none of <0x00> to <0xFF>" : "the model has no byte_fallback");
        has_byte[byte_of(p->text)] = 1;
    }
    return OK;
}

static enum status check_pieces(struct sp_file *x)
{
    uint8_t has_byte[256] = {0};
    for (size_t i = 0; i < x->n; i++)
        TRY(check_piece(x, i, has_byte));
    if (x->unk < 0)
        return damaged("it has no unknown piece");
    if (x->byte_fallback && memchr(has_byte, 0, sizeof has_byte))
        return status_fail(ERR_INVALID, "the model has byte_fallback, and not all 256 bytes are pieces");
    return OK;
}

enum status sp_read(const void *data, size_t n, struct sp_file *out)
{
    *out = (struct sp_file){.model = SP_UNIGRAM,
                            .bos = {(const uint8_t *)"<s>", 3},
                            .eos = {(const uint8_t *)"</s>", 4},
                            .dummy_prefix = 1,
                            .removes_spaces = 1,
                            .escapes_spaces = 1,
                            .unk = -1};
    enum status st = each_field((struct sp_text){data, n}, out, take_of_model);
    if (st == OK)
        st = check_pieces(out);
    if (st != OK)
        sp_free(out);
    return st;
}

void sp_free(struct sp_file *f)
{
    free(f->piece);
    f->piece = NULL;
    f->n = 0;
    f->room = 0;
}
