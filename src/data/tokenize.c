/* Tokenizing on several threads: one reads at a time, all encode, and results are written in the order of reading. */
#include "data/tokenize.h"

#include "base/num.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "base/sys.h"
#include "data/file.h"
#include "data/lines.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define FORMAT 2 /* counts up where the same tokenizer and files give other tokens, or the file another form */
#define CHUNK_BYTES ((int64_t)2 << 20)

/* Whole documents, or a part of one; or rows of a .jsonl file. */
struct segment {
    size_t at, n;
    int begins, ends;
    int64_t file, line; /* the first line's number */
};

/* Where ids of a chunk end that belong together, and whether a document does. */
struct piece {
    size_t end;
    int ends;
};

struct chunk {
    int64_t number;
    struct text_buffer text;
    struct segment *segment;
    int64_t n, room;
    struct ids ids;
    struct piece *piece;
    int64_t n_pieces, pieces_room;
    int64_t repaired, bytes;
};

struct job {
    struct documents *d;
    const struct tokenize_config *config;
    const uint8_t *kind; /* of each file, an enum lines_kind */
    struct token_writer *writer;
    struct fingerprint *print; /* of each file */
    pthread_mutex_t reading, writing;
    pthread_cond_t turn;
    /* the reader's place */
    int64_t file, at, line, next_chunk;
    int fd; /* -1: the file is not open */
    XXH3_state_t *hash;
    /* the writer's */
    int64_t next_written;
    int failed;
    struct token_totals totals;
};

/* ---- reading ---- */

static enum status open_file(struct job *j)
{
    struct fingerprint *print = &j->print[j->file];
    const char *path = documents_path(j->d, j->file);
    int64_t bytes;
    TRY(file_open(path, &j->fd, &bytes));
    print->bytes = documents_end(j->d, j->file) - documents_first(j->d, j->file);
    j->at = 0;
    j->line = 1;
    XXH3_64bits_reset(j->hash);
    if (bytes != print->bytes)
        return status_fail(ERR_CORRUPT, "%s changes while it is read: start once nothing writes to it any more", path);
    return fingerprint_stamp_of(j->fd, path, &print->stamp, &print->settled);
}

