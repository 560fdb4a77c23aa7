/* Tokenizing on several threads: one reads at a time, all encode, and results are written in the order of reading. */
#include "data/tokenize.h"

#include "base/num.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "base/sys.h"
#include "data/input.h"
#include "data/lines.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* version of the files of tokens: raised when the same tokenizer and files give other tokens, or the file's form changes */
#define FORMAT 13
enum { CHUNK_BYTES = 2 << 20 };

/* Bytes [at, at + n) of a chunk's text to encode: whole documents, a part of one, rows of a .jsonl file, or ids. */
struct segment {
    size_t at, n;
    int begins, ends;    /* 1: the segment begins or ends its file */
    int64_t file, place; /* place: number of the segment's first line in files of rows, of its first byte in others */
    int64_t repaired;    /* number of broken UTF-8 characters */
};

/* The ids of a chunk up to `end`, from the piece before on, which belong to one document of `file`; ends: 1: the document ends
 * with them. */
struct piece {
    size_t end;
    int ends;
    int64_t file;
};

struct chunk {
    int64_t number;
    struct text_buffer text;
    struct segment *segment;
    int64_t n, room;
    struct ids ids;
    struct piece *piece;
    int64_t n_pieces, pieces_room;
    int64_t repaired, bytes; /* repaired: broken characters of the segments so far */
    struct chat_counts chats;
};

struct job {
    struct documents *d;
    const struct tokenize_config *config;
    const struct file_kind *kind; /* kind of each file */
    int64_t ids;                  /* bound of the vocabulary's ids, which are all below */
    struct token_writer *writer;
    struct fingerprint *print; /* fingerprint of each file */
    pthread_mutex_t reading, writing;
    pthread_cond_t turn;
    /* place up to which files were read, used by the reading thread */
    int64_t file, place, next_chunk; /* place: line or byte in the file, as in struct segment */
    struct input *input;             /* NULL: the file is not open */
    int begun;                       /* 1: a segment of the file was read */
    struct text_buffer rest;         /* bytes that were read, behind the place of the last cut */
    /* state of writing, used under `writing` */
    int64_t next_written;
    int failed;
    struct token_totals totals;
    /* broken characters of the file numbered `repairing`, and of the file that has the most */
    int64_t repaired_now, repaired_most, repairing;
};

/* ---- reading ---- */

static enum status open_file(struct job *j)
{
    struct fingerprint *print = &j->print[j->file];
    const char *path = documents_path(j->d, j->file);
    TRY(input_open(path, print, &j->input));
    j->begun = 0;
    j->place = j->kind[j->file].lines == LINES_NONE ? 0 : 1;
    lines_select(j->input, j->kind[j->file].lines, j->config->column);
    if (print->bytes != documents_end(j->d, j->file) - documents_first(j->d, j->file))
        return status_fail(ERR_CORRUPT, "%s changes while it is read: start once nothing writes to it any more", path);
    return OK;
}

static enum status end_file(struct job *j)
{
    TRY(input_end(j->input));
    input_close(j->input);
    j->input = NULL;
    j->file++;
    return OK;
}

static enum status add_segment(struct chunk *c, const struct segment *s)
{
    if (c->n == c->room) {
        int64_t room = c->room ? 2 * c->room : 64;
        struct segment *segment = sys_realloc(c->segment, (size_t)room * sizeof *segment);
        if (!segment)
            return status_fail(ERR_NOMEM, "out of memory: %lld documents", (long long)room);
        c->segment = segment;
        c->room = room;
    }
    c->segment[c->n++] = *s;
    return OK;
}

static enum status add_piece(struct chunk *c, int64_t file, int ends)
{
    if (c->n_pieces == c->pieces_room) {
        int64_t room = c->pieces_room ? 2 * c->pieces_room : 64;
        struct piece *piece = sys_realloc(c->piece, (size_t)room * sizeof *piece);
        if (!piece)
            return status_fail(ERR_NOMEM, "out of memory: %lld documents", (long long)room);
        c->piece = piece;
        c->pieces_room = room;
    }
    c->piece[c->n_pieces++] = (struct piece){c->ids.n, ends, file};
    return OK;
}

