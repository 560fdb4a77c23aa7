/* Tokenizing on several threads: one reads at a time, all encode, and results are written in the order of reading. */
#include "data/tokenize.h"

#include "base/num.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "base/sys.h"
#include "data/file.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define FORMAT 1 /* counts up where the same tokenizer and files give other tokens, or the file another form */
#define CHUNK_BYTES ((int64_t)2 << 20)

/* Whole documents, or a part of one; or lines with a conversation each. */
struct segment {
    size_t at, n;
    int begins, ends;
    int64_t file, line; /* the first line's number; 0: text */
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
    const struct tokenizer *t;
    const struct chat_setup *chats;
    const uint8_t *is_chats; /* of each file */
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
static size_t cut_lines(const uint8_t *text, size_t n)
{
    const uint8_t *newline = memrchr(text, '\n', n);
    return newline ? (size_t)(newline - text) + 1 : 0;
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
        n = have == left           ? left
            : j->is_chats[j->file] ? (int64_t)cut_lines(c->text.data + at, (size_t)have)
                                   : (int64_t)tokenizer_cut(j->t, c->text.data + at, (size_t)have);
    }
    c->text.n = at + (size_t)n;
    XXH3_64bits_update(j->hash, c->text.data + at, (size_t)n);
    TRY(add_segment(c, &(struct segment){at, (size_t)n, j->at == 0, n == left, j->file, j->is_chats[j->file] ? j->line : 0}));
    for (const uint8_t *p = c->text.data + at, *end = p + n; j->is_chats[j->file] && (p = memchr(p, '\n', (size_t)(end - p))); p++)
        j->line++;
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

/* What one thread encodes with. */
struct encoders {
    struct encoder *text;
    struct chat_encoder *chats; /* made when the first conversation comes */
    struct text_buffer repaired;
};

static enum status encode_chat(const struct job *j, struct encoders *e, struct chunk *c, const char *json, size_t n, const char *path, int64_t line)
{
    struct chat_conversation *chat;
    struct chat_sample sample;
    int32_t ids = (int32_t)tokenizer_ids(j->t);
    if (!e->chats)
        TRY(chat_encoder_create(j->t, j->chats->chat_template, &j->chats->options, &e->chats));
    TRY(chat_read(json, n, path, line, &chat));
    enum status st = chat_encode(e->chats, chat, &sample);
    chat_destroy(chat);
    TRY(st);
    for (size_t i = 0; i < sample.tokens.n && st == OK; i++)
        st = ids_add(&c->ids, sample.tokens.id[i] + (sample.trained[i] ? 0 : ids));
    chat_sample_destroy(&sample);
    return st == OK ? add_piece(c, 1) : st;
}

/* Lines that are not empty. */
static enum status encode_chats(const struct job *j, struct encoders *e, struct chunk *c, const struct segment *s)
{
    const char *path = documents_path(j->d, s->file), *at = (const char *)c->text.data + s->at, *end = at + s->n;
    for (int64_t line = s->line; at < end; line++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at)), *stop = newline ? newline : end;
        size_t blank = 0;
        while (at + blank < stop && strchr(" \t\r", at[blank]))
            blank++;
        if (at + blank < stop)
            TRY(encode_chat(j, e, c, at, (size_t)(stop - at), path, line));
        at = stop + 1;
    }
    return OK;
}