static enum status end_file(struct job *j)
{
    struct fingerprint *print = &j->print[j->file];
    const char *path = documents_path(j->d, j->file);
    uint64_t stamp;
    TRY(fingerprint_stamp_of(j->fd, path, &stamp, NULL));
    sys_close(j->fd);
    j->fd = -1;
    j->file++;
    print->xxh3 = XXH3_64bits_digest(j->hash);
    return stamp == print->stamp
               ? OK
               : status_fail(ERR_CORRUPT, "%s changes while it is read: start once nothing writes to it any more", path);
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

static enum status add_piece(struct chunk *c, int ends)
{
    if (c->n_pieces == c->pieces_room) {
        int64_t room = c->pieces_room ? 2 * c->pieces_room : 64;
        struct piece *piece = sys_realloc(c->piece, (size_t)room * sizeof *piece);
        if (!piece)
            return status_fail(ERR_NOMEM, "out of memory: %lld documents", (long long)room);
        c->piece = piece;
        c->pieces_room = room;
    }
    c->piece[c->n_pieces++] = (struct piece){c->ids.n, ends};
    return OK;
}

/* Behind the last newline; 0: there is none. */
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

/* Where the beginning of a file may be cut; 0: nowhere. */
static size_t cut(const struct job *j, const uint8_t *text, size_t n)
{
    return j->kind[j->file] == LINES_NONE ? tokenizer_cut(j->config->tokenizer, text, n) : last_line_end(text, n);
}

/* What is left of the file, or its beginning up to where it may be cut: in a buffer that grows until there is such a place. */
static enum status read_segment(struct job *j, struct chunk *c)
{
    const char *path = documents_path(j->d, j->file);
    int64_t left = j->print[j->file].bytes - j->at, have = 0, want = min_i64(left, CHUNK_BYTES), n = 0;
    size_t at = c->text.n;
    for (; n == 0; want = min_i64(left, 2 * want)) {
        TRY(text_buffer_reserve(&c->text, (size_t)(want - have)));
        fingerprint_before_read(&j->print[j->file], j->fd, j->at + have, want - have);
        TRY(file_read(j->fd, path, c->text.data + at + have, (size_t)(want - have), j->at + have));
        c->text.n = at + (size_t)want;
        have = want;
        n = have == left ? left : (int64_t)cut(j, c->text.data + at, (size_t)have);
    }
    c->text.n = at + (size_t)n;
    XXH3_64bits_update(j->hash, c->text.data + at, (size_t)n);
    TRY(add_segment(c, &(struct segment){at, (size_t)n, j->at == 0, n == left, j->file, j->line}));
    j->line += j->kind[j->file] == LINES_NONE ? 0 : count_lines(c->text.data + at, (size_t)n);
    progress_read(n);
    j->at += n;
    return n == left ? end_file(j) : OK;
}

/* Several small files together. Without any segment all is read. */
static enum status read_chunk(struct job *j, struct chunk *c)
{
    c->n = 0;
    c->text.n = 0;
    c->ids.n = 0;
    c->repaired = 0;
    while (j->file < documents_count(j->d) && c->text.n < (size_t)CHUNK_BYTES) {
        if (j->fd < 0)
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

/* What one thread encodes with, and what it encodes. */
struct encoding {
    const struct job *job;
    struct encoder *text;
    struct chat_encoder *chats; /* made when the first conversation comes */
    struct text_buffer repaired;
    struct chunk *c;
    const char *path; /* of rows */
};

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
    TRY(tokenizer_encode(x->text, text, n, begins ? 0 : ENCODE_CONTINUES, &x->c->ids));
    if (ends)
        TRY(add_all(&x->c->ids, behind));
    return add_piece(x->c, ends);
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

static enum status encode_chat(void *encoding, const char *row, size_t n, int64_t line)
{
    struct encoding *x = encoding;
    const struct tokenize_config *config = x->job->config;
    struct chat_conversation *chat;
    struct chat_sample sample;
    int32_t ids = (int32_t)tokenizer_ids(config->tokenizer);
    if (!x->chats)
        TRY(chat_encoder_create(config->tokenizer, config->chats->chat_template, &config->chats->options, &x->chats));
    TRY(chat_read(row, n, x->path, line, &chat));
    enum status st = chat_encode(x->chats, chat, &sample);
    chat_destroy(chat);
    TRY(st);
    for (size_t i = 0; i < sample.tokens.n && st == OK; i++)
        st = ids_add(&x->c->ids, sample.tokens.id[i] + (sample.trained[i] ? 0 : ids));
    chat_sample_destroy(&sample);
    return st == OK ? add_piece(x->c, 1) : st;
}

static enum status encode_chunk(struct encoding *x)
{
    x->c->n_pieces = 0;
    for (int64_t i = 0; i < x->c->n; i++) {
        const struct segment *s = &x->c->segment[i];
        const uint8_t *text = x->c->text.data + s->at;
        enum lines_kind kind = x->job->kind[s->file];
        x->path = documents_path(x->job->d, s->file);
        TRY(kind == LINES_NONE ? encode_text(x, text, s->n, s->begins, s->ends)
                               : lines_visit(text, s->n, s->line, kind == LINES_CHATS ? encode_chat : encode_row, x));
    }
    return OK;
}

static enum status write_chunk(struct job *j, const struct chunk *c)
{
    size_t first = 0;
    for (int64_t i = 0; i < c->n_pieces; i++) {
        TRY(token_writer_add(j->writer, c->ids.id + first, (int64_t)(c->piece[i].end - first)));
        if (c->piece[i].ends)
            TRY(token_writer_end_document(j->writer));
        first = c->piece[i].end;
    }
    j->totals.repaired += c->repaired;
    j->totals.text_bytes += c->bytes;
    return OK;
}

/* In its turn; not at all if another thread has failed. */
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
    enum status st = encoder_create(j->config->tokenizer, &x.text);
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
    return st == ERR_CANCELLED ? OK : st; /* who failed first says why */
}

/* ---- the whole ---- */

/* What each file holds. any: of each kind, whether some file does. */
static enum status find_kinds(const struct documents *d, const struct tokenize_config *config, uint8_t *kinds, int any[])
{
    const struct chat_setup *chats = config->chats;
    for (int64_t i = 0; i < documents_count(d); i++) {
        enum lines_kind kind;
        TRY(lines_look(documents_path(d, i), config->column, &kind));
        if (kind == LINES_CHATS && !(chats && chats->chat_template))
            return status_fail(ERR_INVALID, "%s holds conversations, and there is no chat template: %s", documents_path(d, i),
                               chats && chats->missing ? chats->missing : "--chat-template names one");
        kinds[i] = (uint8_t)kind;
        any[kind] = 1;
    }
    return OK;
}

static struct token_source source_of(const struct documents *d, const struct tokenize_config *config, const int any[])
{
    const char *column = config->column;
    const uint64_t facts[] = {FORMAT, tokenizer_hash(config->tokenizer), (uint64_t)documents_count(d),
                              any[LINES_CHATS] ? chat_setup_hash(config->chats) : 0,
                              any[LINES_TEXT] && column ? XXH3_64bits(column, strlen(column)) : 0};
    struct token_source s = {.files = documents_count(d), .ids = tokenizer_ids(config->tokenizer) * (any[LINES_CHATS] ? 2 : 1),
                             .key = XXH3_64bits(facts, sizeof facts)};
    for (int64_t i = 0; i < s.files; i++) {
        const char *path = documents_path(d, i);
        const uint64_t file[] = {s.key, XXH3_64bits(path, strlen(path)), (uint64_t)documents_end(d, i)};
        s.key = XXH3_64bits(file, sizeof file);
    }
    return s;
}

/* Whether the files are those of which the tokens were made: nobody has touched them, or they have the same bytes. */
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

static enum status make(struct documents *d, const struct tokenize_config *config, const uint8_t *kinds, const struct token_source *source)
{
    struct job j = {.d = d, .config = config, .kind = kinds, .fd = -1, .reading = PTHREAD_MUTEX_INITIALIZER,
                    .writing = PTHREAD_MUTEX_INITIALIZER, .turn = PTHREAD_COND_INITIALIZER};
    struct job *jobs[PARALLEL_MOST];
    enum status st;
    int n = (int)max_i64(1, min_i64(min_i64(config->threads, PARALLEL_MOST), documents_bytes(d) / CHUNK_BYTES + 1));
    j.hash = XXH3_createState();
    j.print = sys_calloc((size_t)source->files, sizeof *j.print);
    if (!j.hash || !j.print)
        TRY_GOTO(status_fail(ERR_NOMEM, "out of memory: tokenizing"), done);
    TRY_GOTO(token_writer_create(config->dir, source, &j.writer), done);
    for (int i = 0; i < n; i++)
        jobs[i] = &j;
    TRY_GOTO(parallel_run(work, jobs, sizeof *jobs, n), done);
    st = token_writer_finish(j.writer, &j.totals, j.print);
done:
    if (j.fd >= 0)
        sys_close(j.fd);
    token_writer_destroy(j.writer);
    free(j.print);
    XXH3_freeState(j.hash);
    return st;
}

static enum status take_or_make(struct documents *d, const struct tokenize_config *config, const uint8_t *kinds, const int any[],
                                struct token_file **out, int *cached)
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
        st = make(d, config, kinds, &source);
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

enum status tokenize_documents(struct documents *d, const struct tokenize_config *config, struct token_file **out, int *cached)
{
    int any[LINES_CHATS + 1] = {0};
    uint8_t *kinds = sys_calloc((size_t)documents_count(d) + 1, 1);
    if (!kinds)
        return status_fail(ERR_NOMEM, "out of memory: a list of files");
    enum status st = find_kinds(d, config, kinds, any);
    if (st == OK)
        st = take_or_make(d, config, kinds, any, out, cached);
    free(kinds);
    return st;
}