/* Returns the number of bytes up to and with the last newline; 0: there is none. */
static size_t last_line_end(const uint8_t *text, size_t n)
{
    const uint8_t *newline = memrchr(text, '\n', n);
    return newline ? (size_t)(newline - text) + 1 : 0;
}

static int64_t count_lines(const uint8_t *text, size_t n)
{
    int64_t lines = 0;
    for (const uint8_t *p = text, *end = text + n; (p = memchr(p, '\n', (size_t)(end - p))) != NULL; p++)
        lines++;
    return lines;
}

/* Returns the number of bytes after which the text may be cut, so that both sides can be encoded alone; 0: nowhere. */
static size_t cut(const struct job *j, const uint8_t *text, size_t n)
{
    const struct file_kind *k = &j->kind[j->file];
    if (k->lines != LINES_NONE)
        return last_line_end(text, n);
    if (k->ids.format != IDS_NONE)
        return n - n % (size_t)k->ids.width;
    return j->config->tokenizer ? tokenizer_cut(j->config->tokenizer, text, n) : n;
}

/* Adds the text from the last cut to the next place where it may be cut, or to the file's end. The buffer grows until there is
 * such a place. *ends: 1 if the file ends there. */
static enum status read_to_cut(struct job *j, struct text_buffer *text, size_t *n, int *ends)
{
    const char *path = documents_path(j->d, j->file);
    size_t at = text->n, have = j->rest.n, want = CHUNK_BYTES, got;
    if (have > 0)
        TRY(text_buffer_add(text, j->rest.data, have));
    j->rest.n = 0;
    for (*n = 0, *ends = 0; *n == 0 && !*ends; want = have + (have > CHUNK_BYTES ? have : CHUNK_BYTES)) {
        if (have > LINES_MOST_ROW && input_is_compressed(path))
            return lines_refuse_long(path, j->kind[j->file].lines == LINES_NONE ? 1 : j->place);
        if (have < want) {
            TRY(text_buffer_reserve(text, want - have));
            TRY(input_read(j->input, text->data + at + have, want - have, &got));
            *ends = got < want - have;
            have += got;
            text->n = at + have;
        }
        *n = *ends ? have : cut(j, text->data + at, have);
    }
    if (have > *n)
        TRY(text_buffer_add(&j->rest, text->data + at + *n, have - *n));
    text->n = at + *n;
    return OK;
}

static enum status read_segment(struct job *j, struct chunk *c)
{
    const struct file_kind *k = &j->kind[j->file];
    size_t at = c->text.n, n;
    int ends;
    TRY(read_to_cut(j, &c->text, &n, &ends));
    TRY(add_segment(c, &(struct segment){at, n, !j->begun, ends, j->file, j->place}));
    j->begun = 1;
    j->place += k->lines == LINES_NONE ? (int64_t)n : count_lines(c->text.data + at, n);
    return ends ? end_file(j) : OK;
}

/* Reads the next chunk, in which several small files may be together. A chunk without segments: all files have been read. */
static enum status read_chunk(struct job *j, struct chunk *c)
{
    c->n = 0;
    c->text.n = 0;
    c->ids.n = 0;
    c->repaired = 0;
    c->chats = (struct chat_counts){.samples = 0};
    while (j->file < documents_count(j->d) && c->text.n < (size_t)CHUNK_BYTES) {
        if (!j->input)
            TRY(open_file(j));
        TRY(read_segment(j, c));
    }
    c->bytes = (int64_t)c->text.n;
    c->number = j->next_chunk++;
    return OK;
}

/* ---- encoding ---- */

static enum status add_all(struct ids *out, const struct ids *more)
{
    for (size_t i = 0; i < more->n; i++)
        TRY(ids_add(out, more->id[i]));
    return OK;
}

/* One thread's encoders, and the chunk that they work on. */
struct encoding {
    const struct job *job;
    struct encoder *text;
    struct chat_encoder *chats; /* encoder of conversations, made when the first one comes */
    struct text_buffer repaired;
    struct chunk *c;
    int64_t file;
    const char *path;
};

