/* Digests of a checkpoint's tensors: made by all ranks, kept as a text, and read back. */
#include "checkpoint/digests.h"

#include "base/mix.h"
#include "base/num.h"
#include "base/sys.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { ROUND = 8192 }; /* segments that a rank hashes between two agreements: 1 GiB */

int digest_find(const struct st_file *f, int i, struct ckpt_part *out)
{
    struct st_raw t;
    if (st_find_raw(f, st_name(f, i), &t) != OK)
        return 0;
    uint64_t seed = mix_text(mix_text(0, st_name(f, i)), t.type);
    for (int d = 0; d < t.n_dims; d++)
        seed = mix(seed, (uint64_t)t.shape[d]);
    *out = (struct ckpt_part){.path = t.path, .at = t.at, .bytes = t.bytes, .seed = seed};
    return 1;
}

enum status digest_share(struct comm *c, const struct ckpt_part *part, uint64_t *sum)
{
    int64_t rank = comm_rank(c), size = comm_size(c);
    int64_t n = ckpt_segments(part->bytes), share = ceil_div(n, size), first = min_i64(n, rank * share),
            end = min_i64(n, first + share);
    for (int64_t at = 0; at < share; at += ROUND) {
        int64_t some = max_i64(0, min_i64(ROUND, end - first - at));
        TRY(comm_agree(c, some > 0 ? ckpt_hash(part, first + at, some, sum) : OK));
    }
    return OK;
}

/* ---- making ---- */

/* A tensor of the k-th file. */
struct place {
    struct ckpt_part part;
    int file, number; /* number: in the file's list */
};

/* Tensors of both files, in the order of their bytes, and the hashes. */
struct tensors {
    struct st_file *file[DIGEST_FILES];
    struct ckpt_window window[DIGEST_FILES];
    struct place *of;
    int n, first[DIGEST_FILES + 1]; /* first: a file's tensors are of[first[k]] .. of[first[k + 1] - 1] */
    uint64_t *sum;                  /* [n + DIGEST_FILES]: of tensors, then of whole files */
};

static int by_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->file != y->file ? x->file - y->file : (x->part.at > y->part.at) - (x->part.at < y->part.at);
}

static enum status open_tensors(const char *dir, struct tensors *t)
{
    char path[CKPT_PATH];
    int most = 0;
    for (int k = 0; k < DIGEST_FILES; k++) {
        TRY(ckpt_path(path, dir, ckpt_file_names[k], ""));
        TRY(st_open(path, &t->file[k]));
        TRY(ckpt_window_open(st_file_path(t->file[k], 0), &t->window[k]));
        most += st_count(t->file[k]);
    }
    t->of = sys_calloc((size_t)most + 1, sizeof *t->of);
    t->sum = sys_calloc((size_t)most + DIGEST_FILES, sizeof *t->sum);
    if (!t->of || !t->sum)
        return status_fail(ERR_NOMEM, "out of memory: digests of %d tensors", most);
    for (int k = 0; k < DIGEST_FILES; k++) {
        for (int j = 0; j < st_count(t->file[k]); j++) {
            t->of[t->n] = (struct place){.file = k, .number = j};
            t->n += digest_find(t->file[k], j, &t->of[t->n].part);
        }
        t->first[k + 1] = t->n;
    }
    qsort(t->of, (size_t)t->n, sizeof *t->of, by_place);
    return OK;
}

static void close_tensors(struct tensors *t)
{
    for (int k = 0; k < DIGEST_FILES; k++) {
        if (t->file[k])
            ckpt_window_close(&t->window[k]);
        st_close(t->file[k]);
    }
    free(t->of);
    free(t->sum);
}

/* Hashes segments [first, first + n) of file k, and the tensors' segments that begin in them, while their bytes are at hand. *next: the
 * first tensor that may have some. */
static enum status hash_some(struct tensors *t, int k, int64_t bytes, int64_t first, int64_t n, int *next)
{
    const struct ckpt_part whole = {.path = t->window[k].path, .bytes = bytes};
    for (int64_t s = first; s < first + n; s++) {
        const int64_t from = s * CKPT_SEGMENT, to = from + CKPT_SEGMENT;
        TRY(ckpt_hash_in(&t->window[k], &whole, s, 1, &t->sum[t->n + k]));
        for (int i = *next; i < t->first[k + 1] && t->of[i].part.at < to; i++) {
            const struct ckpt_part *part = &t->of[i].part;
            const int64_t own = ceil_div(max_i64(0, from - part->at), CKPT_SEGMENT);
            if (own < ckpt_segments(part->bytes))
                TRY(ckpt_hash_in(&t->window[k], part, own, 1, &t->sum[i]));
            *next += i == *next && own + 1 >= ckpt_segments(part->bytes);
        }
    }
    return OK;
}

