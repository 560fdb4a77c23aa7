/* Digests of a checkpoint's tensors: made by all ranks, kept as a text, and read back. */
#include "checkpoint/digests.h"

#include "base/mix.h"
#include "base/num.h"
#include "base/sys.h"
#include "checkpoint/manifest.h"

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

/* Tensors of both files, and the sums of this rank. */
struct tensors {
    struct st_file *file[DIGEST_FILES];
    struct ckpt_window window[DIGEST_FILES];
    int n;
    double *half; /* [n][2]: halves of 32 bits, as sums of doubles are exact */
};

static enum status open_tensors(const char *dir, struct tensors *t)
{
    char path[CKPT_PATH];
    for (int k = 0; k < DIGEST_FILES; k++) {
        TRY(ckpt_path(path, dir, ckpt_file_names[k], ""));
        TRY(st_open(path, &t->file[k]));
        TRY(ckpt_window_open(st_file_path(t->file[k], 0), &t->window[k]));
        t->n += st_count(t->file[k]);
    }
    t->half = sys_calloc((size_t)t->n * 2 + 1, sizeof *t->half);
    return t->half ? OK : status_fail(ERR_NOMEM, "out of memory: digests of %d tensors", t->n);
}

static void close_tensors(struct tensors *t)
{
    for (int k = 0; k < DIGEST_FILES; k++) {
        if (t->file[k])
            ckpt_window_close(&t->window[k]);
        st_close(t->file[k]);
    }
    free(t->half);
}

static void add(double half[2], uint64_t sum)
{
    half[0] = (double)(uint32_t)sum;
    half[1] = (double)(uint32_t)(sum >> 32);
}

/* Hashes segments [first, first + n) of all tensors, counted through. */
static enum status hash_some(struct tensors *t, int64_t first, int64_t n, uint64_t *sums)
{
    int64_t at = 0;
    for (int k = 0, i = 0; k < DIGEST_FILES; k++)
        for (int j = 0; j < st_count(t->file[k]); j++, i++) {
            struct ckpt_part part;
            if (!digest_find(t->file[k], j, &part))
                continue;
            const int64_t segments = ckpt_segments(part.bytes), a = max_i64(first, at), b = min_i64(first + n, at + segments);
            if (a < b)
                TRY(ckpt_hash_in(&t->window[k], &part, a - at, b - a, &sums[i]));
            at += segments;
        }
    return OK;
}

static int64_t count_segments(const struct tensors *t)
{
    int64_t n = 0;
    for (int k = 0; k < DIGEST_FILES; k++)
        for (int j = 0; j < st_count(t->file[k]); j++) {
            struct ckpt_part part;
            n += digest_find(t->file[k], j, &part) ? ckpt_segments(part.bytes) : 0;
        }
    return n;
}

/* Hashes this rank's share of all segments; the ranks agree after every round, so that none waits long for a slow one. */
static enum status hash_tensors(struct comm *c, struct tensors *t)
{
    uint64_t *sums = sys_calloc((size_t)t->n + 1, sizeof *sums);
    const int64_t n = count_segments(t), share = ceil_div(n, comm_size(c)), first = min_i64(n, comm_rank(c) * share),
                  end = min_i64(n, first + share);
    enum status st = comm_agree(c, sums ? OK : status_fail(ERR_NOMEM, "out of memory: digests of %d tensors", t->n));
    for (int64_t at = 0; at < share && st == OK; at += ROUND)
        st = comm_agree(c, hash_some(t, first + at, max_i64(0, min_i64(ROUND, end - first - at)), sums));
    for (int i = 0; i < t->n && st == OK; i++)
        add(t->half + 2 * i, sums[i]);
    free(sums);
    return st == OK ? comm_sum(c, t->half, 2 * t->n) : st;
}

static char *write_text(const struct tensors *t)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    for (int k = 0, i = 0; k < DIGEST_FILES && f; k++)
        for (int j = 0; j < st_count(t->file[k]); j++, i++)
            fprintf(f, "%016" PRIx64 " %d %s\n", (uint64_t)t->half[2 * i] + ((uint64_t)t->half[2 * i + 1] << 32), k,
                    st_name(t->file[k], j));
    if (!f || fclose(f) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

enum status digests_write(struct comm *c, const char *dir, uint64_t *text_xxh3)
{
    struct tensors t = {.n = 0};
    char path[CKPT_PATH], *text = NULL;
    enum status st = comm_agree(c, open_tensors(dir, &t));
    if (st == OK)
        st = hash_tensors(c, &t);
    if (st == OK)
        text = write_text(&t);
    close_tensors(&t);
    if (st == OK)
        st = text ? ckpt_path(path, dir, CKPT_DIGESTS, "") : status_fail(ERR_NOMEM, "out of memory: the text of digests");
    if (st == OK && comm_rank(c) == 0)
        st = ckpt_write_text(path, text);
    if (st == OK)
        *text_xxh3 = XXH3_64bits(text, strlen(text));
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
