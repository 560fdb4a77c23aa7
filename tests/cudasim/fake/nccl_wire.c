/* Ring buffers in shared memory, one for each ordered pair of ranks. */
#include "nccl_wire.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RING = 1 << 14, POSTED = 256 };

/* The messages from one rank to another. */
struct pair {
    _Atomic int64_t sends, receives; /* posted */
    struct nccl_message sent[POSTED], wanted[POSTED];
    _Atomic int64_t written, read; /* bytes */
    char ring[RING];
};

struct shared {
    atomic_int opened, left;
    atomic_int device[NCCL_RANKS];      /* 1 + it */
    _Atomic int64_t active[NCCL_RANKS]; /* number of the rank's group in which it has posted all ends; 0: none */
    struct pair pair[NCCL_RANKS][NCCL_RANKS];
};

struct nccl_wire {
    struct shared *s;
    char name[64];
    int rank, ranks;
    int64_t groups;
};

struct nccl_wire *nccl_wire_open(const char *name, int rank, int ranks, int device)
{
    struct nccl_wire *w = calloc(1, sizeof *w);
    int fd = shm_open(name, O_CREAT | O_RDWR, 0600);
    if (!w || ranks > NCCL_RANKS || fd < 0 || ftruncate(fd, sizeof *w->s) != 0)
        abort();
    w->s = mmap(NULL, sizeof *w->s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (w->s == MAP_FAILED)
        abort();
    snprintf(w->name, sizeof w->name, "%s", name);
    w->rank = rank;
    w->ranks = ranks;
    atomic_store(&w->s->device[rank], device + 1);
    if (atomic_fetch_add(&w->s->opened, 1) + 1 == ranks)
        shm_unlink(name); /* all ranks have opened the name */
    return w;
}

void nccl_wire_close(struct nccl_wire *w)
{
    if (!nccl_wire_complete(w))
        shm_unlink(w->name);
    munmap(w->s, sizeof *w->s);
    free(w);
}

int nccl_wire_complete(const struct nccl_wire *w)
{
    return atomic_load(&w->s->opened) == w->ranks;
}

int nccl_wire_twin(const struct nccl_wire *w)
{
    for (int r = 0; r < w->ranks; r++)
        if (r != w->rank && atomic_load(&w->s->device[r]) == atomic_load(&w->s->device[w->rank]))
            return r;
    return -1;
}

void nccl_wire_leave(struct nccl_wire *w)
{
    atomic_fetch_add(&w->s->left, 1);
}

int nccl_wire_all_left(const struct nccl_wire *w)
{
    return atomic_load(&w->s->left) == w->ranks;
}

static struct pair *pair_of(const struct nccl_wire *w, const struct nccl_end *e)
{
    return e->sends ? &w->s->pair[w->rank][e->peer] : &w->s->pair[e->peer][w->rank];
}

void nccl_wire_post(struct nccl_wire *w, struct nccl_end *end, int n)
{
    for (int i = 0; i < n; i++) {
        struct pair *p = pair_of(w, &end[i]);
        _Atomic int64_t *posted = end[i].sends ? &p->sends : &p->receives;
        end[i].number = atomic_load(posted);
        (end[i].sends ? p->sent : p->wanted)[end[i].number % POSTED] = end[i].message;
        atomic_store(posted, end[i].number + 1);
    }
    atomic_store(&w->s->active[w->rank], ++w->groups);
}

void nccl_wire_done(struct nccl_wire *w)
{
    atomic_store(&w->s->active[w->rank], 0);
}

/* --- Circles --- */

/* Tells whether rank a, in a group, has posted one end of a message whose other end rank b has not posted. */
static int waits(const struct nccl_wire *w, int a, int b)
{
    const struct pair *out = &w->s->pair[a][b], *in = &w->s->pair[b][a];
    return atomic_load(&w->s->active[a]) &&
           (atomic_load(&out->sends) > atomic_load(&out->receives) || atomic_load(&in->receives) > atomic_load(&in->sends));
}

/* Finds ranks that wait for each other in a circle through this rank. None of them can leave it, since each has posted all ends
 * of its group. Fills chain and returns their number; 0: there is no circle. */
static int circle(const struct nccl_wire *w, int chain[NCCL_RANKS], int n)
{
    for (int next = 0; next < w->ranks; next++) {
        int seen = 0;
        if (next == chain[n - 1] || !waits(w, chain[n - 1], next))
            continue;
        if (next == w->rank)
            return n;
        for (int k = 1; k < n; k++)
            seen |= chain[k] == next;
        if (seen || n == NCCL_RANKS)
            continue;
        chain[n] = next;
        int found = circle(w, chain, n + 1);
        if (found)
            return found;
    }
    return 0;
}

static int find_circle(const struct nccl_wire *w, char *text, size_t size)
{
    int chain[NCCL_RANKS] = {w->rank}, n = circle(w, chain, 1), at;
    int64_t group[NCCL_RANKS];
    for (int k = 0; k < n; k++)
        group[k] = atomic_load(&w->s->active[chain[k]]);
    for (int k = 0; k < n; k++) /* all must wait at the same time, not only one after another */
        if (!group[k] || !waits(w, chain[k], chain[(k + 1) % n]) || atomic_load(&w->s->active[chain[k]]) != group[k])
            return 0;
    if (n == 0)
        return 0;
    at = snprintf(text, size, "ranks wait in a circle:");
    for (int k = 0; k < n; k++)
        at += snprintf(text + at, size - (size_t)at, "%s rank %d for rank %d", k ? "," : "", chain[k], chain[(k + 1) % n]);
    return 1;
}

/* --- Messages --- */

static int64_t most(int64_t a, int64_t b, int64_t c)
{
    int64_t n = a < b ? a : b;
    return n < c ? n : c;
}

static void push(struct pair *p, struct nccl_end *e)
{
    int64_t at = atomic_load(&p->written), room = RING - (at - atomic_load(&p->read));
    int64_t n = most(room, e->message.bytes - e->done, RING - at % RING);
    memcpy(p->ring + at % RING, e->at + e->done, (size_t)n);
    e->done += n;
    atomic_store(&p->written, at + n);
}

static void pull(struct pair *p, struct nccl_end *e)
{
    int64_t at = atomic_load(&p->read), there = atomic_load(&p->written) - at;
    int64_t n = most(there, e->message.bytes - e->done, RING - at % RING);
    memcpy(e->at + e->done, p->ring + at % RING, (size_t)n);
    e->done += n;
    atomic_store(&p->read, at + n);
}

static int agree(const struct nccl_wire *w, const struct nccl_end *e, char *text, size_t size)
{
    static const char *const kinds[] = {"a send", "a gather"};
    const struct pair *p = pair_of(w, e);
    const struct nccl_message *s = &p->sent[e->number % POSTED], *r = &p->wanted[e->number % POSTED];
    if (s->bytes == r->bytes && s->kind == r->kind)
        return 1;
    snprintf(text, size, "rank %d sends %lld bytes (%s), and rank %d takes %lld (%s)", e->sends ? w->rank : e->peer,
             (long long)s->bytes, kinds[s->kind], e->sends ? e->peer : w->rank, (long long)r->bytes, kinds[r->kind]);
    return 0;
}

static int is_done(const struct nccl_end *e)
{
    return e->done == e->message.bytes;
}

/* Tells whether an earlier message between the same ranks has not arrived completely. */
static int is_behind(const struct nccl_end *end, int i)
{
    for (int k = 0; k < i; k++)
        if (end[k].sends == end[i].sends && end[k].peer == end[i].peer && !is_done(&end[k]))
            return 1;
    return 0;
}

int nccl_wire_progress(struct nccl_wire *w, struct nccl_end *end, int n, char *text, size_t size)
{
    int left = 0, unmatched = 0;
    for (int i = 0; i < n; i++) {
        struct nccl_end *e = &end[i];
        struct pair *p = pair_of(w, e);
        if (is_done(e))
            continue;
        left = 1;
        if (is_behind(end, i))
            continue;
        if (atomic_load(e->sends ? &p->receives : &p->sends) <= e->number) {
            unmatched = 1;
            continue;
        }
        if (!agree(w, e, text, size))
            return -1;
        e->sends ? push(p, e) : pull(p, e);
    }
    if (!left)
        return 1;
    return unmatched && find_circle(w, text, size) ? -1 : 0;
}