/* Tells whether a text, whose tokens begin at number `first`, needs an eos: the text has tokens, the last of which is no eos, and
 * the ids put behind every text (`behind`) have none. */
static int lacks_eos(const struct encoding *x, size_t first, const struct ids *behind)
{
    const int32_t eos = tokenizer_eos(x->job->config->tokenizer);
    const struct ids *ids = &x->c->ids;
    if (!x->job->config->append_eos || ids->n == first || ids->id[ids->n - 1] == eos)
        return 0;
    for (size_t i = 0; i < behind->n; i++)
        if (behind->id[i] == eos)
            return 0;
    return 1;
}

static enum status encode_text(struct encoding *x, const uint8_t *text, size_t n, int begins, int ends)
{
    const struct ids *before, *behind;
    int64_t broken;
    tokenizer_template(x->job->config->tokenizer, &before, &behind);
    x->repaired.n = 0;
    TRY(text_repair(text, n, &x->repaired, &broken));
    if (broken) {
        text = x->repaired.data;
        n = x->repaired.n;
        x->c->repaired += broken;
    }
    if (begins)
        TRY(add_all(&x->c->ids, before));
    const size_t first = x->c->ids.n;
    TRY(tokenizer_encode(x->text, text, n, begins ? 0 : ENCODE_CONTINUES, &x->c->ids));
    const int eos = ends && lacks_eos(x, first, behind);
    if (ends)
        TRY(add_all(&x->c->ids, behind));
    if (eos)
        TRY(ids_add(&x->c->ids, tokenizer_eos(x->job->config->tokenizer)));
    return add_piece(x->c, x->file, ends);
}

/* Adds bytes as ids: without a tokenizer they are the tokens. */
static enum status encode_bytes(struct encoding *x, const uint8_t *text, size_t n, int ends)
{
    for (size_t i = 0; i < n; i++)
        TRY(ids_add(&x->c->ids, text[i]));
    return add_piece(x->c, x->file, ends);
}

static enum status refuse_id(const struct encoding *x, int64_t at, int64_t id)
{
    return status_fail(
        ERR_INVALID,
        "%s: token %lld is %lld, and ids of the vocabulary end at %lld: it was made with another tokenizer, or is of "
        "another type",
        x->path, (long long)at, (long long)id, (long long)x->job->ids - 1);
}

/* Adds the ids of a file of ids, cut into its documents. */
static enum status encode_ids(struct encoding *x, const struct id_file *f, const uint8_t *bytes, const struct segment *s)
{
    size_t i = s->place < f->first_byte ? (size_t)(f->first_byte - s->place) : 0;
    int64_t at = (s->place + (int64_t)i - f->first_byte) / f->width, document = id_file_document(f, at - 1);
    for (; i + (size_t)f->width <= s->n; i += (size_t)f->width, at++) {
        int64_t id = id_file_get(f, bytes + i);
        if (id < 0 || id >= x->job->ids)
            return refuse_id(x, at, id);
        int ends = document < f->n_ends && f->ends[document] == at;
        document += ends;
        if (ends || (id == f->begins && at > 0))
            TRY(add_piece(x->c, x->file, 1));
        TRY(ids_add(&x->c->ids, (int32_t)id));
    }
    return add_piece(x->c, x->file, s->ends);
}

static enum status encode_row_of_ids(void *encoding, const char *row, size_t n, int64_t line)
{
    struct encoding *x = encoding;
    TRY(lines_read_ids(x->path, line, row, n, x->job->ids, &x->c->ids));
    return add_piece(x->c, x->file, 1);
}

static enum status encode_row(void *encoding, const char *row, size_t n, int64_t line)
{
    struct encoding *x = encoding;
    json_t *text;
    TRY(lines_read_text(x->path, line, x->job->config->column, row, n, &text));
    enum status st = encode_text(x, (const uint8_t *)json_string_value(text), json_string_length(text), 1, 1);
    json_decref(text);
    return st;
}

