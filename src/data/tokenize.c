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

/* Whole documents, or a part of one. */
struct segment {
    size_t at, n;
    int begins, ends;
};

struct chunk {
    int64_t number;
    struct text_buffer text;
    struct segment *segment;
    int64_t n, room;
    struct ids ids;
    size_t *end; /* of the segment's ids */
    int64_t repaired, bytes;
};

struct job {
    struct documents *d;
    const struct tokenizer *t;
    struct token_writer *writer;
    struct fingerprint *print; /* of each file */
    pthread_mutex_t reading, writing;
    pthread_cond_t turn;
    /* the reader's place */
    int64_t file, at, next_chunk;
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

static enum status add_segment(struct chunk *c, size_t at, size_t n, int begins, int ends)
{
    if (c->n == c->room) {
        int64_t room = c->room ? 2 * c->room : 64;
        struct segment *segment = sys_realloc(c->segment, (size_t)room * sizeof *segment);
        size_t *end = segment ? sys_realloc(c->end, (size_t)room * sizeof *end) : NULL;
        c->segment = segment ? segment : c->segment;
        c->end = end ? end : c->end;
        if (!end)
            return status_fail(ERR_NOMEM, "out of memory: %lld documents", (long long)room);
        c->room = room;
    }
    c->segment[c->n++] = (struct segment){at, n, begins, ends};
    return OK;
}

/* What is left of the file, or its beginning up to where it may be cut: in a buffer that grows until there is such a place. */
static enum status read_segment(struct job *j, struct chunk *c)
{
    const char *path = documents_path(j->d, j->file);
    int64_t left = j->print[j->file].bytes - j->at, have = 0, want = min_i64(left, CHUNK_BYTES), n = 0;
    size_t at = c->text.n;
    for (; n == 0; want = min_i64(left, 2 * want)) {
        TRY(text_buffer_reserve(&c->text, (size_t)(want - have)));
        TRY(file_read(j->fd, path, c->text.data + at + have, (size_t)(want - have), j->at + have));
        c->text.n = at + (size_t)want;
        have = want;
        n = have == left ? left : (int64_t)tokenizer_cut(j->t, c->text.data + at, (size_t)have);
    }
    c->text.n = at + (size_t)n;
    XXH3_64bits_update(j->hash, c->text.data + at, (size_t)n);
    TRY(add_segment(c, at, (size_t)n, j->at == 0, n == left));
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

static enum status encode_chunk(struct encoder *e, const struct tokenizer *t, struct chunk *c, struct text_buffer *repaired)
{
    const struct ids *before, *behind;
    tokenizer_template(t, &before, &behind);
    for (int64_t i = 0; i < c->n; i++) {
        const struct segment *s = &c->segment[i];
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
        TRY(tokenizer_encode(e, text, n, s->begins ? 0 : ENCODE_CONTINUES, &c->ids));
        if (s->ends)
            TRY(add_all(&c->ids, behind));
        c->end[i] = c->ids.n;
    }
    return OK;
}

static enum status write_chunk(struct job *j, const struct chunk *c)
{
    size_t first = 0;
    for (int64_t i = 0; i < c->n; i++) {
        TRY(token_writer_add(j->writer, c->ids.id + first, (int64_t)(c->end[i] - first)));
        if (c->segment[i].ends)
            TRY(token_writer_end_document(j->writer));
        first = c->end[i];
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

static enum status work_on_chunks(struct job *j, struct encoder *e, struct chunk *c, struct text_buffer *repaired)
{
    while (!has_failed(j)) {
        pthread_mutex_lock(&j->reading);
        enum status st = read_chunk(j, c);
        pthread_mutex_unlock(&j->reading);
        TRY(st);
        if (c->n == 0)
            return OK;
        TRY(encode_chunk(e, j->t, c, repaired));
        TRY(write_in_turn(j, c));
    }
    return OK;
}

static enum status work(void *jobs)
{
    struct job *j = *(struct job **)jobs;
    struct chunk c = {.n = 0};
    struct text_buffer repaired = {0};
    struct encoder *e = NULL;
    enum status st = encoder_create(j->t, &e);
    if (st == OK)
        st = work_on_chunks(j, e, &c, &repaired);
    if (st != OK)
        fail(j);
    encoder_free(e);
    text_buffer_free(&repaired);
    text_buffer_free(&c.text);
    free(c.segment);
    free(c.ids.id);
    free(c.end);
    return st == ERR_CANCELLED ? OK : st; /* who failed first says why */
}

/* ---- the whole ---- */

static struct token_source source_of(const struct documents *d, const struct tokenizer *t)
{
    const uint64_t facts[] = {FORMAT, tokenizer_hash(t), (uint64_t)documents_count(d)};
    struct token_source s = {.files = documents_count(d), .ids = tokenizer_ids(t), .key = XXH3_64bits(facts, sizeof facts)};
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

static enum status make(struct documents *d, const struct tokenizer *t, const char *dir, int threads, const struct token_source *source)
{
    struct job j = {.d = d, .t = t, .fd = -1, .reading = PTHREAD_MUTEX_INITIALIZER, .writing = PTHREAD_MUTEX_INITIALIZER,
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

enum status tokenize_documents(struct documents *d, const struct tokenizer *t, const char *dir, int threads, struct token_file **out,
                               int *cached)
{
    struct token_source source = source_of(d, t);
    struct token_file *f;
    TRY(token_file_open(dir, &source, &f));
    *cached = f != NULL;
    enum status st = f ? is_of(d, f, cached) : OK;
    if (st == OK && !*cached) {
        token_file_close(f);
        f = NULL;
        st = make(d, t, dir, threads, &source);
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