static enum status encode_chunk(const struct job *j, struct encoders *e, struct chunk *c)
{
    const struct ids *before, *behind;
    struct text_buffer *repaired = &e->repaired;
    tokenizer_template(j->t, &before, &behind);
    c->n_pieces = 0;
    for (int64_t i = 0; i < c->n; i++) {
        const struct segment *s = &c->segment[i];
        if (s->line) {
            TRY(encode_chats(j, e, c, s));
            continue;
        }
        const uint8_t *text = c->text.data + s->at;
        size_t n = s->n;
        int64_t broken;
        repaired->n = 0;
        TRY(text_repair(text, n, repaired, &broken));
        if (broken) {
            text = repaired->data;
            n = repaired->n;
            c->repaired += broken;
        }
        if (s->begins)
            TRY(add_all(&c->ids, before));
        TRY(tokenizer_encode(e->text, text, n, s->begins ? 0 : ENCODE_CONTINUES, &c->ids));
        if (s->ends)
            TRY(add_all(&c->ids, behind));
        TRY(add_piece(c, s->ends));
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

static enum status work_on_chunks(struct job *j, struct encoders *e, struct chunk *c)
{
    while (!has_failed(j)) {
        pthread_mutex_lock(&j->reading);
        enum status st = read_chunk(j, c);
        pthread_mutex_unlock(&j->reading);
        TRY(st);
        if (c->n == 0)
            return OK;
        TRY(encode_chunk(j, e, c));
        TRY(write_in_turn(j, c));
    }
    return OK;
}

static enum status work(void *jobs)
{
    struct job *j = *(struct job **)jobs;
    struct chunk c = {.n = 0};
    struct encoders e = {.text = NULL};
    enum status st = encoder_create(j->t, &e.text);
    if (st == OK)
        st = work_on_chunks(j, &e, &c);
    if (st != OK)
        fail(j);
    encoder_free(e.text);
    chat_encoder_destroy(e.chats);
    text_buffer_free(&e.repaired);
    text_buffer_free(&c.text);
    free(c.segment);
    free(c.ids.id);
    free(c.piece);
    return st == ERR_CANCELLED ? OK : st; /* who failed first says why */
}

/* ---- the whole ---- */

/* Which files hold conversations. */
static enum status find_chats(const struct documents *d, const struct chat_setup *chats, uint8_t *is_chats, int *any)
{
    *any = 0;
    for (int64_t i = 0; i < documents_count(d); i++) {
        int yes;
        TRY(chats_are_in(documents_path(d, i), &yes));
        if (yes && !(chats && chats->chat_template))
            return status_fail(ERR_INVALID, "%s holds conversations, and there is no chat template: %s", documents_path(d, i),
                               chats && chats->missing ? chats->missing : "--chat-template names one");
        is_chats[i] = (uint8_t)yes;
        *any |= yes;
    }
    return OK;
}

/* chats: NULL if no file has any. */
static struct token_source source_of(const struct documents *d, const struct tokenizer *t, const struct chat_setup *chats)
{
    const uint64_t facts[] = {FORMAT, tokenizer_hash(t), (uint64_t)documents_count(d), chats ? chat_setup_hash(chats) : 0};
    size_t n = sizeof facts - (chats ? 0 : sizeof facts[0]);
    struct token_source s = {.files = documents_count(d), .ids = tokenizer_ids(t) * (chats ? 2 : 1), .key = XXH3_64bits(facts, n)};
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

static enum status make(struct documents *d, const struct tokenizer *t, const struct chat_setup *chats, const uint8_t *is_chats,
                        const char *dir, int threads, const struct token_source *source)
{
    struct job j = {.d = d, .t = t, .chats = chats, .is_chats = is_chats, .fd = -1, .reading = PTHREAD_MUTEX_INITIALIZER, .writing = PTHREAD_MUTEX_INITIALIZER,
                    .turn = PTHREAD_COND_INITIALIZER};
    struct job *jobs[PARALLEL_MOST];
    enum status st;
    int n = (int)max_i64(1, min_i64(min_i64(threads, PARALLEL_MOST), documents_bytes(d) / CHUNK_BYTES + 1));
    j.hash = XXH3_createState();
    j.print = sys_calloc((size_t)source->files, sizeof *j.print);
    if (!j.hash || !j.print)
        TRY_GOTO(status_fail(ERR_NOMEM, "out of memory: tokenizing"), done);
    TRY_GOTO(token_writer_create(dir, source, &j.writer), done);
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

static enum status take_or_make(struct documents *d, const struct tokenizer *t, const struct chat_setup *chats, const uint8_t *is_chats,
                                const char *dir, int threads, struct token_file **out, int *cached)
{
    struct token_source source = source_of(d, t, chats);
    struct token_file *f;
    TRY(token_file_open(dir, &source, &f));
    *cached = f != NULL;
    enum status st = f ? is_of(d, f, cached) : OK;
    if (st == OK && !*cached) {
        token_file_close(f);
        f = NULL;
        st = make(d, t, chats, is_chats, dir, threads, &source);
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

enum status tokenize_documents(struct documents *d, const struct tokenizer *t, const struct chat_setup *chats, const char *dir, int threads,
                               struct token_file **out, int *cached)
{
    int any;
    uint8_t *is_chats = sys_calloc((size_t)documents_count(d) + 1, 1);
    if (!is_chats)
        return status_fail(ERR_NOMEM, "out of memory: a list of files");
    enum status st = find_chats(d, chats, is_chats, &any);
    if (st == OK)
        st = take_or_make(d, t, any ? chats : NULL, is_chats, dir, threads, out, cached);
    free(is_chats);
    return st;
}