static enum status add_sample(void *encoding, const struct chat_sample *s)
{
    struct encoding *x = encoding;
    const int32_t ids = (int32_t)tokenizer_ids(x->job->config->tokenizer);
    for (size_t i = 0; i < s->tokens.n; i++)
        TRY(ids_add(&x->c->ids, s->tokens.id[i] + (s->trained[i] ? 0 : ids)));
    return add_piece(x->c, x->file, 1);
}

static enum status encode_chat(void *encoding, const char *row, size_t n, int64_t line)
{
    struct encoding *x = encoding;
    const struct tokenize_config *config = x->job->config;
    struct chat_conversation *chat;
    if (!x->chats)
        TRY(chat_encoder_create(config->tokenizer, config->chats->chat_template, &config->chats->options, &x->chats));
    TRY(lines_check_row(x->path, line, row, n));
    TRY(chat_read(row, n, x->path, line, &chat));
    enum status st = chat_encode_turns(x->chats, chat, config->chats->turns, add_sample, x, &x->c->chats);
    chat_destroy(chat);
    return st;
}

static enum status encode_segment(struct encoding *x, const struct segment *s)
{
    static lines_visitor *const visit[] = {NULL, encode_row, encode_chat, encode_row_of_ids};
    const struct file_kind *k = &x->job->kind[s->file];
    const uint8_t *text = x->c->text.data + s->at;
    x->file = s->file;
    x->path = documents_path(x->job->d, s->file);
    if (k->ids.format == IDS_MEGATRON_INDEX)
        return OK;
    if (k->ids.format != IDS_NONE)
        return encode_ids(x, &k->ids, text, s);
    if (k->lines != LINES_NONE)
        return lines_visit(text, s->n, s->place, visit[k->lines], x);
    if (!x->job->config->tokenizer)
        return encode_bytes(x, text, s->n, s->ends);
    /* the byte order mark of UTF-8, which is no part of the text */
    const size_t mark = s->begins && s->n >= 3 && memcmp(text, "\357\273\277", 3) == 0 ? 3 : 0;
    return encode_text(x, text + mark, s->n - mark, s->begins, s->ends);
}

static enum status encode_chunk(struct encoding *x)
{
    x->c->n_pieces = 0;
    for (int64_t i = 0; i < x->c->n; i++) {
        const int64_t before = x->c->repaired;
        TRY(encode_segment(x, &x->c->segment[i]));
        x->c->segment[i].repaired = x->c->repaired - before;
    }
    return OK;
}

/* Counts a segment's broken characters for the file and in all; segments come in the order of the files. */
static void count_repaired(struct job *j, const struct segment *s)
{
    if (s->file != j->repairing)
        j->repaired_now = 0;
    j->repairing = s->file;
    j->repaired_now += s->repaired;
    j->totals.repaired += s->repaired;
    if (j->repaired_now > j->repaired_most) {
        j->repaired_most = j->repaired_now;
        j->totals.repaired_file = s->file;
    }
}

static enum status write_chunk(struct job *j, const struct chunk *c)
{
    size_t first = 0;
    for (int64_t i = 0; i < c->n_pieces; i++) {
        TRY(token_writer_add(j->writer, c->ids.id + first, (int64_t)(c->piece[i].end - first)));
        if (c->piece[i].ends)
            TRY(token_writer_end_document(j->writer, c->piece[i].file));
        first = c->piece[i].end;
    }
    for (int64_t i = 0; i < c->n; i++)
        count_repaired(j, &c->segment[i]);
    j->totals.text_bytes += c->bytes;
    chat_counts_add(&j->totals.chats, &c->chats);
    return OK;
}

/* Writes a chunk when those before it have been written; writes nothing if another thread has failed. */
static enum status write_in_turn(struct job *j, const struct chunk *c)
{
    pthread_mutex_lock(&j->writing);
    while (j->next_written != c->number && !j->failed)
        pthread_cond_wait(&j->turn, &j->writing);
    enum status st = j->failed ? status_fail(ERR_CANCELLED, "another thread failed") : write_chunk(j, c);
    j->next_written++;
    pthread_cond_broadcast(&j->turn);
    pthread_mutex_unlock(&j->writing);
    return st;
}