/* Hashes this rank's share of the files; the ranks agree after every round, so that none waits long for a slow one. */
static enum status hash_files(struct comm *c, struct tensors *t, const struct manifest *m)
{
    for (int k = 0; k < DIGEST_FILES; k++) {
        const int64_t n = ckpt_segments(m->files[k].bytes), share = ceil_div(n, comm_size(c)),
                      first = min_i64(n, comm_rank(c) * share), end = min_i64(n, first + share);
        int next = t->first[k];
        for (int64_t at = 0; at < share; at += ROUND)
            TRY(comm_agree(c,
                           hash_some(t, k, m->files[k].bytes, first + at, max_i64(0, min_i64(ROUND, end - first - at)), &next)));
    }
    return OK;
}

/* Adds up the sums of all ranks: halves of 32 bits, as sums of doubles are exact. */
static enum status add_up(struct comm *c, struct tensors *t)
{
    const int n = t->n + DIGEST_FILES;
    double *half = sys_calloc(2 * (size_t)n, sizeof *half);
    enum status st = comm_agree(c, half ? OK : status_fail(ERR_NOMEM, "out of memory: digests of %d tensors", t->n));
    for (int i = 0; i < n && st == OK; i++) {
        half[2 * i] = (double)(uint32_t)t->sum[i];
        half[2 * i + 1] = (double)(uint32_t)(t->sum[i] >> 32);
    }
    if (st == OK)
        st = comm_sum(c, half, 2 * n);
    for (int i = 0; i < n && st == OK; i++)
        t->sum[i] = (uint64_t)half[2 * i] + ((uint64_t)half[2 * i + 1] << 32);
    free(half);
    return st;
}

/* Returns the text: a line for each tensor, in the order of the files' lists. */
static char *write_text(const struct tensors *t)
{
    char *text = NULL;
    size_t size;
    int *line = sys_malloc(((size_t)t->n + 1) * sizeof *line);
    FILE *f = line ? open_memstream(&text, &size) : NULL;
    for (int k = 0; k < DIGEST_FILES && f; k++) {
        const int n = st_count(t->file[k]);
        for (int j = 0; j < n; j++)
            line[j] = -1;
        for (int i = t->first[k]; i < t->first[k + 1]; i++)
            line[t->of[i].number] = i;
        for (int j = 0; j < n; j++)
            fprintf(f, "%016" PRIx64 " %d %s\n", line[j] < 0 ? 0 : t->sum[line[j]], k, st_name(t->file[k], j));
    }
    free(line);
    if (!f || fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

enum status digests_write(struct comm *c, const char *dir, struct manifest *m)
{
    struct tensors t = {.n = 0};
    char path[CKPT_PATH], *text = NULL;
    enum status st = comm_agree(c, open_tensors(dir, &t));
    if (st == OK)
        st = hash_files(c, &t, m);
    if (st == OK)
        st = add_up(c, &t);
    for (int k = 0; k < DIGEST_FILES && st == OK; k++)
        m->files[k].xxh3 = t.sum[t.n + k];
    if (st == OK)
        text = write_text(&t);
    close_tensors(&t);
    if (st == OK)
        st = text ? ckpt_path(path, dir, CKPT_DIGESTS, "") : status_fail(ERR_NOMEM, "out of memory: the text of digests");
    if (st == OK && comm_rank(c) == 0)
        st = ckpt_write_text(path, text);
    if (st == OK)
        m->digests = XXH3_64bits(text, strlen(text));
    free(text);
    return comm_broken(c) ? st : comm_agree(c, st);
}

/* ---- reading ---- */

enum status digests_read(const char *dir, uint64_t text_xxh3, struct digests *out)
{
    char path[CKPT_PATH], *text;
    TRY(ckpt_path(path, dir, CKPT_DIGESTS, ""));
    TRY(ckpt_read_text(path, INT64_MAX, &text));
    if (XXH3_64bits(text, strlen(text)) != text_xxh3) {
        free(text);
        return status_fail(ERR_CORRUPT, "%s is damaged: it does not have the checksum of its manifest", path);
    }
    *out = (struct digests){text, text};
    return OK;
}

void digests_free(struct digests *d)
{
    free(d->text);
}

/* Looks for the tensor in the lines from `at` up to `end` (NULL: all). */
static char *find_line(char *at, const char *end, int file, const char *name)
{
    const size_t n = strlen(name);
    while (*at && at != end) {
        char *next = at + strcspn(at, "\n");
        if (next - at == (ptrdiff_t)n + 19 && at[17] == '0' + file && memcmp(at + 19, name, n) == 0)
            return at;
        at = next + (*next != 0);
    }
    return NULL;
}

int digests_look(struct digests *d, int file, const char *name, uint64_t *out)
{
    char *line = find_line(d->next, NULL, file, name);
    if (!line)
        line = find_line(d->text, d->next, file, name);
    if (!line)
        return 0;
    *out = strtoull(line, NULL, 16);
    d->next = line + strcspn(line, "\n");
    d->next += *d->next != 0;
    return 1;
}