static void fail(struct job *j)
{
    pthread_mutex_lock(&j->writing);
    j->failed = 1;
    pthread_cond_broadcast(&j->turn);
    pthread_mutex_unlock(&j->writing);
}

static int has_failed(struct job *j)
{
    pthread_mutex_lock(&j->writing);
    int failed = j->failed;
    pthread_mutex_unlock(&j->writing);
    return failed;
}

static enum status work_on_chunks(struct job *j, struct encoding *x)
{
    while (!has_failed(j)) {
        pthread_mutex_lock(&j->reading);
        enum status st = read_chunk(j, x->c);
        pthread_mutex_unlock(&j->reading);
        TRY(st);
        if (x->c->n == 0)
            return OK;
        TRY(encode_chunk(x));
        TRY(write_in_turn(j, x->c));
    }
    return OK;
}

static enum status work(void *jobs)
{
    struct job *j = *(struct job **)jobs;
    struct chunk c = {.n = 0};
    struct encoding x = {.job = j, .c = &c};
    enum status st = j->config->tokenizer ? encoder_create(j->config->tokenizer, &x.text) : OK;
    if (st == OK)
        st = work_on_chunks(j, &x);
    if (st != OK)
        fail(j);
    encoder_free(x.text);
    chat_encoder_destroy(x.chats);
    text_buffer_free(&x.repaired);
    text_buffer_free(&c.text);
    free(c.segment);
    free(c.ids.id);
    free(c.piece);
    return st == ERR_CANCELLED ? OK : st; /* the thread that failed first says why */
}

/* ---- the whole ---- */

/* Facts about the files, besides their names and lengths, that decide which settings their tokens depend on. */
struct facts {
    int chats, ids, masked, columns, texts, bare; /* 1: some file is such a one; bare: has ids without a header */
};

static enum status find_facts(const struct documents *d, const struct tokenize_config *config, const struct file_kind *kind,
                              struct facts *out)
{
    const struct chat_setup *chats = config->chats;
    *out = (struct facts){0};
    for (int64_t i = 0; i < documents_count(d); i++) {
        const struct file_kind *k = &kind[i];
        if (k->lines == LINES_CHATS && !(chats && chats->chat_template))
            return status_fail(ERR_INVALID, "%s holds conversations, and there is no chat template: %s", documents_path(d, i),
                               chats && chats->missing ? chats->missing : "--chat-template names one");
        out->chats |= k->lines == LINES_CHATS;
        out->columns |= k->lines == LINES_TEXT;
        out->texts |= kinds_are_text(k);
        out->ids |= kinds_are_ids(k);
        out->bare |= k->ids.format == IDS_PLAIN;
        out->masked |= k->lines == LINES_CHATS || k->lines == LINES_IDS;
    }
    return OK;
}

/* Returns the bound of ids, which are all below, except the shifted ids of untrained tokens. */
static int64_t vocabulary(const struct tokenize_config *config, const struct facts *any)
{
    enum { BYTES = 256 };
    return config->tokenizer ? tokenizer_ids(config->tokenizer) : any->ids ? config->vocab : BYTES;
}

static struct token_source source_of(const struct documents *d, const struct tokenize_config *config, const struct facts *any)
{
    const char *column = config->column;
    const int64_t ids = vocabulary(config, any);
    const uint64_t facts[] = {FORMAT,
                              config->tokenizer ? tokenizer_hash(config->tokenizer) : (uint64_t)ids,
                              (uint64_t)documents_count(d),
                              any->chats ? chat_setup_hash(config->chats) : 0,
                              any->columns && column ? XXH3_64bits(column, strlen(column)) : 0,
                              any->bare ? (uint64_t)config->token_bytes : 0,
                              config->tokenizer != NULL};
    struct token_source s = {
        .files = documents_count(d), .ids = ids * (any->masked ? 2 : 1), .key = XXH3_64bits(facts, sizeof facts)};
    if (config->append_eos && any->texts)
        s.key = XXH3_64bits_withSeed("append-eos", strlen("append-eos"), s.key ^ (uint64_t)tokenizer_eos(config->tokenizer));
    for (int64_t i = 0; i < s.files; i++) {
        const char *path = documents_path(d, i);
        const uint64_t file[] = {s.key, XXH3_64bits(path, strlen(path)), (uint64_t)(documents_end(d, i) - documents_first(d, i))};
        s.key = XXH3_64bits(file, sizeof file);
    }
    return s;
}

/* Finds whether the tokens were made of these very files: nobody has touched the files, or their bytes are still the same. */
static enum status is_of(struct documents *d, const struct token_file *f, int *same)
{
    *same = 1;
    for (int64_t i = 0; i < documents_count(d) && *same; i++) {
        struct fingerprint *print = documents_fingerprint(d, i);
        uint64_t stamp;
        int64_t bytes;
        TRY(fingerprint_stamp(documents_path(d, i), &stamp, &bytes));
        *print = *token_file_fingerprint(f, i);
        if (stamp == print->stamp && print->settled)
            continue;
        TRY(fingerprint_take(documents_path(d, i), NULL, NULL, print));
        *same = print->xxh3 == token_file_fingerprint(f, i)->xxh3;
    }
    return OK;
}

static enum status make(struct documents *d, const struct tokenize_config *config, const struct file_kind *kinds, int64_t ids,
                        const struct token_source *source)
{
    struct job j = {.d = d,
                    .config = config,
                    .kind = kinds,
                    .ids = ids,
                    .reading = PTHREAD_MUTEX_INITIALIZER,
                    .writing = PTHREAD_MUTEX_INITIALIZER,
                    .turn = PTHREAD_COND_INITIALIZER};
    struct job *jobs[PARALLEL_MOST];
    enum status st;
    int n = (int)max_i64(1, min_i64(min_i64(config->threads, PARALLEL_MOST), documents_bytes(d) / CHUNK_BYTES + 1));
    j.print = sys_calloc((size_t)source->files, sizeof *j.print);
    if (!j.print)
        TRY_GOTO(status_fail(ERR_NOMEM, "out of memory: tokenizing"), done);
    TRY_GOTO(token_writer_create(config->dir, source, &j.writer), done);
    for (int i = 0; i < n; i++)
        jobs[i] = &j;
    TRY_GOTO(parallel_run(work, jobs, sizeof *jobs, n), done);
    st = token_writer_finish(j.writer, &j.totals, j.print);
done:
    input_close(j.input);
    text_buffer_free(&j.rest);
    token_writer_destroy(j.writer);
    free(j.print);
    return st;
}

static enum status take_or_make(struct documents *d, const struct tokenize_config *config, const struct file_kind *kinds,
                                const struct facts *any, struct token_file **out, int *cached)
{
    struct token_source source = source_of(d, config, any);
    const char *dir = config->dir;
    struct token_file *f;
    TRY(token_file_open(dir, &source, &f));
    *cached = f != NULL;
    enum status st = f ? is_of(d, f, cached) : OK;
    if (st == OK && !*cached) {
        token_file_close(f);
        f = NULL;
        st = make(d, config, kinds, vocabulary(config, any), &source);
        if (st == OK)
            st = token_file_open(dir, &source, &f);
        if (st == OK && !f)
            st = status_fail(ERR_CORRUPT, "the tokens that were written to %s are gone", dir);
        for (int64_t i = 0; i < documents_count(d) && st == OK; i++)
            *documents_fingerprint(d, i) = *token_file_fingerprint(f, i);
    }
    if (st != OK)
        token_file_close(f);
    else
        *out = f;
    return st;
}

enum status tokenize_documents(struct documents *d, const struct tokenize_config *config, const struct file_kind *kinds,
                               struct token_file **out, int *cached)
{
    struct facts any;
    TRY(find_facts(d, config, kinds, &any));
    return take_or_make(d, config, kinds, &any, out, cached);
}
